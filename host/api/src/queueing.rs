//! Names of Kueue, and whether an IPUJob waits in one of its queues.
//!
//! The names are those of Kueue 0.19 (`pkg/controller/constants` and `apis/kueue/v1beta2`).

use serde_json::Value;

use crate::ipujob::is_managed_by_another;

/// API group of Kueue.
pub const GROUP: &str = "kueue.x-k8s.io";

/// Version of Kueue's API that the operator uses.
pub const VERSION: &str = "v1beta2";

/// Label of a job: the LocalQueue that the job waits in.
pub const QUEUE_LABEL: &str = "kueue.x-k8s.io/queue-name";

/// Label of a job: its WorkloadPriorityClass.
pub const PRIORITY_CLASS_LABEL: &str = "kueue.x-k8s.io/priority-class";

/// Label or annotation of a job: the Workload that exists already, made by MultiKueue or by a user.
pub const PREBUILT_WORKLOAD: &str = "kueue.x-k8s.io/prebuilt-workload-name";

/// Label of a job: seconds after its admission at which Kueue deactivates its Workload.
pub const MAX_EXECUTION_TIME_LABEL: &str = "kueue.x-k8s.io/max-exec-time-seconds";

/// Annotation of a job and of its Workload: controllers without which Kueue does not admit it.
pub const ADMISSION_GATED_BY_ANNOTATION: &str = "kueue.x-k8s.io/admission-gated-by";

/// Label of a Workload: the UID of its job.
pub const WORKLOAD_JOB_UID_LABEL: &str = "kueue.x-k8s.io/job-uid";

/// Finalizer of a Workload: held until no Pod and no partition of its job uses the quota.
pub const RESOURCE_IN_USE_FINALIZER: &str = "kueue.x-k8s.io/resource-in-use";

/// Label of a Pod: the pod set of the Workload that it belongs to.
pub const POD_SET_LABEL: &str = "kueue.x-k8s.io/podset";

/// Value of `spec.managedBy` of a job that MultiKueue runs on another cluster.
pub const MULTIKUEUE: &str = "kueue.x-k8s.io/multikueue";

/// `spec.controllerName` of an AdmissionCheck that waits for partitions.
pub const PARTITION_CHECK_CONTROLLER: &str = "graphcore.ai/partition";

/// Reason of the condition `QuotaReserved` of an IPUJob that was started before it was in a queue.
/// It waits for no quota.
pub const STARTED_OUTSIDE_QUEUE: &str = "StartedOutsideQueue";

/// Name of the pod set of the workers.
pub const WORKERS: &str = "worker";

/// Name of the pod set of the launcher.
pub const LAUNCHER: &str = "launcher";

/// Whether Kueue decides when a job starts. A job that another controller than MultiKueue manages
/// is not the operator's.
pub fn is_queued(job: &Value) -> bool {
    let queue = job
        .get("metadata")
        .and_then(|metadata| metadata.get("labels"))
        .and_then(|labels| labels.get(QUEUE_LABEL))
        .and_then(Value::as_str);
    let manager = job.pointer("/spec/managedBy").and_then(Value::as_str);
    queue.is_some_and(|queue| !queue.is_empty())
        && (!is_managed_by_another(job) || manager == Some(MULTIKUEUE))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_job_with_a_queue_is_queued_unless_another_controller_manages_it() {
        let job = |queue: Value, manager: Value| {
            json!({
                "metadata": {"labels": {QUEUE_LABEL: queue}},
                "spec": {"managedBy": manager},
            })
        };
        for (queue, manager, expected) in [
            (json!("team"), Value::Null, true),
            (json!("team"), json!("graphcore.ai/ipu-operator"), true),
            (json!("team"), json!(MULTIKUEUE), true),
            (json!("team"), json!("example.com/other"), false),
            (json!(""), Value::Null, false),
            (json!(5), Value::Null, false),
        ] {
            assert_eq!(
                is_queued(&job(queue, manager.clone())),
                expected,
                "{manager}"
            );
        }
        assert!(!is_queued(&json!({})));
    }
}
