//! Pure: the status of a job, from where it stands and from what became of the last writes.

pub mod conditions;
pub mod events;
mod obstacle;
pub mod postponed;
pub mod refused;
mod run;

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::Value;

pub use self::obstacle::{Applied, Obstacle};

use ipu_api::ipujob_status::{IPUJobStatus, JobState, RunStatus, WorkersStatus};
use ipu_api::names;

use self::conditions::Conditions;
use super::facts::partition::PartitionState;
use super::facts::pod::PodState;
use super::facts::{Facts, Instance, Recorded};
use super::phase::{Outcome, Phase};
use super::plan::Plan;
use super::restart::Next;
use super::validate::ValidJob;

/// Condition of the contract: the job waits for partitions or Pods.
pub const PENDING: &str = "Pending";
/// Condition of the contract: the job runs.
pub const RUNNING: &str = "Running";
/// Condition of the contract: the job has ended well.
pub const SUCCEEDED: &str = "Succeeded";
/// Condition of the contract: the job has ended badly, or cannot be carried out.
pub const FAILED: &str = "Failed";
/// Condition of the contract: the job is being started again, and why.
pub const RESTARTING: &str = "Restarting";
/// Condition: the job is at rest (`spec.suspend`), as in a Kubernetes Job.
pub const SUSPENDED: &str = "Suspended";
/// Condition, for tools that read kstatus: the job runs or has completed.
pub const READY: &str = "Ready";
/// Condition, for tools that read kstatus: the job has failed, and will not go on by itself.
pub const STALLED: &str = "Stalled";
/// Reason of a job that was active for too long, as in a Kubernetes Job.
pub const DEADLINE_EXCEEDED: &str = "DeadlineExceeded";
/// Condition: every instance has its partition; where not, why, controller by controller.
pub const PARTITIONS_READY: &str = "PartitionsReady";
/// Condition: every Pod that is wanted exists and runs; where not, why.
pub const PODS_READY: &str = "PodsReady";
/// Condition: every worker was made from the template as it is now.
pub const TEMPLATE_CURRENT: &str = "TemplateCurrent";
/// Condition of a finished job: its partitions were given back; where not, why.
pub const PARTITIONS_RELEASED: &str = "PartitionsReleased";

/// What the original says when nothing is wrong.
pub const RECONCILED: &str = "Successfully reconciled IPUJob";
/// What the original says, once for each instance that waits.
pub const NOT_READY: &str = "partition not ready yet!";
/// What the original says of a completed job.
pub const ALL_DONE: &str = "All instances done";

/// Where a job stands and what follows from it: what its status is written from.
pub(super) struct Standing<'a> {
    job: &'a ValidJob,
    facts: &'a Facts,
    phase: &'a Phase,
    /// What follows, where a run has just ended.
    next: Option<Next>,
    /// By instance: the partition that Pods are about to use.
    begins: &'a BTreeMap<String, String>,
    /// What stood in the way of the last writes.
    obstacles: &'a [Obstacle],
}

/// The status that the job has now, with a plan that is carried out or about to be, and what stood in
/// its way. Times of what did not change stay as they were.
pub fn status(
    job: &ValidJob,
    facts: &Facts,
    phase: &Phase,
    (plan, obstacles): (&Plan, &[Obstacle]),
    old: &IPUJobStatus,
    now: Timestamp,
) -> IPUJobStatus {
    let next = match phase {
        Phase::Ended(outcome) => Some(job.restart.next(outcome, facts.run.failures, now)),
        _ => None,
    };
    let standing = Standing {
        job,
        facts,
        phase,
        next,
        begins: &plan.begins,
        obstacles,
    };
    let state = standing.state();
    let over = standing.is_over();
    let run = run::remembered(&standing, state, now);
    let mut conditions = Conditions::new(&old.conditions, now);
    conditions.describe(&standing, state, run.restarting.as_deref());
    let restarts = i32::from(matches!(standing.next, Some(Next::Again { .. })));
    IPUJobStatus {
        launcher_status: state,
        current_replicas: Some(if over { 0 } else { count(current(facts)) }),
        desired_replicas: count(job.instances as usize),
        last_message: standing.last_message(&run, old),
        ipu_partition_created: Some(every_instance_has_its_partition(facts)),
        restart_count: Some(old.restart_count.unwrap_or(0).saturating_add(restarts)),
        start_time: match phase {
            // As in a Kubernetes Job: the time at rest does not count.
            Phase::Suspended => None,
            _ => old.start_time.clone().or(Some(Time(now))),
        },
        completion_time: old
            .completion_time
            .clone()
            .or_else(|| over.then_some(Time(now))),
        last_reconcile_time: old.last_reconcile_time.clone(),
        workers_status: Some(workers_status(facts)),
        automatic_resets: automatic_resets(facts),
        selector: Some(selector(job)),
        observed_generation: job.generation,
        session_end_time: standing.session_end().or_else(|| {
            let ended = matches!(phase, Phase::Ended(_) | Phase::Finished(_));
            old.session_end_time.clone().filter(|_| ended)
        }),
        run: (run != RunStatus::default()).then_some(run),
        conditions: conditions.into_vec(),
    }
}

/// The status to write, or none where nothing but times would change.
pub fn changed(old: &IPUJobStatus, mut new: IPUJobStatus, now: Timestamp) -> Option<IPUJobStatus> {
    new.last_reconcile_time.clone_from(&old.last_reconcile_time);
    if new == *old {
        return None;
    }
    new.last_reconcile_time = Some(Time(now));
    Some(new)
}

/// The job with another status, and the version that was read: it is written as long as nobody else
/// has written the job since.
///
/// # Panics
/// Never: a status is plain data.
pub fn with_status(object: &Value, new: &IPUJobStatus) -> Value {
    let mut object = object.clone();
    object["status"] = serde_json::to_value(new).expect("a status is plain data");
    object
}

/// The end that a status records. Only an end has a completion time; a job that could not be
/// carried out has none, and goes on once it is corrected.
pub fn recorded(status: &IPUJobStatus) -> Option<Recorded> {
    status.completion_time.as_ref()?;
    if says(status, SUCCEEDED) {
        Some(Recorded::Completed)
    } else if says(status, FAILED) {
        Some(Recorded::Failed)
    } else {
        None
    }
}

/// Whether a status has this condition, and it is true.
pub fn says(status: &IPUJobStatus, wanted: &str) -> bool {
    let mut conditions = status.conditions.iter();
    conditions.any(|condition| condition.type_ == wanted && condition.status == "True")
}

impl Standing<'_> {
    /// Whether the job has ended for good.
    fn is_over(&self) -> bool {
        match self.phase {
            Phase::Ended(_) => matches!(self.next, Some(Next::Final(_))),
            Phase::Finished(_) => true,
            _ => false,
        }
    }

    fn state(&self) -> JobState {
        let Self { job, facts, .. } = self;
        match self.phase {
            Phase::Finished(Recorded::Completed) => JobState::Completed,
            Phase::Finished(Recorded::Failed) => JobState::Failed,
            Phase::Ended(_) if !self.is_over() => JobState::Pending,
            Phase::Ended(Outcome::Completed) => JobState::Completed,
            Phase::Ended(Outcome::Failed(_)) => JobState::Failed,
            Phase::Suspended => JobState::Suspended,
            Phase::Running => JobState::Running,
            Phase::Waiting if can_never_start(facts) => JobState::Failed,
            // As users know it: `Running 2 2` while a worker is ContainerCreating.
            Phase::Starting if job.launcher.is_none() && facts.ran => JobState::Running,
            Phase::Waiting | Phase::Starting | Phase::Replaced(_) => JobState::Pending,
        }
    }

    fn last_message(&self, run: &RunStatus, old: &IPUJobStatus) -> String {
        match self.phase {
            Phase::Finished(_) => old.last_message.clone(),
            Phase::Suspended => "suspended: spec.suspend is true".to_owned(),
            Phase::Ended(Outcome::Completed) if self.is_over() => ALL_DONE.to_owned(),
            Phase::Ended(Outcome::Failed(failure)) if self.is_over() => failure.how.clone(),
            Phase::Ended(_) | Phase::Replaced(_) => restarting(run),
            Phase::Waiting | Phase::Starting | Phase::Running => self.how_it_goes(run),
        }
    }

    fn how_it_goes(&self, run: &RunStatus) -> String {
        let facts = self.facts;
        if let Some(obstacle) = self.obstacles.first() {
            return obstacle.to_string();
        }
        if let Some(reason) = rejection(facts) {
            return reason.to_owned();
        }
        if let Some(pod) = conditions::held_up(facts).next() {
            return pod;
        }
        if run.restarting.is_some() {
            return restarting(run);
        }
        if facts.due.yielding {
            return run::yielding(facts);
        }
        let waiting = facts.instances.iter().filter(|found| waits(found)).count();
        if waiting > 0 {
            return NOT_READY.repeat(waiting);
        }
        match self.session_end() {
            Some(Time(end)) => format!(
                "{RECONCILED}; the interactive job lasts until {}: kubectl exec -it {} -- bash",
                end.strftime("%Y-%m-%dT%H:%M:%SZ"),
                facts.launcher.name
            ),
            None => RECONCILED.to_owned(),
        }
    }

    /// When the interactive session that runs ends by itself.
    fn session_end(&self) -> Option<Time> {
        let seconds = self.job.launcher.as_ref()?.session?;
        let since = self.facts.launcher_since?;
        let end = since.checked_add(jiff::SignedDuration::from_secs(i64::from(seconds)));
        end.ok().map(Time)
    }
}

fn restarting(run: &RunStatus) -> String {
    let why = run.restarting.as_deref().unwrap_or_default();
    match &run.not_before {
        Some(Time(at)) => format!(
            "restarting, not before {}: {why}",
            at.strftime("%Y-%m-%dT%H:%M:%SZ")
        ),
        None => format!("restarting: {why}"),
    }
}

/// No Pod exists, and no controller can ever make the partition.
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

/// Instances that have a Pod and have not ended.
fn current(facts: &Facts) -> usize {
    facts.all().filter(|instance| instance.live()).count()
}

/// Whether an instance has to wait for its partition.
fn waits(instance: &Instance) -> bool {
    !instance.ended() && !instance.live() && instance.partition.state.usable().is_none()
}

fn every_instance_has_its_partition(facts: &Facts) -> bool {
    !facts.instances.is_empty()
        && facts
            .instances
            .iter()
            .all(|instance| instance.partition.state.held().is_some())
}

fn workers_status(facts: &Facts) -> WorkersStatus {
    let mut counted = WorkersStatus::default();
    for worker in facts.all().flat_map(|instance| &instance.workers) {
        match worker.state {
            PodState::Absent => {}
            PodState::Succeeded(_) => counted.succeeded += 1,
            PodState::Failed(_) | PodState::Lost(_) => counted.failed += 1,
            PodState::Going { .. }
            | PodState::Stale
            | PodState::Pending(_)
            | PodState::Running { .. } => counted.active += 1,
        }
    }
    counted
}

/// Nothing is written as long as there were none.
fn automatic_resets(facts: &Facts) -> Option<i64> {
    let resets: i64 = facts
        .all()
        .map(|instance| i64::from(instance.automatic_resets))
        .sum();
    (resets > 0).then_some(resets)
}

/// Selects the first worker of each instance and never the launcher: a HorizontalPodAutoscaler
/// counts the Pods that it selects as replicas.
fn selector(job: &ValidJob) -> String {
    format!(
        "{}={},{}=worker,{}=0",
        names::JOB_UID_LABEL,
        job.uid,
        names::ROLE_LABEL,
        names::GCD_LABEL
    )
}

/// The rules of admission bound the number of instances far below this.
fn count(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}
