//! Pure: the state of a Pod, as its job sees it.

use ipu_api::labels;
use ipu_runtime::pod_start::{containers, has_started, is_running, obstacle};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStateTerminated, ContainerStatus, Pod, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;

use super::disruption;

/// The state of a Pod, as its job sees it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum PodState {
    /// It does not exist.
    Absent,
    /// It is being deleted.
    Terminating {
        /// Time of the request for the deletion.
        requested: Option<Timestamp>,
        /// Whether its containers had started.
        started: bool,
        /// The reason of Kubernetes, if no user deleted it.
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// It belongs to an earlier run, or uses an earlier partition.
    Stale,
    /// It was disrupted, and its program did not fail: its node was lost, drained or full, for
    /// example.
    Lost(Box<Failure>),
    /// Its node rejected it before one of its containers started, for lack of a resource, for
    /// example.
    Rejected(Box<Failure>),
    /// Its containers have not started, for this reason if it is known.
    Pending(Option<String>),
    /// Its main container runs.
    Running {
        /// Whether it is Ready.
        ready: bool,
        /// Whether its main container is, whatever its other containers and its readiness gates
        /// say.
        main_ready: bool,
    },
    /// It ended with exit code 0, at this time.
    Succeeded(Option<Timestamp>),
    /// It failed.
    Failed(Box<Failure>),
}

/// Failure of a Pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Failure {
    /// Name of the Pod.
    pub pod: String,
    /// The failed container. `None` if the whole Pod failed, for example because it was evicted.
    pub container: Option<String>,
    /// Its exit code.
    pub exit_code: Option<i32>,
    /// The reason, such as `OOMKilled` or `Evicted`.
    pub reason: String,
    /// The message of Kubernetes.
    pub message: Option<String>,
    /// Time of its end.
    pub at: Option<Timestamp>,
    /// Whether its main container had started.
    pub started: bool,
}

impl PodState {
    /// Whether its program has ended.
    pub fn ended(&self) -> bool {
        matches!(self, Self::Succeeded(_) | Self::Failed(_))
    }

    /// Whether its containers have started.
    pub fn started(&self) -> bool {
        match self {
            Self::Running { .. } | Self::Succeeded(_) | Self::Failed(_) => true,
            Self::Terminating { started, .. } => *started,
            Self::Lost(failure) => failure.started,
            Self::Absent | Self::Stale | Self::Rejected(_) | Self::Pending(_) => false,
        }
    }

    /// Whether it must be created or recreated.
    pub fn missing(&self) -> bool {
        match self {
            Self::Absent
            | Self::Terminating { .. }
            | Self::Stale
            | Self::Lost(_)
            | Self::Rejected(_) => true,
            Self::Pending(_) | Self::Running { .. } | Self::Succeeded(_) | Self::Failed(_) => false,
        }
    }

    /// Whether it runs and is Ready.
    pub fn ready(&self) -> bool {
        matches!(self, Self::Running { ready: true, .. })
    }

    /// Whether processes can be started in its main container.
    pub fn main_ready(&self) -> bool {
        matches!(
            self,
            Self::Running {
                main_ready: true,
                ..
            }
        )
    }

    /// Returns its failure, if it failed.
    pub fn failure(&self) -> Option<&Failure> {
        match self {
            Self::Failed(failure) => Some(failure),
            _ => None,
        }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Pod {}", self.pod)?;
        if let Some(container) = &self.container {
            write!(formatter, ", container {container}")?;
        }
        if let Some(code) = self.exit_code {
            write!(formatter, ": exit code {code}")?;
        }
        write!(formatter, " ({})", self.reason)?;
        match &self.message {
            Some(message) => write!(formatter, ": {message}"),
            None => Ok(()),
        }
    }
}

/// Computes the state of a Pod in its own run, with its own partition.
///
/// A Pod ends with its main container: a running sidecar does not prevent the completion of a job.
pub fn state(pod: &Pod) -> PodState {
    let nothing = PodStatus::default();
    let status = pod.status.as_ref().unwrap_or(&nothing);
    let phase = status.phase.as_deref().unwrap_or("Pending");
    let main = main_container(pod, status);
    let end = main.and_then(terminated);
    let at = match end {
        Some(end) => finished_at(end),
        None => ended_at(status),
    };
    let has_ended = end.is_some() || matches!(phase, "Succeeded" | "Failed");
    if let Some(requested) = deletion_requested(&pod.metadata)
// A program that ends after the deletion was requested did not end by itself, regardless of its
// exit code.
        && !(has_ended && at.is_some_and(|at| at < requested) && !has_no_grace_left(pod))
    {
        return PodState::Terminating {
            requested: Some(at.map_or(requested, |at| at.min(requested))),
            started: phase == "Running" || main.is_some_and(has_started),
            reason: disruption::reason(status),
        };
    }
    if has_ended {
        return ended(pod, status, at);
    }
    // The phase is `Pending` until all containers have started. The others do not matter to the
    // program.
    if phase == "Running" || main.is_some_and(is_running) {
        let ready = is_ready(status);
        return PodState::Running {
            ready,
            main_ready: ready || main.is_some_and(|main| is_running(main) && main.ready),
        };
    }
    PodState::Pending(obstacle(pod).map(|obstacle| obstacle.reason))
}

/// Returns the container that waits while the main container of its Pod runs, with the reason.
pub fn waiting_container(pod: &Pod) -> Option<String> {
    let main = main_container(pod, pod.status.as_ref()?)?;
    is_running(main)
        .then(|| obstacle(pod))
        .flatten()
        .map(|obstacle| obstacle.to_string())
}

/// Returns the time at which the deletion of an object was requested.
fn deletion_requested(metadata: &ObjectMeta) -> Option<Timestamp> {
    let due = metadata.deletion_timestamp.as_ref()?.0;
    let grace = metadata.deletion_grace_period_seconds.unwrap_or(0);
    let requested = due.checked_sub(jiff::SignedDuration::from_secs(grace));
    Some(requested.unwrap_or(due))
}

/// Whether a Pod is deleted with a grace period of 0. The kubelet requests that when the containers
/// of a deleted Pod have ended. This overwrites the time of the first request, which was any time
/// before the program's end.
fn has_no_grace_left(pod: &Pod) -> bool {
    let metadata = &pod.metadata;
    metadata.deletion_timestamp.is_some()
        && metadata.deletion_grace_period_seconds.unwrap_or(0) == 0
}

/// Maximum number of finalizers that a message names. A user can give a Pod any number.
const FINALIZERS_MAX: usize = 4;

/// Returns the finalizers that keep a deleted Pod whose containers have ended.
pub fn holding_finalizers(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref();
    let phase = status.and_then(|status| status.phase.as_deref());
    let has_ended = matches!(phase, Some("Succeeded" | "Failed")) || has_no_grace_left(pod);
    let finalizers = pod.metadata.finalizers.as_ref();
    let finalizers = finalizers.filter(|all| has_ended && !all.is_empty());
    finalizers.map(|all| match all.split_at_checked(FINALIZERS_MAX) {
        Some((named, others)) if !others.is_empty() => {
            format!("{} and {} more", named.join(", "), others.len())
        }
        _ => all.join(", "),
    })
}

/// The sidecars of a Pod whose main container has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum SidecarState {
    /// The main container has not ended, or the whole Pod has.
    #[default]
    None,
    /// The kubelet terminates the native sidecars, and has not reported their end.
    Terminating,
    /// Other containers run, and only the operator terminates them.
    Running,
}

/// Computes the state of a Pod's sidecars. The phase is `Pending` as long as one of them has not
/// started.
pub fn sidecars(pod: &Pod) -> SidecarState {
    let Some(status) = &pod.status else {
        return SidecarState::None;
    };
    let main = main_container(pod, status).filter(|main| terminated(main).is_some());
    let (Some("Pending" | "Running"), Some(main)) = (status.phase.as_deref(), main) else {
        return SidecarState::None;
    };
    let mut others = status.container_statuses.iter().flatten();
    if others.any(|other| other.name != main.name && terminated(other).is_none()) {
        SidecarState::Running
    } else {
        SidecarState::Terminating
    }
}

/// Returns the start time of a Pod's main container, if it runs.
pub fn running_since(pod: &Pod) -> Option<Timestamp> {
    let main = main_container(pod, pod.status.as_ref()?)?;
    let running = main.state.as_ref()?.running.as_ref()?;
    running.started_at.as_ref().map(|time| time.0)
}

fn ended(pod: &Pod, status: &PodStatus, at: Option<Timestamp>) -> PodState {
    let main = main_container(pod, status).and_then(terminated);
    let succeeded = match main {
        Some(end) => end.exit_code == 0,
        None => status.phase.as_deref() == Some("Succeeded"),
    };
    if succeeded {
        return PodState::Succeeded(at);
    }
    let failure = Box::new(failure(pod, status, at));
    let started = containers(status).any(has_started);
    if disruption::is_rejected(status, started) {
        PodState::Rejected(failure)
    } else if disruption::is_disrupted(status) {
        PodState::Lost(failure)
    } else {
        PodState::Failed(failure)
    }
}

/// Returns the name of the main container, whose end is the Pod's end.
pub fn main_name(pod: &Pod) -> Option<&str> {
    let annotations = pod.metadata.annotations.as_ref();
    let name = annotations.and_then(|all| all.get(labels::MAIN_CONTAINER_ANNOTATION));
    name.or_else(|| Some(&pod.spec.as_ref()?.containers.first()?.name))
        .map(String::as_str)
}

/// Returns the main container, whose end is the Pod's end. `None` before the kubelet reports it.
pub(super) fn main_container<'a>(
    pod: &'a Pod,
    status: &'a PodStatus,
) -> Option<&'a ContainerStatus> {
    let name = main_name(pod)?;
    status
        .container_statuses
        .iter()
        .flatten()
        .find(|container| container.name == name)
}

/// Returns the time at which a container ended. A runtime that does not know the time reports 1970.
pub(super) fn finished_at(end: &ContainerStateTerminated) -> Option<Timestamp> {
    let at = end.finished_at.as_ref()?.0;
    (at > Timestamp::UNIX_EPOCH).then_some(at)
}

fn is_ready(status: &PodStatus) -> bool {
    status
        .conditions
        .iter()
        .flatten()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

pub(super) fn terminated(container: &ContainerStatus) -> Option<&ContainerStateTerminated> {
    container.state.as_ref()?.terminated.as_ref()
}

fn ended_at(status: &PodStatus) -> Option<Timestamp> {
    containers(status)
        .filter_map(terminated)
        .filter_map(finished_at)
        .max()
}

fn failure(pod: &Pod, status: &PodStatus, at: Option<Timestamp>) -> Failure {
    let main = main_container(pod, status);
    let failed = main
        .into_iter()
        .chain(containers(status))
        .filter_map(|container| Some((container, terminated(container)?)))
        .find(|(_, end)| end.exit_code != 0);
    let disruption = disruption::condition(status);
    let reason = status
        .reason
        .clone()
        .or_else(|| disruption?.reason.clone())
        .or_else(|| failed.and_then(|(_, end)| end.reason.clone()))
        .unwrap_or_else(|| "Error".to_owned());
    Failure {
        pod: pod.metadata.name.clone().unwrap_or_default(),
        container: failed.map(|(container, _)| container.name.clone()),
        exit_code: failed.map(|(_, end)| end.exit_code),
        reason,
        message: status
            .message
            .clone()
            .or_else(|| disruption?.message.clone())
            .or_else(|| failed.and_then(|(_, end)| end.message.clone()))
            .map(|message| message.trim().to_owned())
            .filter(|message| !message.is_empty()),
        at,
        started: main.is_some_and(has_started),
    }
}

/// Whether no kubelet has seen a Pod in this last state.
pub fn has_not_run(pod: &Pod) -> bool {
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref());
    node.is_none() && !has_started_containers(pod)
}

/// Whether a container of the Pod has started, init containers included, as far as its status
/// shows.
pub fn has_started_containers(pod: &Pod) -> bool {
    let Some(status) = &pod.status else {
        return false;
    };
    status.phase.as_deref() == Some("Running") || containers(status).any(has_started)
}
