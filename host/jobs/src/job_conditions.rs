//! Pure: the conditions of an IPUJob, and the end that they record.

use ipu_api::ipujob_status::IPUJobStatus;
use serde::Serialize;

/// Condition of Graphcore's operator: the job waits for partitions or Pods.
pub const PENDING: &str = "Pending";
/// Condition of Graphcore's operator: the job runs.
pub const RUNNING: &str = "Running";
/// Condition of Graphcore's operator: the job has succeeded.
pub const SUCCEEDED: &str = "Succeeded";
/// Condition of Graphcore's operator: the job has failed, or is invalid.
pub const FAILED: &str = "Failed";
/// Condition of Graphcore's operator: the job is restarting, with the reason.
pub const RESTARTING: &str = "Restarting";
/// Condition: the job is suspended (`spec.suspend`), as in a Kubernetes Job.
pub const SUSPENDED: &str = "Suspended";
/// Condition, for tools that read kstatus: the job runs or has completed.
pub const READY: &str = "Ready";
/// Condition, for tools that read kstatus: the job has failed, and does not continue by itself.
pub const STALLED: &str = "Stalled";
/// Reason of a job that exceeded its deadline, as in a Kubernetes Job.
pub const DEADLINE_EXCEEDED: &str = "DeadlineExceeded";
/// Condition: every instance has its partition. Otherwise the message has the reasons of each
/// controller.
pub const PARTITIONS_READY: &str = "PartitionsReady";
/// Condition: every desired Pod exists and runs. It is set only if that is false.
pub const PODS_READY: &str = "PodsReady";
/// Reason of `PodsReady` when a worker has failed while others run.
pub const WORKER_FAILED: &str = "WorkerFailed";
/// Reason of `PodsReady` when a container beside a running main container waits.
pub const CONTAINERS_WAITING: &str = "ContainersWaiting";
/// Reason of `PodsReady` when Pods of an admitted job have not started yet, and nothing is known to
/// prevent it.
pub const PODS_STARTING: &str = "PodsStarting";
/// Condition: every worker was created from the current template. It is set only if that is false.
pub const TEMPLATE_CURRENT: &str = "TemplateCurrent";
/// Condition of a finished job: its partitions are released. Otherwise the message has the reasons.
pub const PARTITIONS_RELEASED: &str = "PartitionsReleased";

/// An end of the job that its status records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Recorded {
    /// The job succeeded.
    Completed,
    /// The job failed.
    Failed,
}

/// Returns the end that a status records. Only an end has a completion time: an invalid job has
/// none, and continues when it is corrected.
pub fn recorded_end(status: &IPUJobStatus) -> Option<Recorded> {
    status.completion_time.as_ref()?;
    if is_condition_true(status, SUCCEEDED) {
        Some(Recorded::Completed)
    } else if is_condition_true(status, FAILED) {
        Some(Recorded::Failed)
    } else {
        None
    }
}

/// Whether a status has this condition with the status `True`.
pub fn is_condition_true(status: &IPUJobStatus, type_: &str) -> bool {
    let mut conditions = status.conditions.iter();
    conditions.any(|condition| condition.type_ == type_ && condition.status == "True")
}
