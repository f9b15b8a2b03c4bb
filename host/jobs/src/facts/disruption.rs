//! Pure: detects that Kubernetes disrupted a Pod.

use k8s_openapi::api::core::v1::{PodCondition, PodStatus};

/// Returns the condition `DisruptionTarget`, which the scheduler, the eviction API, the taint manager and the kubelet
/// set before they terminate a Pod.
pub fn condition(status: &PodStatus) -> Option<&PodCondition> {
    let mut conditions = status.conditions.iter().flatten();
    conditions.find(|condition| condition.type_ == "DisruptionTarget" && condition.status == "True")
}

/// Whether a disruption ended a failed Pod, and not its program. `started` means that one of its containers has started.
///
/// The kubelet also evicts a Pod that exceeds its own limits of ephemeral storage. Then there is no condition, and a
/// recreated Pod would exceed them again.
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
