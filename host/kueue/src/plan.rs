//! Pure: the next step for an IPUJob in a queue and its Workload.
//!
//! The order of the decisions is that of Kueue's own jobs
//! (`pkg/controller/jobframework/reconciler.go` of 0.19), with one difference: quota is released
//! when the partitions are gone, and not when the job begins to stop.

mod progress;
mod step;
mod unqueued;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ipu_api::pod_template::canonical;
use ipu_api::queueing::LAUNCHER;
use ipu_jobs::validate::Suspension;
use jiff::Timestamp;
use serde_json::Value;

use crate::check::{self, Answer};
use crate::job::{End, QueuedJob};
use crate::objects::{
    ADMITTED, EVICTED, FINISHED, PARTITION_RETRY, PodSet, PriorityClassRef, QUOTA_RESERVED,
    REQUEUED, ResourceFlavorSpec, Workload,
};
use crate::partitions::JobPartition;
use crate::pod_sets::relevant;
use crate::updates;

pub use self::step::Step;

/// State of a job.
#[derive(Clone, Debug)]
pub struct ObservedJob {
    /// The job.
    pub job: QueuedJob,
    /// The Workloads that it controls, or the prebuilt one.
    pub workloads: Vec<Arc<Workload>>,
    /// Its partitions.
    pub partitions: Vec<JobPartition>,
    /// All flavors.
    pub flavors: Arc<BTreeMap<Box<str>, ResourceFlavorSpec>>,
    /// Names of the AdmissionChecks that wait for partitions.
    pub checks: Arc<BTreeSet<Box<str>>>,
}

/// The next step for a job.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// The Workload of the job.
    pub workload: Option<Arc<Workload>>,
    /// The next step.
    pub step: Option<Step>,
    /// Delay of the next decision, if no event comes before.
    pub requeue: Option<Duration>,
}

/// Decides the next step for a job.
pub fn plan(seen: &ObservedJob, now: Timestamp) -> Plan {
    let job = &seen.job;
    let Some(queue) = &job.queue else {
        return unqueued::plan(seen, now);
    };
    let (workload, others) = select(seen);
    let Some(workload) = workload else {
        return Plan {
            step: without_workload(seen),
            ..Plan::default()
        };
    };
    if let Some(other) = others.into_iter().next() {
        let step = if other.metadata.deletion_timestamp.is_some() {
            Step::RemoveFinalizer
        } else {
            Step::DeleteWorkload
        };
        return Plan {
            step: Some(step),
            workload: Some(other),
            requeue: None,
        };
    }
    let mut requeue = None;
    let step = of_life(seen, &workload).unwrap_or_else(|| {
        of_spec(job, queue, &workload).or_else(|| of_quota(seen, &workload, now, &mut requeue))
    });
    Plan {
        workload: Some(workload),
        step,
        requeue,
    }
}

/// Chooses the Workload of a job: the prebuilt one, else the one that fits, else the oldest.
/// Returns the others too.
fn select(seen: &ObservedJob) -> (Option<Arc<Workload>>, Vec<Arc<Workload>>) {
    let job = &seen.job;
    let mut workloads = seen.workloads.clone();
    let is_prebuilt =
        |one: &Arc<Workload>| job.prebuilt.is_some() && one.metadata.name == job.prebuilt;
    let chosen = if job.prebuilt.is_some() {
        workloads.iter().position(is_prebuilt)
    } else {
        let fits = |one: &Arc<Workload>| fits(job, one);
        workloads
            .iter()
            .position(fits)
            .or((!workloads.is_empty()).then_some(0))
    };
    let chosen = chosen.map(|index| workloads.remove(index));
    (chosen, workloads)
}

fn without_workload(seen: &ObservedJob) -> Option<Step> {
    let job = &seen.job;
    // A job that was started before it was in a queue runs to its end.
    if job.end.is_some() || job.runs_unadmitted() {
        return None;
    }
    if job.is_started() {
        return Some(Step::Stop("the job has no Workload".to_owned()));
    }
    let waits = !seen.partitions.is_empty() || job.prebuilt.is_some();
    (!waits).then_some(Step::CreateWorkload)
}

/// Decides on the end of the job or of its Workload. `None`: neither has ended.
fn of_life(seen: &ObservedJob, workload: &Workload) -> Option<Option<Step>> {
    let job = &seen.job;
    let is_in_use = !seen.partitions.is_empty();
    if workload.is(FINISHED) {
        return Some(workload.has_finalizer().then_some(Step::RemoveFinalizer));
    }
    if let Some(end) = &job.end {
        // The partitions are the quota: they are released first.
        return Some((!is_in_use).then(|| finish(end)));
    }
    if workload.metadata.deletion_timestamp.is_some() {
        let step = if job.is_started() {
            Some(Step::Stop("the Workload was deleted".to_owned()))
        } else {
            is_released(seen).then_some(Step::RemoveFinalizer)
        };
        return Some(step);
    }
    let is_prebuilt = job.prebuilt.is_some();
    if is_prebuilt && crate::job::controlling_job(&workload.metadata).is_none() {
        return Some(Some(Step::AdoptWorkload));
    }
    if fits(job, workload) {
        return None;
    }
    if is_prebuilt {
        return Some(Some(Step::Finish {
            reason: "OutOfSync",
            message: "the prebuilt Workload does not match its IPUJob".to_owned(),
        }));
    }
    if !workload.holds_quota() && !job.is_started() {
        return Some(Some(Step::SetPodSets));
    }
    let step = if job.is_started() {
        Some(Step::Stop(
            "the job needs another quota than its Workload has".to_owned(),
        ))
    } else {
        is_released(seen).then_some(Step::DeleteWorkload)
    };
    Some(step)
}

fn finish(end: &End) -> Step {
    Step::Finish {
        reason: if end.has_succeeded {
            "Succeeded"
        } else {
            "Failed"
        },
        message: end.message.clone(),
    }
}

/// Decides on the fields of the Workload that follow the job.
fn of_spec(job: &QueuedJob, queue: &str, workload: &Workload) -> Option<Step> {
    let spec = &workload.spec;
    if !workload.holds_quota() && spec.queue_name.as_deref() != Some(queue) {
        return Some(Step::SetQueue);
    }
    if let Some(step) = of_priority(job, workload) {
        return Some(step);
    }
    let may_change = !workload.holds_quota() && job.prebuilt.is_none();
    if may_change && spec.maximum_execution_time_seconds != job.max_execution_seconds {
        return Some(Step::SetTimeLimit);
    }
    let annotations = workload.metadata.annotations.as_ref();
    let gated_by =
        annotations.and_then(|all| all.get(ipu_api::queueing::ADMISSION_GATED_BY_ANNOTATION));
    (gated_by != job.gated_by.as_ref() && gated_by.is_some()).then_some(Step::SetGatedBy)
}

/// Decides on the priority. While quota is reserved, Kueue accepts only another
/// WorkloadPriorityClass in place of one.
fn of_priority(job: &QueuedJob, workload: &Workload) -> Option<Step> {
    let current = workload.spec.priority_class_ref.as_ref();
    let of_workloads = |class: &&PriorityClassRef| class.kind == "WorkloadPriorityClass";
    let current_name = current.filter(of_workloads).map(|class| &class.name);
    let may_change = match (&job.priority_class, workload.holds_quota()) {
        (Some(_), false) => true,
        (Some(_), true) => current_name.is_some(),
        // A prebuilt Workload has a priority of its own.
        (None, holds_quota) => !holds_quota && job.prebuilt.is_none(),
    };
    (may_change && current_name != job.priority_class.as_ref()).then_some(Step::SetPriority)
}

/// Decides on the admission of the Workload.
fn of_quota(
    seen: &ObservedJob,
    workload: &Workload,
    now: Timestamp,
    requeue: &mut Option<Duration>,
) -> Option<Step> {
    let job = &seen.job;
    if let Some(evicted) = workload.condition(EVICTED, "True") {
        if job.is_started() {
            return Some(Step::Stop(evicted.message.clone()));
        }
        if workload.holds_quota() {
            return is_released(seen).then(|| release_quota(seen, workload, &evicted.reason));
        }
        let ready = progress::pods_ready(job, workload);
        return ready.or_else(|| retried(seen, workload, now, requeue));
    }
    let is_admitted = workload.is(ADMITTED);
    if is_admitted {
        let reclaimable = progress::reclaimable(seen, workload);
        let known = workload
            .status
            .as_ref()
            .map(|status| &status.reclaimable_pods);
        if known.is_some_and(|known| *known != reclaimable) {
            return Some(Step::SetReclaimable(reclaimable));
        }
    }
    if let Some(step) = progress::pods_ready(job, workload) {
        return Some(step);
    }
    match (is_admitted, job.is_suspended()) {
        (true, false) if job.admission.is_some() || job.is_elsewhere => None,
        (true, _) if has_status(job) => {
            Some(Step::Start(updates::updates(workload, &seen.flavors)?))
        }
        (true, _) => None,
        (false, false) => Some(Step::Stop("Kueue has not admitted the job".to_owned())),
        (false, true) if workload.is(QUOTA_RESERVED) => checked(seen, workload, now, requeue),
        (false, true) => job
            .is_started()
            .then(|| Step::Stop("the job has no quota".to_owned())),
    }
}

fn release_quota(seen: &ObservedJob, workload: &Workload, reason: &str) -> Step {
    Step::ReleaseQuota {
        is_retry: reason == "AdmissionCheck" && own_check(seen, workload).is_some(),
    }
}

/// Decides on a Workload that waits for the next attempt of its admission check.
fn retried(
    seen: &ObservedJob,
    workload: &Workload,
    now: Timestamp,
    requeue: &mut Option<Duration>,
) -> Option<Step> {
    let waits = workload.condition(REQUEUED, "False");
    let waits = waits.filter(|one| one.reason == PARTITION_RETRY)?;
    let (_, check) = own_check(seen, workload)?;
    let waited = now.duration_since(waits.last_transition_time.0);
    let waited = Duration::try_from(waited).unwrap_or_default();
    let left = check::retry_delay(check).saturating_sub(waited);
    if left.is_zero() {
        return Some(Step::Requeue);
    }
    *requeue = Some(left);
    None
}

/// Returns the check of the operator on a Workload.
fn own_check<'a>(seen: &ObservedJob, workload: &'a Workload) -> Option<(&'a str, &'a Value)> {
    let mut checks = workload.checks().iter();
    checks.find_map(|check| {
        let name = check.get("name")?.as_str()?;
        seen.checks.contains(name).then_some((name, check))
    })
}

/// Decides on the admission checks of a Workload with reserved quota.
fn checked(
    seen: &ObservedJob,
    workload: &Workload,
    now: Timestamp,
    requeue: &mut Option<Duration>,
) -> Option<Step> {
    let job = &seen.job;
    let (name, check) = own_check(seen, workload)?;
    if check["state"] != "Pending" && check["state"] != "Ready" {
        // Kueue evicts or deactivates it.
        return None;
    }
    if job.is_elsewhere {
        let answer = Answer::of_other_jobs();
        return (!answer.is_in(check)).then(|| answered(name, answer));
    }
    if let Some(failure) = &job.start_failure {
        // Its check would wait for ever for partitions that the job does not request.
        return Some(answered(name, Answer::retry(failure)));
    }
    let wanted = updates::updates(workload, &seen.flavors)?;
    if job.suspension != Suspension::Reserving || !job.is_admitted_with(&wanted) {
        return has_status(job).then_some(Step::Reserve(wanted));
    }
    let (answer, delay) = check::answer(("instance", job.instances), &seen.partitions, now);
    *requeue = delay;
    (!answer.is_in(check)).then(|| answered(name, answer))
}

fn answered(name: &str, answer: Answer) -> Step {
    Step::AnswerCheck {
        name: name.to_owned(),
        answer,
    }
}

/// Whether a Workload has the pod sets of its job. Kueue writes quantities in another way than
/// users do.
///
/// While it holds quota, the job may need less of it. The launcher of a running job needs what it
/// was admitted with: its resources may follow a setting of the admin, which is for jobs that
/// start.
fn fits(job: &QueuedJob, workload: &Workload) -> bool {
    let holds_quota = workload.holds_quota();
    let keeps_launcher = holds_quota && !job.is_suspended();
    let sets = &workload.spec.pod_sets;
    let is_same = |(one, other): (&PodSet, &PodSet)| {
        let is_enough = one.count == other.count || (holds_quota && one.count < other.count);
        let is_same_pod = (keeps_launcher && one.name == LAUNCHER)
            || canonical(&one.template) == canonical(&relevant(&other.template));
        one.name == other.name && is_enough && is_same_pod
    };
    sets.len() == job.pod_sets.len() && job.pod_sets.iter().zip(sets).all(is_same)
}

/// Whether the admission of a job can be written: a status without the fields of its controller is
/// invalid. A job that runs elsewhere has no admission here.
fn has_status(job: &QueuedJob) -> bool {
    job.is_observed || job.is_elsewhere
}

/// Whether nothing of a suspended job is left that uses quota.
fn is_released(seen: &ObservedJob) -> bool {
    let job = &seen.job;
    job.is_elsewhere || (seen.partitions.is_empty() && job.has_settled)
}

#[cfg(test)]
mod tests;
