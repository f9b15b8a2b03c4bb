//! Pure: whether the command of a launcher is held back, because its Pod was created together with
//! its workers.

use ipu_api::labels::{HELD, INSTANCE_LABEL, START_ANNOTATION};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use super::pod::{Failure, PodState};
use super::readiness::Readiness;

/// The hold on the command of a Pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hold {
    /// There is none: the command starts with its container.
    None,
    /// The agent holds the command back.
    Held,
    /// The command was released, at this time if it is readable.
    Released(Option<Timestamp>),
}

impl Hold {
    /// Reads the hold of a Pod. A worker has none: its annotations are those of the user's
    /// template.
    pub(super) fn of(pod: &Pod) -> Self {
        let is_worker = pod.labels().contains_key(INSTANCE_LABEL);
        let annotation = pod.annotations().get(START_ANNOTATION);
        match annotation.filter(|_| !is_worker) {
            None => Self::None,
            Some(value) if value == HELD => Self::Held,
            Some(value) => Self::Released(value.parse().ok()),
        }
    }

    /// Returns the state of the command, from that of its container: a held command has not
    /// started, although its container runs, and cannot have succeeded.
    pub(super) fn state(self, name: &str, state: PodState) -> PodState {
        if self != Self::Held {
            return state;
        }
        let not_started = |failure: Box<Failure>| {
            Box::new(Failure {
                started: false,
                ..*failure
            })
        };
        match state {
            PodState::Running { .. } => PodState::Pending(None),
            PodState::Terminating {
                requested, reason, ..
            } => PodState::Terminating {
                requested,
                started: false,
                reason,
            },
            PodState::Succeeded(at) => PodState::Failed(Box::new(ended_early(name, at))),
            PodState::Lost(failure) => PodState::Lost(not_started(failure)),
            PodState::Rejected(failure) => PodState::Rejected(not_started(failure)),
            PodState::Failed(failure) => PodState::Failed(not_started(failure)),
            PodState::Absent | PodState::Stale | PodState::Pending(_) => state,
        }
    }

    /// Returns the start time of the command, from that of its container.
    pub(super) fn running_since(self, container: Option<Timestamp>) -> Option<Timestamp> {
        match self {
            Self::None | Self::Released(None) => container,
            Self::Held => None,
            Self::Released(Some(at)) => container.map(|since| since.max(at)),
        }
    }

    /// Returns the readiness of the command, from that of its Pod.
    pub(super) fn readiness(self, pod: Readiness) -> Readiness {
        match (self, pod) {
            (Self::Held, _) => Readiness::Never,
            (Self::Released(Some(at)), Readiness::Ready(since)) => {
                Readiness::Ready(since.map(|since| since.max(at)))
            }
            _ => pod,
        }
    }
}

/// The end of a launcher before its release. Only something else than the agent can end with 0
/// then.
fn ended_early(name: &str, at: Option<Timestamp>) -> Failure {
    Failure {
        pod: name.to_owned(),
        container: None,
        exit_code: Some(0),
        reason: "Completed".to_owned(),
        message: Some("it ended before its workers were Ready".to_owned()),
        at,
        started: false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_annotation_of_the_template_holds_no_worker() {
        let pod = |labels: serde_json::Value| -> Pod {
            let annotations = json!({START_ANNOTATION: HELD});
            let metadata = json!({"labels": labels, "annotations": annotations});
            serde_json::from_value(json!({"metadata": metadata})).unwrap()
        };
        assert_eq!(Hold::of(&pod(json!({INSTANCE_LABEL: "0"}))), Hold::None);
        assert_eq!(Hold::of(&pod(json!({}))), Hold::Held);
    }
}
