//! Pure: why a Pod has not started, and whether that is a failure of its start.
//!
//! A container that waits without a reason of its own has its image pulled or its volumes mounted, which takes as long as
//! it takes.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodCondition, PodStatus};
use serde::Serialize;

use super::containers::{condition_reason, containers, is_sidecar, joined};

/// The start of a Pod that is pending.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum StartState {
    /// Nothing is known to stand in its way.
    #[default]
    Unhindered,
    /// One of its containers runs or has run. Init containers may take hours.
    Begun,
    /// Kubernetes reports a failure: no node, image, Secret or ConfigMap for it, for example.
    Blocked,
}

impl StartState {
    /// Whether nothing is known to stand in the way.
    pub fn is_unhindered(&self) -> bool {
        *self == Self::Unhindered
    }
}

/// Computes the start of a pending Pod.
pub fn start_state(pod: &Pod) -> StartState {
    let Some(status) = &pod.status else {
        return StartState::Unhindered;
    };
    let mut programs = containers(status).filter(|container| !is_of_sidecar(pod, container));
    if programs.any(is_running) {
        StartState::Begun
    } else if pending_reason(status).is_some() {
        StartState::Blocked
    } else {
        StartState::Unhindered
    }
}

/// Returns the time since which the volumes of a Pod have been mounted on its node, if they still are. Its status has no
/// reason if that fails: only events have it. No image is pulled before the sandbox of the Pod exists.
pub(super) fn mounting_since(pod: &Pod) -> Option<Timestamp> {
    let status = pod.status.as_ref()?;
    let is_pending = status.phase.as_deref() == Some("Pending");
    if !is_pending || pod.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let mut conditions = status.conditions.iter().flatten();
    let has_no_sandbox = conditions.clone().any(|condition| {
        condition.type_ == "PodReadyToStartContainers" && condition.status == "False"
    });
    let scheduled = conditions
        .find(|condition| condition.type_ == "PodScheduled" && condition.status == "True")?;
    let since = scheduled.last_transition_time.as_ref()?.0;
    has_no_sandbox.then_some(since)
}

/// Returns the reason of Kubernetes for which a Pod has not started. `None` if it is about to start.
pub(super) fn pending_reason(status: &PodStatus) -> Option<String> {
    let waiting = containers(status).find_map(|container| {
        let waiting = container.state.as_ref()?.waiting.as_ref()?;
        let reason = waiting.reason.as_deref()?;
        // Every Pod has these two reasons for a moment.
        if matches!(reason, "ContainerCreating" | "PodInitializing") {
            return None;
        }
        Some(joined(reason, waiting.message.as_deref()))
    });
    waiting.or_else(|| {
        let is_unscheduled = |condition: &&PodCondition| {
            condition.type_ == "PodScheduled" && condition.status == "False"
        };
        let mut conditions = status.conditions.iter().flatten();
        conditions.find(is_unscheduled).and_then(condition_reason)
    })
}

/// Whether a container is a native sidecar, which does nothing for the program alone.
fn is_of_sidecar(pod: &Pod, status: &ContainerStatus) -> bool {
    let init_containers = pod.spec.iter().flat_map(|spec| &spec.init_containers);
    let mut sidecars = init_containers
        .flatten()
        .filter(|container| is_sidecar(container));
    sidecars.any(|container| container.name == status.name)
}

fn is_running(container: &ContainerStatus) -> bool {
    let state = container.state.as_ref();
    state.is_some_and(|state| state.running.is_some())
}
