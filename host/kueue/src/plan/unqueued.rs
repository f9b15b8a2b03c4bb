//! Pure: the next step for the Workload of an IPUJob that has left its queue: a user has removed
//! the label, or its spec has become unreadable.
//!
//! An admitted job keeps its quota until it ends or Kueue evicts it: Kueue's own jobs keep the
//! label as long as they run. Any other job releases its partitions, and then its quota with its
//! Workload.

use std::sync::Arc;

use ipu_jobs::validate::Suspension;
use jiff::Timestamp;

use super::{ObservedJob, Plan, Step, finish, is_released, of_quota};
use crate::job::QueuedJob;
use crate::objects::{ADMITTED, FINISHED, QUOTA_RESERVED, Workload};

/// Decides the next step for a job without a queue.
pub(super) fn plan(seen: &ObservedJob, now: Timestamp) -> Plan {
    let job = &seen.job;
    let mut workloads = seen.workloads.iter();
    if let Some(current) = workloads.find(|workload| is_admitted(job, workload)) {
        let mut requeue = None;
        return Plan {
            step: of_quota(seen, current, now, &mut requeue),
            workload: Some(Arc::clone(current)),
            requeue,
        };
    }
    let steps = seen
        .workloads
        .iter()
        .map(|workload| (workload, step(seen, workload)));
    let next = steps.max_by_key(|(_, step)| step.is_some());
    next.map_or_else(Plan::default, |(workload, step)| Plan {
        step,
        workload: Some(Arc::clone(workload)),
        requeue: None,
    })
}

/// Whether a job runs with the quota of this Workload.
fn is_admitted(job: &QueuedJob, workload: &Workload) -> bool {
    let has_admission = job.admission.is_some() || job.is_elsewhere;
    let is_left = workload.is(FINISHED) || workload.metadata.deletion_timestamp.is_some();
    let runs = job.suspension == Suspension::Active && job.end.is_none();
    runs && has_admission && workload.is(ADMITTED) && !is_left
}

fn step(seen: &ObservedJob, workload: &Workload) -> Option<Step> {
    let job = &seen.job;
    if workload.is(FINISHED) {
        return workload.has_finalizer().then_some(Step::RemoveFinalizer);
    }
    if let Some(end) = &job.end {
        return seen.partitions.is_empty().then(|| finish(end));
    }
    if job.admission.is_some() {
        return Some(Step::Stop("the job is in no queue any more".to_owned()));
    }
    if job
        .conditions
        .iter()
        .any(|condition| condition.type_ == QUOTA_RESERVED)
    {
        return Some(Step::RemoveCondition);
    }
    // A user may have resumed it: then it has partitions that are no part of the quota.
    let runs_outside = job.suspension == Suspension::Active;
    let is_terminating = workload.metadata.deletion_timestamp.is_some();
    match (runs_outside, is_terminating) {
        (true, true) => workload.has_finalizer().then_some(Step::RemoveFinalizer),
        (true, false) => Some(Step::DiscardWorkload),
        (false, _) if !is_released(seen) => None,
        (false, true) => workload.has_finalizer().then_some(Step::RemoveFinalizer),
        (false, false) => Some(Step::DeleteWorkload),
    }
}
