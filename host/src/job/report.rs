//! Pure: the status of a job, from where it stands and from what became of the last writes.

pub mod conditions;
pub mod events;
pub mod refused;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Serialize;
use serde_json::{Value, json};

use self::conditions::Conditions;
use super::facts::partition::PartitionState;
use super::facts::pod::PodState;
use super::facts::{Facts, Instance, Recorded};
use super::phase::{Outcome, Phase};
use super::validate::ValidJob;
use crate::api::ipujob_status::{IPUJobStatus, JobState, WorkersStatus};
use crate::names;

/// Condition of the contract: the job waits for partitions or Pods.
pub const PENDING: &str = "Pending";
/// Condition of the contract: the job runs.
pub const RUNNING: &str = "Running";
/// Condition of the contract: the job has ended well.
pub const SUCCEEDED: &str = "Succeeded";
/// Condition of the contract: the job has ended badly, or cannot be carried out.
pub const FAILED: &str = "Failed";
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

/// Something that could not be written, though the request reached the API server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Obstacle {
    /// An object of the name exists and belongs to somebody else.
    Stranger {
        /// Kind and name of the object, such as `Pod mnist-worker-0`.
        object: String,
        /// Whose it is, as far as it says.
        owner: String,
    },
    /// An object of the name exists, is ours or an earlier job's, and is being deleted.
    Leaving {
        /// Kind and name of the object.
        object: String,
    },
    /// The API server refused the object.
    Refused {
        /// Kind and name of the object.
        object: String,
        /// What the API server said.
        reason: String,
    },
}

impl std::fmt::Display for Obstacle {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Stranger { object, owner } => write!(
                formatter,
                "{object} exists and belongs to {owner}; delete it, or give the job another name"
            ),
            Self::Leaving { object } => {
                write!(formatter, "waiting for an earlier {object} to be gone")
            }
            Self::Refused { object, reason } => {
                write!(formatter, "the API server refused {object}: {reason}")
            }
        }
    }
}

/// The status that the job has now. Times of what did not change stay as they were.
pub fn status(
    job: &ValidJob,
    facts: &Facts,
    phase: &Phase,
    obstacles: &[Obstacle],
    old: &IPUJobStatus,
    now: Timestamp,
) -> IPUJobStatus {
    let ended = matches!(phase, Phase::Ended(_) | Phase::Finished(_));
    let state = state(job, facts, phase);
    let mut conditions = Conditions::new(&old.conditions, now);
    conditions.describe(job, facts, phase, state, obstacles);
    IPUJobStatus {
        launcher_status: state,
        current_replicas: Some(if ended { 0 } else { count(current(facts)) }),
        desired_replicas: count(job.instances as usize),
        last_message: last_message(facts, phase, obstacles, old),
        ipu_partition_created: Some(every_instance_has_its_partition(facts)),
        restart_count: old.restart_count.or(Some(0)),
        start_time: old.start_time.clone().or(Some(Time(now))),
        completion_time: old
            .completion_time
            .clone()
            .or_else(|| ended.then_some(Time(now))),
        last_reconcile_time: old.last_reconcile_time.clone(),
        workers_status: Some(workers_status(facts)),
        selector: Some(selector(job)),
        observed_generation: job.generation,
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

/// The merge patch that brings the status of `object` to `new`, as long as nobody else has written
/// the object since.
///
/// # Panics
/// Never: a status is plain data.
pub fn patch(object: &Value, new: &IPUJobStatus) -> Value {
    let mut status = serde_json::to_value(new).expect("a status is plain data");
    let old = object.get("status").and_then(Value::as_object);
    if let (Some(old), Some(status)) = (old, status.as_object_mut()) {
        for gone in old.keys() {
            status.entry(gone.clone()).or_insert(Value::Null);
        }
    }
    json!({
        "metadata": {"resourceVersion": object.pointer("/metadata/resourceVersion")},
        "status": status,
    })
}

/// The end that a status records. Only an end has a completion time; a job that could not be
/// carried out has none, and goes on once it is corrected.
pub fn recorded(status: &IPUJobStatus) -> Option<Recorded> {
    status.completion_time.as_ref()?;
    let has = |wanted: &str| {
        status
            .conditions
            .iter()
            .any(|condition| condition.type_ == wanted && condition.status == "True")
    };
    if has(SUCCEEDED) {
        Some(Recorded::Completed)
    } else if has(FAILED) {
        Some(Recorded::Failed)
    } else {
        None
    }
}

fn state(job: &ValidJob, facts: &Facts, phase: &Phase) -> JobState {
    match phase {
        Phase::Ended(Outcome::Completed) | Phase::Finished(Recorded::Completed) => {
            JobState::Completed
        }
        Phase::Ended(Outcome::Failed(_)) | Phase::Finished(Recorded::Failed) => JobState::Failed,
        Phase::Running => JobState::Running,
        Phase::Waiting if can_never_start(facts) => JobState::Failed,
        // As users know it: `Running 2 2` while a worker is ContainerCreating.
        Phase::Starting if job.launcher.is_none() && facts.ran => JobState::Running,
        Phase::Waiting | Phase::Starting => JobState::Pending,
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
    let all = facts.instances.iter().chain(&facts.surplus);
    all.filter(|instance| instance.live()).count()
}

fn last_message(
    facts: &Facts,
    phase: &Phase,
    obstacles: &[Obstacle],
    old: &IPUJobStatus,
) -> String {
    match phase {
        Phase::Finished(_) => old.last_message.clone(),
        Phase::Ended(Outcome::Completed) => ALL_DONE.to_owned(),
        Phase::Ended(Outcome::Failed(how)) => how.clone(),
        Phase::Waiting | Phase::Starting | Phase::Running => {
            if let Some(obstacle) = obstacles.first() {
                return obstacle.to_string();
            }
            if let Some(reason) = rejection(facts) {
                return reason.to_owned();
            }
            let waiting = facts.instances.iter().filter(|found| waits(found)).count();
            if waiting == 0 {
                RECONCILED.to_owned()
            } else {
                NOT_READY.repeat(waiting)
            }
        }
    }
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
    let instances = facts.instances.iter().chain(&facts.surplus);
    for worker in instances.flat_map(|instance| &instance.workers) {
        match worker.state {
            PodState::Absent => {}
            PodState::Succeeded(_) => counted.succeeded += 1,
            PodState::Failed(_) => counted.failed += 1,
            PodState::Going { .. }
            | PodState::Stale
            | PodState::Pending(_)
            | PodState::Running { .. } => counted.active += 1,
        }
    }
    counted
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

/// A job has at most `validate::MAX_WORKERS` instances.
fn count(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}
