//! Pure: reads the parts of a Pod and of its status.

use k8s_openapi::api::core::v1::{Container, ContainerStatus, PodCondition, PodStatus};

/// All containers of the Pod, in the order in which they start.
pub(super) fn containers(status: &PodStatus) -> impl Iterator<Item = &ContainerStatus> {
    status
        .init_container_statuses
        .iter()
        .flatten()
        .chain(status.container_statuses.iter().flatten())
}

/// Returns the reason and the message of a condition. `None` if it has no reason.
pub(super) fn condition_reason(condition: &PodCondition) -> Option<String> {
    let reason = condition.reason.as_deref()?;
    Some(joined(reason, condition.message.as_deref()))
}

/// Joins a reason and a message of Kubernetes.
pub(super) fn joined(reason: &str, message: Option<&str>) -> String {
    match message {
        Some(message) => format!("{reason}: {message}"),
        None => reason.to_owned(),
    }
}

/// Whether an init container is a sidecar: it runs beside the containers of its Pod.
pub(crate) fn is_sidecar(init_container: &Container) -> bool {
    init_container.restart_policy.as_deref() == Some("Always")
}
