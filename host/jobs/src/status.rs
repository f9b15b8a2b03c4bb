//! Pure: builds the status of a job from its facts, phase and plan, and from the obstacles of the
//! last writes.

mod accounting;
mod activity;
pub mod conditions;
pub mod events;
pub mod invalid;
mod obstacle;
pub mod postponed;
mod rejections;
mod run;
mod starts;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use serde_json::Value;

pub use self::obstacle::{Applied, Obstacle};

use ipu_api::ipujob_status::{IPUJobStatus, JobState, RunStatus, WorkersStatus};
use ipu_api::labels;

use self::conditions::Conditions;
use super::facts::partition::PartitionState;
use super::facts::pod::PodState;
use super::facts::problems::{launcher_waits, pod_problems, waiting_containers};
use super::facts::{Facts, Instance};
use super::job_conditions::Recorded;
use super::outcome::Outcome;
use super::phase::Phase;
use super::plan::{GivenUp, Plan};
use super::restart::Next;
use super::validate::{Suspension, ValidJob};

/// Message of Graphcore's operator for a job without problems.
pub const RECONCILED: &str = "Successfully reconciled IPUJob";
/// Message of Graphcore's operator, once for each waiting instance.
pub const NOT_READY: &str = "partition not ready yet!";
/// Message of Graphcore's operator for a completed job.
pub const ALL_DONE: &str = "All instances done";

/// The input of the status.
pub(super) struct StatusInput<'a> {
    job: &'a ValidJob,
    facts: &'a Facts,
    phase: &'a Phase,
    /// By instance: the partition that new Pods will use.
    new_uses: &'a BTreeMap<String, String>,
    /// Rejected Pods that are created again.
    recreated: &'a BTreeSet<String>,
    /// By instance: partitions that are released because Pods could not start.
    given_up: &'a BTreeMap<String, GivenUp>,
    /// Whether a reset of a partition is requested now.
    requests_reset: bool,
    /// The instance of each worker that is created now. The status that records the use of a
    /// partition is written before its Pods are created, and would have to be written again for
    /// their number.
    new_workers: Vec<u32>,
    /// The obstacles of the last writes.
    obstacles: &'a [Obstacle],
}

/// Builds the status of a job, before or after its plan is applied. Times of unchanged fields
/// remain.
pub fn build(
    job: &ValidJob,
    facts: &Facts,
    phase: &Phase,
    (plan, obstacles): (&Plan, &[Obstacle]),
    old: &IPUJobStatus,
    now: Timestamp,
) -> IPUJobStatus {
    let mut input = StatusInput {
        job,
        facts,
        phase,
        new_uses: &plan.new_uses,
        recreated: &plan.recreated,
        given_up: &plan.given_up,
        requests_reset: !plan.reset_partitions.is_empty(),
        new_workers: new_workers(plan, obstacles),
        obstacles,
    };
    let state = input.state();
    if state == JobState::Running {
        // The state stays when the Pods run. Only the change of their number causes the write that
        // the accounting needs.
        input.new_workers.clear();
    }
    let finished = phase.is_finished();
    let run = run::run_status(&input, state, now);
    let mut conditions = Conditions::new(&old.conditions, now);
    conditions.describe(&input, state, &run);
    let restarts = i32::from(matches!(phase, Phase::Ended(_, Next::Retry { .. })));
    let mut status = IPUJobStatus {
        launcher_status: state,
        current_replicas: Some(if finished { 0 } else { count(input.current()) }),
        desired_replicas: count(job.instances as usize),
        last_message: input.last_message(&run, old),
        ipu_partition_created: Some(has_all_partitions(facts)),
        restart_count: Some(old.restart_count.unwrap_or(0).saturating_add(restarts)),
        // As in a Kubernetes Job: the time while it is suspended does not count.
        start_time: (!matches!(phase, Phase::Suspended | Phase::Reserving))
            .then(|| old.start_time.clone().unwrap_or(Time(now))),
        completion_time: old
            .completion_time
            .clone()
            .or_else(|| finished.then_some(Time(now))),
        last_reconcile_time: old.last_reconcile_time.clone(),
        workers_status: Some(input.workers_status()),
        automatic_resets: automatic_resets(facts),
        selector: Some(selector(job)),
        observed_generation: job.generation,
        session_end_time: input.interactive_end().or_else(|| {
            let ended = matches!(phase, Phase::Ended(..) | Phase::Finished(_));
            old.session_end_time.clone().filter(|_| ended)
        }),
        run: (run != RunStatus::default()).then(|| run.clone()),
        accounting: old.accounting.clone(),
        // `ipu-kueue` writes it.
        admission: old.admission.clone(),
        conditions: conditions.into_vec(),
    };
    if status != *old || accounting::runs_again(&input, (state, &run), old) {
        status.accounting = accounting::accounting(&input, (state, &run), old, now);
    }
    status
}

/// Returns the status to write. `None` if nothing but times would change.
pub fn changed(old: &IPUJobStatus, mut new: IPUJobStatus, now: Timestamp) -> Option<IPUJobStatus> {
    new.last_reconcile_time.clone_from(&old.last_reconcile_time);
    if new == *old {
        return None;
    }
    new.last_reconcile_time = Some(Time(now));
    Some(new)
}

/// Returns the job with another status and with the version that was read, so that the write fails
/// if the job has changed.
///
/// # Panics
/// Never: a status is plain data.
pub fn with_status(object: &Value, new: &IPUJobStatus) -> Value {
    let mut object = object.clone();
    object["status"] = serde_json::to_value(new).expect("a status is plain data");
    object
}

/// Whether a status is that of a job that has started and was not suspended since, or that is about
/// to start.
pub fn is_active(status: &IPUJobStatus) -> bool {
    status.observed_generation.is_some() && status.launcher_status != JobState::Suspended
}

/// Whether a status is that of an active job whose Pods may have used a partition. One that waits
/// for its partitions has not started.
pub fn has_started(status: &IPUJobStatus) -> bool {
    let run = status.run.as_ref();
    let has_used = run.is_some_and(|run| !run.used.is_empty());
    let has_pods = status.current_replicas.unwrap_or(0) > 0;
    let runs = status.launcher_status == JobState::Running;
    is_active(status) && (has_used || has_pods || runs)
}

impl StatusInput<'_> {
    fn state(&self) -> JobState {
        let Self { job, facts, .. } = self;
        match self.phase {
            Phase::Finished(Recorded::Completed) => JobState::Completed,
            Phase::Finished(Recorded::Failed) => JobState::Failed,
            Phase::Ended(_, Next::Retry { .. }) => JobState::Pending,
            Phase::Ended(Outcome::Completed, Next::Terminal(_)) => JobState::Completed,
            Phase::Ended(Outcome::Failed(_), Next::Terminal(_)) => JobState::Failed,
            Phase::Suspended | Phase::Reserving => JobState::Suspended,
            Phase::Running => JobState::Running,
            Phase::Waiting if can_never_start(facts) => JobState::Failed,
            // As in Graphcore's operator: `Running 2 2` while a worker is ContainerCreating.
            Phase::Starting if job.launcher.is_none() && facts.has_run => JobState::Running,
            Phase::Waiting | Phase::Starting | Phase::Restart(_) => JobState::Pending,
        }
    }

    fn last_message(&self, run: &RunStatus, old: &IPUJobStatus) -> String {
        match self.phase {
            Phase::Finished(_) => old.last_message.clone(),
            Phase::Suspended if self.job.suspension == Suspension::Unadmitted => {
                "suspended: Kueue has not admitted the job; it starts by itself once it is admitted"
                    .to_owned()
            }
            Phase::Suspended => "suspended: spec.suspend is true".to_owned(),
            Phase::Reserving if !self.obstacles.is_empty() => {
                let obstacle = self.obstacles.first();
                obstacle.map(ToString::to_string).unwrap_or_default()
            }
            Phase::Reserving if has_all_partitions(self.facts) => {
                "suspended until it is admitted; its partitions are ready".to_owned()
            }
            Phase::Reserving => {
                "suspended until it is admitted; its partitions are being created".to_owned()
            }
            Phase::Ended(Outcome::Completed, Next::Terminal(_)) => ALL_DONE.to_owned(),
            Phase::Ended(Outcome::Failed(failure), Next::Terminal(_)) => failure.message.clone(),
            Phase::Ended(_, Next::Retry { .. }) | Phase::Restart(_) => restart_message(run),
            Phase::Waiting | Phase::Starting | Phase::Running => self.progress_message(run),
        }
    }

    fn progress_message(&self, run: &RunStatus) -> String {
        let facts = self.facts;
        if let Some(obstacle) = self.obstacles.first() {
            return obstacle.to_string();
        }
        if let Some(reason) = rejection(facts) {
            return reason.to_owned();
        }
        if let Some(failure) = conditions::worker_failures(facts).next() {
            return failure;
        }
        let mut pods = pod_problems(facts, run).chain(launcher_waits(self.job, facts));
        if let Some(pod) = pods.next() {
            return pod;
        }
        if let Some(reason) = starts::release_message(facts, run) {
            return reason.to_owned();
        }
        if run.restarting.is_some() {
            return restart_message(run);
        }
        if facts.deadlines.in_quota_backoff {
            return run::quota_backoff_message(facts);
        }
        let waiting = facts
            .instances
            .iter()
            .filter(|found| waits_for_partition(found))
            .count();
        if waiting > 0 {
            return NOT_READY.repeat(waiting);
        }
        if let Some(container) = waiting_containers(facts).next() {
            return container;
        }
        match self.interactive_end() {
            Some(Time(end)) => format!(
                "{RECONCILED}; the interactive job lasts until {}: kubectl exec -it {} -- bash",
                end.strftime("%Y-%m-%dT%H:%M:%SZ"),
                facts.launcher.name
            ),
            None => RECONCILED.to_owned(),
        }
    }

    /// Returns the number of instances with a live Pod.
    fn current(&self) -> usize {
        let is_new = |instance: &Instance| self.new_workers.contains(&instance.index);
        let instances = self.facts.all();
        instances.filter(|one| one.live() || is_new(one)).count()
    }

    fn workers_status(&self) -> WorkersStatus {
        let mut counted = WorkersStatus {
            active: count(self.new_workers.len()),
            ..WorkersStatus::default()
        };
        let instances = self.facts.all();
        for worker in instances.flat_map(|instance| &instance.workers) {
            match worker.state {
                PodState::Absent => {}
                PodState::Succeeded(_) => counted.succeeded += 1,
                PodState::Failed(_) | PodState::Lost(_) => counted.failed += 1,
                PodState::Terminating { .. }
                | PodState::Stale
                | PodState::Rejected(_)
                | PodState::Pending(_)
                | PodState::Running { .. } => counted.active += 1,
            }
        }
        counted
    }

    /// Returns the time at which a running interactive job ends.
    fn interactive_end(&self) -> Option<Time> {
        let seconds = self.job.launcher.as_ref()?.interactive_seconds?;
        let since = self.facts.launcher_started?;
        let end = since.checked_add(jiff::SignedDuration::from_secs(i64::from(seconds)));
        end.ok().map(Time)
    }
}

/// Returns the instance of each worker that the plan creates. With an obstacle, it is unknown which
/// were created.
fn new_workers(plan: &Plan, obstacles: &[Obstacle]) -> Vec<u32> {
    let created = plan.create_pods.iter().filter(|_| obstacles.is_empty());
    let instance = |pod: &Pod| pod.labels().get(labels::INSTANCE_LABEL)?.parse().ok();
    created.filter_map(instance).collect()
}

fn restart_message(run: &RunStatus) -> String {
    let reason = run.restarting.as_deref().unwrap_or_default();
    match &run.not_before {
        Some(Time(at)) => format!(
            "restarting, not before {}: {reason}",
            at.strftime("%Y-%m-%dT%H:%M:%SZ")
        ),
        None => format!("restarting: {reason}"),
    }
}

/// Whether no Pod is live and no controller can ever create the partition.
fn can_never_start(facts: &Facts) -> bool {
    facts.instances.iter().all(|instance| !instance.live()) && rejection(facts).is_some()
}

fn rejection(facts: &Facts) -> Option<&str> {
    facts
        .instances
        .iter()
        .find_map(|instance| match &instance.partition.state {
            PartitionState::Rejected(reason) => Some(reason.as_str()),
            _ => None,
        })
}

/// Whether an instance waits for its partition.
fn waits_for_partition(instance: &Instance) -> bool {
    !instance.ended() && !instance.live() && instance.partition.state.usable().is_none()
}

fn has_all_partitions(facts: &Facts) -> bool {
    !facts.instances.is_empty()
        && facts
            .instances
            .iter()
            .all(|instance| instance.partition.state.placed().is_some())
}

/// Returns the number of automatic resets. `None` if there were none, so that the field is not
/// written.
fn automatic_resets(facts: &Facts) -> Option<i64> {
    let resets: i64 = facts
        .all()
        .map(|instance| i64::from(instance.automatic_resets))
        .sum();
    (resets > 0).then_some(resets)
}

/// Returns a selector of the first worker of each instance: a HorizontalPodAutoscaler counts the
/// selected Pods as replicas.
fn selector(job: &ValidJob) -> String {
    format!(
        "{}={},{}=worker,{}=0",
        labels::JOB_UID_LABEL,
        job.uid,
        labels::ROLE_LABEL,
        labels::GCD_LABEL
    )
}

/// Converts a count. Admission limits the number of instances far below the maximum.
fn count(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}
