//! Pure: whether Kubernetes itself ended a Pod, and in which words it says so.

use k8s_openapi::api::core::v1::{PodCondition, PodStatus};

/// What Kubernetes says of its own act, in the condition that the scheduler, the eviction API, the
/// taint manager and the kubelet set before they end a Pod.
pub fn told(status: &PodStatus) -> Option<String> {
    let condition = condition(status)?;
    let reason = condition.reason.as_deref()?;
    Some(super::pod::joined(reason, condition.message.as_deref()))
}

/// The condition that names a disruption.
pub fn condition(status: &PodStatus) -> Option<&PodCondition> {
    let mut conditions = status.conditions.iter().flatten();
    conditions.find(|condition| condition.type_ == "DisruptionTarget" && condition.status == "True")
}

/// Whether a Pod that has failed ended through no fault of its own. `started` says whether any
/// container of it has.
///
/// The kubelet also calls it an eviction where a Pod uses more ephemeral storage than its own limits
/// allow. Then there is no condition, and a Pod that is made again would do the same.
pub fn is_disrupted(status: &PodStatus, started: bool) -> bool {
    let reason = status.reason.as_deref().unwrap_or_default();
    let refused_by_the_node = matches!(
        reason,
        "NodeLost"
            | "NodeShutdown"
            | "Shutdown"
            | "Terminated"
            | "Preempting"
            | "NodeAffinity"
            | "NodePorts"
            | "UnexpectedAdmissionError"
    ) || reason.starts_with("Outof")
        || (reason == "Evicted" && !started);
    refused_by_the_node || condition(status).is_some()
}
