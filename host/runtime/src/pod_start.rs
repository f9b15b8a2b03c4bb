//! Pure: why a Pod has not started, and whether that is a failure of its start.
//!
//! A container that waits without a reason of its own has its image pulled or its volumes mounted,
//! which takes as long as it takes. What only events show of that is in [`node_report`].
//!
//! Only init containers and the main container do anything for the program. Native sidecars,
//! injected proxies and log shippers run beside it: whether they run or wait does not decide
//! anything.

pub mod node_report;

use std::fmt;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStatus, Pod, PodCondition, PodStatus,
};
use serde::Serialize;

/// Reasons that every container has for a moment, also while its image is pulled.
const STARTING: [&str; 2] = ["ContainerCreating", "PodInitializing"];

/// Reasons of a container whose image could not be pulled. The kubelet reports them until a pull
/// succeeds, also while it pulls the image again.
const PULL_FAILED: [&str; 2] = ["ErrImagePull", "ImagePullBackOff"];

/// The start of a Pod that has not ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum StartState {
    /// Nothing is known to stand in its way.
    #[default]
    Unhindered,
    /// One of its init containers runs. They may take hours.
    Initializing,
    /// Its main container runs or has ended.
    Started,
    /// Kubernetes reports a failure: no node, Secret or ConfigMap for it, for example.
    Blocked,
    /// An image could not be pulled. Only events show whether it is being pulled again.
    Unpulled,
    /// The same, and events show that it is being pulled again.
    PullingAgain,
}

impl StartState {
    /// Whether nothing is known to stand in the way.
    pub fn is_unhindered(&self) -> bool {
        *self == Self::Unhindered
    }

    /// Whether Kubernetes reports that the Pod cannot start.
    pub fn is_blocked(self) -> bool {
        matches!(self, Self::Blocked | Self::Unpulled)
    }
}

/// The reason of Kubernetes for which a Pod, or one of its containers, has not started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Obstacle {
    /// The container that waits. `None`: the whole Pod waits.
    pub container: Option<String>,
    /// The reason and the message of Kubernetes.
    pub reason: String,
    is_pull: bool,
}

impl fmt::Display for Obstacle {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.container {
            Some(container) => write!(formatter, "container {container}: {}", self.reason),
            None => formatter.write_str(&self.reason),
        }
    }
}

/// Computes the start of a Pod with a main container of this name.
pub fn start_state(pod: &Pod, main: &str) -> StartState {
    let Some(status) = &pod.status else {
        return StartState::Unhindered;
    };
    let mut containers = status.container_statuses.iter().flatten();
    if containers.any(|container| container.name == main && has_started(container)) {
        return StartState::Started;
    }
    let mut init_containers = status.init_container_statuses.iter().flatten();
    if init_containers.any(|container| is_running(container) && !is_of_sidecar(pod, container)) {
        return StartState::Initializing;
    }
    match obstacle(pod) {
        Some(obstacle) if obstacle.is_pull => StartState::Unpulled,
        Some(_) => StartState::Blocked,
        None => StartState::Unhindered,
    }
}

/// Returns the reason for which a pending Pod has not started as a whole. `None`: it is about to
/// start, or has started. A Pod for which the scheduler has chosen a node and evicts others has
/// none.
pub fn obstacle(pod: &Pod) -> Option<Obstacle> {
    let status = pod.status.as_ref()?;
    if status.phase.as_deref().unwrap_or("Pending") != "Pending" {
        return None;
    }
    containers(status)
        .find_map(|container| waiting(pod, container).or_else(|| restarted(pod, container)))
        .or_else(|| unscheduled(pod, status))
}

/// Returns the time since which a node prepares a Pod, if it still does: it mounts volumes and
/// creates the sandbox. The status has no reason if that fails: only events have it. No image is
/// pulled before the sandbox exists.
pub fn preparing_since(pod: &Pod) -> Option<Timestamp> {
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

/// All containers of a Pod, in the order in which they start.
pub fn containers(status: &PodStatus) -> impl Iterator<Item = &ContainerStatus> {
    let init_containers = status.init_container_statuses.iter().flatten();
    init_containers.chain(status.container_statuses.iter().flatten())
}

/// Whether an init container is a sidecar: it runs beside the containers of its Pod.
pub fn is_sidecar(init_container: &Container) -> bool {
    init_container.restart_policy.as_deref() == Some("Always")
}

/// Joins a reason and a message of Kubernetes.
pub fn joined(reason: &str, message: Option<&str>) -> String {
    match message.filter(|message| !message.is_empty()) {
        Some(message) => format!("{reason}: {message}"),
        None => reason.to_owned(),
    }
}

/// Returns the words for an image that is being pulled again after this failure.
pub fn pulled_again(reason: &str) -> String {
    format!("{reason}; the image is being pulled again")
}

/// Returns the reason for which a container waits. One that has run before waits for its next
/// start, by the rules of its Pod: that is no failure of the Pod's start, except for an init
/// container or a sidecar, for which the others wait.
fn waiting(pod: &Pod, container: &ContainerStatus) -> Option<Obstacle> {
    if has_started(container) && init_container(pod, container).is_none() {
        return None;
    }
    let waiting = container.state.as_ref()?.waiting.as_ref()?;
    let reason = waiting.reason.as_deref()?;
    if STARTING.contains(&reason) {
        return None;
    }
    Some(Obstacle {
        container: Some(container.name.clone()),
        reason: joined(reason, waiting.message.as_deref()),
        is_pull: PULL_FAILED.contains(&reason),
    })
}

/// Returns why a sidecar keeps its Pod from starting although it runs: the kubelet has restarted
/// it, because its startup probe failed or it ended by itself. The first run may take as long as
/// its probe allows.
fn restarted(pod: &Pod, container: &ContainerStatus) -> Option<Obstacle> {
    let is_restarted = container.restart_count > 0 && container.started == Some(false);
    if !is_restarted || !is_of_sidecar(pod, container) {
        return None;
    }
    let state = container.state.as_ref()?;
    let name = &container.name;
    let reason = match (&state.running, &state.terminated) {
        (Some(_), _) => format!("container {name} runs, and its startup probe has not succeeded"),
        (None, Some(_)) => format!("container {name} ended before its startup probe succeeded"),
        (None, None) => return None,
    };
    Some(Obstacle {
        container: None,
        reason,
        is_pull: false,
    })
}

/// Returns the reason of the scheduler. That of a gate stays for a moment after the last gate was
/// removed.
fn unscheduled(pod: &Pod, status: &PodStatus) -> Option<Obstacle> {
    let node = status.nominated_node_name.as_deref();
    if node.is_some_and(|node| !node.is_empty()) {
        return None;
    }
    let mut conditions = status.conditions.iter().flatten();
    let is_unscheduled = |condition: &&PodCondition| {
        condition.type_ == "PodScheduled" && condition.status == "False"
    };
    let condition = conditions.find(is_unscheduled)?;
    let reason = condition.reason.as_deref()?;
    let gates = pod.spec.as_ref()?.scheduling_gates.as_ref();
    let is_gated = gates.is_some_and(|gates| !gates.is_empty());
    (reason != "SchedulingGated" || is_gated).then(|| Obstacle {
        container: None,
        reason: joined(reason, condition.message.as_deref()),
        is_pull: false,
    })
}

fn is_of_sidecar(pod: &Pod, status: &ContainerStatus) -> bool {
    init_container(pod, status).is_some_and(is_sidecar)
}

fn init_container<'a>(pod: &'a Pod, status: &ContainerStatus) -> Option<&'a Container> {
    let init_containers = pod.spec.iter().flat_map(|spec| &spec.init_containers);
    let mut init_containers = init_containers.flatten();
    init_containers.find(|container| container.name == status.name)
}

/// Whether a container runs.
pub fn is_running(container: &ContainerStatus) -> bool {
    let state = container.state.as_ref();
    state.is_some_and(|state| state.running.is_some())
}

/// Whether a container runs, or has run before.
pub fn has_started(container: &ContainerStatus) -> bool {
    let has = |state: &ContainerState| state.running.is_some() || state.terminated.is_some();
    container.state.iter().chain(&container.last_state).any(has)
}

#[cfg(test)]
mod tests;
