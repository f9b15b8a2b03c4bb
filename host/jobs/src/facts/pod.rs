//! Pure: what a Pod says to the job that it belongs to.

use ipu_api::names;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStateTerminated, ContainerStatus, Pod, PodStatus};
use serde::Serialize;

use super::{deletion_asked, disruption};

/// What a Pod says to the job that it belongs to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum PodState {
    /// There is none.
    Absent,
    /// It is being deleted, asked for at this time.
    Going {
        /// When the deletion was asked for.
        asked: Option<Timestamp>,
        /// Whether its containers had started.
        started: bool,
        /// What Kubernetes says of it, where it was not a user who deleted it.
        #[serde(skip_serializing_if = "Option::is_none")]
        why: Option<String>,
    },
    /// It belongs to an earlier run, or uses a partition that is no longer the current one.
    Stale,
    /// It ended through no fault of its program: its node was lost or drained, or had no room.
    Lost(Failure),
    /// Its containers have not started yet, for this reason if one is known.
    Pending(Option<String>),
    /// Its containers run.
    Running {
        /// Whether it is Ready.
        ready: bool,
    },
    /// It ended with 0, at this time.
    Succeeded(Option<Timestamp>),
    /// It ended otherwise.
    Failed(Failure),
}

/// How a Pod failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Failure {
    /// Name of the Pod.
    pub pod: String,
    /// The container that failed; none where the whole Pod did (evicted, for example).
    pub container: Option<String>,
    /// Its exit code.
    pub exit_code: Option<i32>,
    /// A word for programs, such as `OOMKilled` or `Evicted`.
    pub reason: String,
    /// What Kubernetes says beyond that.
    pub message: Option<String>,
    /// When it ended.
    pub at: Option<Timestamp>,
    /// Whether its main container had started.
    pub started: bool,
}

impl PodState {
    /// Whether it ran to its end.
    pub fn ended(&self) -> bool {
        matches!(self, Self::Succeeded(_) | Self::Failed(_))
    }

    /// Whether its containers have started.
    pub fn started(&self) -> bool {
        match self {
            Self::Running { .. } | Self::Succeeded(_) | Self::Failed(_) => true,
            Self::Going { started, .. } => *started,
            Self::Lost(failure) => failure.started,
            Self::Absent | Self::Stale | Self::Pending(_) => false,
        }
    }

    /// Whether there is no Pod to count on: it has to be made, or made again.
    pub fn missing(&self) -> bool {
        match self {
            Self::Absent | Self::Going { .. } | Self::Stale | Self::Lost(_) => true,
            Self::Pending(_) | Self::Running { .. } | Self::Succeeded(_) | Self::Failed(_) => false,
        }
    }

    /// Whether it runs and is Ready.
    pub fn ready(&self) -> bool {
        matches!(self, Self::Running { ready: true })
    }

    /// How it failed, where it did.
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

/// Reads a Pod. `partition` is the id that its instance's partition has now, where it is known;
/// `run` is the run of the job that goes on.
///
/// Its main container's end is its end: a sidecar that goes on must not keep a job from completing.
pub fn state(pod: &Pod, partition: Option<&str>, run: i64) -> PodState {
    let nothing = PodStatus::default();
    let status = pod.status.as_ref().unwrap_or(&nothing);
    let phase = status.phase.as_deref().unwrap_or("Pending");
    if run_of(pod) < run {
        return PodState::Stale;
    }
    let end = main_container(pod, status).and_then(terminated);
    let at = match end {
        Some(end) => finished_at(end),
        None => ended_at(status),
    };
    let has_ended = end.is_some() || matches!(phase, "Succeeded" | "Failed");
    if let Some(asked) = deletion_asked(&pod.metadata)
        // A program that was told to end has not ended by itself, whatever its exit code is.
        && !(has_ended && at.is_some_and(|at| at < asked) && !is_due_at_once(pod))
    {
        return PodState::Going {
            asked: Some(at.map_or(asked, |at| at.min(asked))),
            started: phase == "Running" || end.is_some(),
            why: disruption::told(status),
        };
    }
    if has_ended {
        return ended(pod, status, at);
    }
    if is_stale(pod, partition) {
        return PodState::Stale;
    }
    if phase == "Running" {
        return PodState::Running {
            ready: is_ready(status),
        };
    }
    PodState::Pending(why_pending(status))
}

/// Whether a Pod is deleted with no grace left. The kubelet asks for that once the containers of a
/// deleted Pod have ended, and with it goes when the deletion was asked for first: any time up to
/// the program's end.
fn is_due_at_once(pod: &Pod) -> bool {
    let metadata = &pod.metadata;
    metadata.deletion_timestamp.is_some()
        && metadata.deletion_grace_period_seconds.unwrap_or(0) == 0
}

/// What becomes of a Pod after its main container.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum Aftermath {
    /// Its main container has not ended, or the whole Pod has.
    #[default]
    None,
    /// It will end by itself: the kubelet ends native sidecars, and has yet to say that it is done.
    Closing,
    /// Containers beside the main one run on; nobody but the operator ends them.
    Sidecars,
}

/// What becomes of a Pod after its main container.
pub fn aftermath(pod: &Pod) -> Aftermath {
    let Some(status) = &pod.status else {
        return Aftermath::None;
    };
    let main = main_container(pod, status).filter(|main| terminated(main).is_some());
    let (Some("Running"), Some(main)) = (status.phase.as_deref(), main) else {
        return Aftermath::None;
    };
    let mut others = status.container_statuses.iter().flatten();
    if others.any(|other| other.name != main.name && terminated(other).is_none()) {
        Aftermath::Sidecars
    } else {
        Aftermath::Closing
    }
}

/// Since when the main container of a Pod runs, where it does.
pub fn running_since(pod: &Pod) -> Option<Timestamp> {
    let main = main_container(pod, pod.status.as_ref()?)?;
    let running = main.state.as_ref()?.running.as_ref()?;
    running.started_at.as_ref().map(|time| time.0)
}

/// Which run of the job a Pod belongs to.
fn run_of(pod: &Pod) -> i64 {
    let labels = pod.metadata.labels.as_ref();
    labels
        .and_then(|labels| labels.get(names::RUN_LABEL)?.parse().ok())
        .unwrap_or(0)
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
    let failure = failure(pod, status, at);
    if disruption::is_disrupted(status, containers(status).any(has_started)) {
        PodState::Lost(failure)
    } else {
        PodState::Failed(failure)
    }
}

/// The container whose end is the Pod's end; none before the kubelet has said anything of it.
fn main_container<'a>(pod: &'a Pod, status: &'a PodStatus) -> Option<&'a ContainerStatus> {
    let annotations = pod.metadata.annotations.as_ref();
    let name = annotations
        .and_then(|annotations| annotations.get(names::MAIN_CONTAINER_ANNOTATION))
        .or_else(|| Some(&pod.spec.as_ref()?.containers.first()?.name))?;
    status
        .container_statuses
        .iter()
        .flatten()
        .find(|container| container.name == *name)
}

/// When a container ended. A runtime that does not know it yet says 1970, which is no time, and not
/// before everything else.
fn finished_at(end: &ContainerStateTerminated) -> Option<Timestamp> {
    let at = end.finished_at.as_ref()?.0;
    (at > Timestamp::UNIX_EPOCH).then_some(at)
}

fn is_stale(pod: &Pod, partition: Option<&str>) -> bool {
    let used = pod
        .metadata
        .labels
        .as_ref()
        .and_then(|labels| labels.get(names::PARTITION_ID_LABEL));
    match (used, partition) {
        (Some(used), Some(current)) => used != current,
        _ => false,
    }
}

fn is_ready(status: &PodStatus) -> bool {
    status
        .conditions
        .iter()
        .flatten()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Every container of the Pod, in the order in which they run.
fn containers(status: &PodStatus) -> impl Iterator<Item = &ContainerStatus> {
    status
        .init_container_statuses
        .iter()
        .flatten()
        .chain(status.container_statuses.iter().flatten())
}

fn terminated(container: &ContainerStatus) -> Option<&ContainerStateTerminated> {
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
    let by_kubernetes = disruption::condition(status);
    let reason = status
        .reason
        .clone()
        .or_else(|| by_kubernetes?.reason.clone())
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
            .or_else(|| by_kubernetes?.message.clone())
            .or_else(|| failed.and_then(|(_, end)| end.message.clone()))
            .map(|message| message.trim().to_owned())
            .filter(|message| !message.is_empty()),
        at,
        started: main.is_some_and(has_started),
    }
}

fn has_started(container: &ContainerStatus) -> bool {
    let state = container.state.as_ref();
    state.is_some_and(|state| state.running.is_some() || state.terminated.is_some())
}

fn why_pending(status: &PodStatus) -> Option<String> {
    let waiting = containers(status).find_map(|container| {
        let waiting = container.state.as_ref()?.waiting.as_ref()?;
        let reason = waiting.reason.as_deref()?;
        // These two are what every Pod goes through.
        if matches!(reason, "ContainerCreating" | "PodInitializing") {
            return None;
        }
        Some(joined(reason, waiting.message.as_deref()))
    });
    waiting.or_else(|| {
        let condition =
            status.conditions.iter().flatten().find(|condition| {
                condition.type_ == "PodScheduled" && condition.status == "False"
            })?;
        Some(joined(
            condition.reason.as_deref()?,
            condition.message.as_deref(),
        ))
    })
}

/// A reason of Kubernetes with its message.
pub(super) fn joined(reason: &str, message: Option<&str>) -> String {
    match message {
        Some(message) => format!("{reason}: {message}"),
        None => reason.to_owned(),
    }
}
