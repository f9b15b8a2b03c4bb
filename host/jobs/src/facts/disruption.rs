//! Pure: distinguishes the disruption and the rejection of a Pod by Kubernetes from the failure of
//! its program.

use ipu_runtime::pod_start::joined;
use k8s_openapi::api::core::v1::{PodCondition, PodStatus};

/// Returns the condition `DisruptionTarget`, which the scheduler, the eviction API, the taint
/// manager and the kubelet set before they terminate a Pod.
pub fn condition(status: &PodStatus) -> Option<&PodCondition> {
    let mut conditions = status.conditions.iter().flatten();
    conditions.find(|condition| condition.type_ == "DisruptionTarget" && condition.status == "True")
}

/// Returns the reason and the message of that condition. `None` if it has no reason.
pub fn reason(status: &PodStatus) -> Option<String> {
    let condition = condition(status)?;
    let reason = condition.reason.as_deref()?;
    Some(joined(reason, condition.message.as_deref()))
}

/// Whether the node of a failed Pod rejected it. `started` means that one of its containers has
/// started.
///
/// The kubelet's reasons are no closed list: device plugins, policies for topology and admission
/// handlers of later versions have their own. The deadline of the Pod itself
/// (`activeDeadlineSeconds`) is the user's, and would pass again.
pub fn is_rejected(status: &PodStatus, started: bool) -> bool {
    let reason = status.reason.as_deref().unwrap_or_default();
    !started && !matches!(reason, "" | "DeadlineExceeded")
}

/// Whether a disruption ended a failed Pod whose containers have started, and not its program.
///
/// The kubelet also evicts a Pod that exceeds its own limits of ephemeral storage. Then there is no
/// condition, and a recreated Pod would exceed them again. A kubelet that restarts admits its Pods
/// again, and may reject them then.
pub fn is_disrupted(status: &PodStatus) -> bool {
    let reason = status.reason.as_deref().unwrap_or_default();
    let node_ended_it = matches!(
        reason,
        "NodeLost"
            | "NodeShutdown"
            | "Shutdown"
            | "Terminated"
            | "Preempting"
            | "NodeAffinity"
            | "NodePorts"
            | "UnexpectedAdmissionError"
            | "TopologyAffinityError"
            | "SMTAlignmentError"
            | "InvalidNodeInfo"
            | "PodOSNotSupported"
            | "PodOSSelectorNodeLabelDoesNotMatch"
    ) || reason.starts_with("OutOf");
    node_ended_it || condition(status).is_some()
}
