//! Pure: what a Pod says to the job that it belongs to.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStateTerminated, ContainerStatus, Pod, PodStatus};
use serde::Serialize;

use super::deletion_asked;
use crate::names;

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
    },
    /// It uses a partition that is no longer the current one.
    Stale,
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
            Self::Absent | Self::Stale | Self::Pending(_) => false,
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

/// Reads a Pod. `partition` is the id that its instance's partition has now, where it is known.
pub fn state(pod: &Pod, partition: Option<&str>) -> PodState {
    let nothing = PodStatus::default();
    let status = pod.status.as_ref().unwrap_or(&nothing);
    let phase = status.phase.as_deref().unwrap_or("Pending");
    if phase == "Succeeded" {
        return PodState::Succeeded(ended_at(status));
    }
    if phase == "Failed" {
        return PodState::Failed(failure(pod, status));
    }
    if pod.metadata.deletion_timestamp.is_some() {
        return PodState::Going {
            asked: deletion_asked(&pod.metadata),
            started: phase == "Running",
        };
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
        .filter_map(|end| end.finished_at.as_ref())
        .map(|time| time.0)
        .max()
}

fn failure(pod: &Pod, status: &PodStatus) -> Failure {
    let failed = containers(status)
        .filter_map(|container| Some((container, terminated(container)?)))
        .find(|(_, end)| end.exit_code != 0);
    let reason = status
        .reason
        .clone()
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
            .or_else(|| failed.and_then(|(_, end)| end.message.clone()))
            .map(|message| message.trim().to_owned())
            .filter(|message| !message.is_empty()),
        at: ended_at(status),
    }
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

fn joined(reason: &str, message: Option<&str>) -> String {
    match message {
        Some(message) => format!("{reason}: {message}"),
        None => reason.to_owned(),
    }
}
