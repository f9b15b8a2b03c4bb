//! Pure: whether Pods of a run are Ready, or were, by the times that the kubelet reports.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};

use super::pod::{PodState, finished_at, main_container, terminated};
use super::{Instance, Member};

/// The readiness of a Pod, or of all Pods of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Readiness {
    /// None has been Ready, as far as is known.
    #[default]
    Never,
    /// One is Ready, since this time if it is known.
    Ready(Option<Timestamp>),
    /// One was Ready until this time, and none is.
    Lost(Timestamp),
}

impl Readiness {
    /// Joins the readiness of two Pods, of which one is enough.
    fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::Ready(Some(one)), Self::Ready(Some(other))) => Self::Ready(Some(one.min(other))),
            (Self::Ready(one), Self::Ready(other)) => Self::Ready(one.or(other)),
            (Self::Ready(since), _) | (_, Self::Ready(since)) => Self::Ready(since),
            (Self::Lost(one), Self::Lost(other)) => Self::Lost(one.max(other)),
            (Self::Lost(at), Self::Never) | (Self::Never, Self::Lost(at)) => Self::Lost(at),
            (Self::Never, Self::Never) => Self::Never,
        }
    }
}

/// Computes the readiness of the Pods of the current run. `find` returns that of the Pod with this
/// name, if it exists. The Pods of an instance that has ended, and whose partition is released,
/// count only if all instances have ended.
pub(super) fn of_run(
    find: impl Fn(&str) -> Option<Readiness>,
    [desired, surge]: [&[Instance]; 2],
    launcher: &Member,
) -> Readiness {
    let all_ended = desired.iter().all(Instance::ended);
    let instances = desired.iter().chain(surge);
    let instances = instances.filter(|one| all_ended || !one.ended());
    let members = instances.flat_map(|one| &one.workers);
    let members = members.chain(std::iter::once(launcher));
    let current = members.filter(|member| member.state != PodState::Stale);
    current
        .filter_map(|member| find(&member.name))
        .fold(Readiness::Never, Readiness::or)
}

/// Computes the readiness of a Pod. The kubelet reports only the last change of the condition
/// `Ready`, and a Pod that was never Ready has had it since before its container started.
pub(super) fn of_pod(pod: &Pod) -> Readiness {
    let Some(status) = &pod.status else {
        return Readiness::Never;
    };
    let mut conditions = status.conditions.iter().flatten();
    let Some(condition) = conditions.find(|one| one.type_ == "Ready") else {
        return Readiness::Never;
    };
    let changed = condition.last_transition_time.as_ref().map(|time| time.0);
    let main = main_container(pod, status);
    let end = main.and_then(terminated);
    if condition.status == "True" {
        return match end {
            None if status.phase.as_deref() == Some("Running") => Readiness::Ready(changed),
            // The condition follows.
            Some(end) => finished_at(end).map_or(Readiness::Never, Readiness::Lost),
            None => Readiness::Never,
        };
    }
    let Some((changed, started)) = changed.zip(main.and_then(started_at)) else {
        return Readiness::Never;
    };
    if changed <= started {
        return Readiness::Never;
    }
    let ended = end.and_then(finished_at);
    Readiness::Lost(ended.map_or(changed, |ended| ended.min(changed)))
}

/// Returns the time at which a container started, also if it has ended.
fn started_at(container: &ContainerStatus) -> Option<Timestamp> {
    let state = container.state.as_ref()?;
    let running = state.running.as_ref();
    let running = running.and_then(|running| running.started_at.as_ref());
    let ended = terminated(container).and_then(|end| end.started_at.as_ref());
    Some(running.or(ended)?.0)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn at(minute: &str) -> Timestamp {
        format!("2026-01-01T00:{minute}:00Z").parse().unwrap()
    }

    /// A Pod whose condition `Ready` changed at a minute, and whose container is in this state.
    fn pod(ready: &str, changed: &str, state: &Value) -> Pod {
        let phase = if state.get("running").is_some() {
            "Running"
        } else {
            "Failed"
        };
        let object = json!({
            "spec": {"containers": [{"name": "main"}]},
            "status": {
                "phase": phase,
                "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": at(changed)}],
                "containerStatuses": [{
                    "name": "main", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                    "state": state,
                }],
            },
        });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn a_pod_is_ready_was_ready_or_never_was() {
        let running = json!({"running": {"startedAt": at("10")}});
        let ended = json!({"terminated": {
            "exitCode": 1, "startedAt": at("10"), "finishedAt": at("20"),
        }});
        for (ready, changed, state, expected) in [
            ("True", "10", &running, Readiness::Ready(Some(at("10")))),
            ("False", "15", &running, Readiness::Lost(at("15"))),
            ("False", "09", &running, Readiness::Never),
            ("False", "21", &ended, Readiness::Lost(at("20"))),
            ("False", "15", &ended, Readiness::Lost(at("15"))),
            ("True", "10", &ended, Readiness::Lost(at("20"))),
            ("False", "09", &ended, Readiness::Never),
        ] {
            let found = of_pod(&pod(ready, changed, state));
            assert_eq!(found, expected, "{ready} {changed} {state}");
        }
        assert_eq!(of_pod(&Pod::default()), Readiness::Never);
    }

    #[test]
    fn one_ready_pod_is_enough_and_the_last_one_counts() {
        let ready = |minute| Readiness::Ready(Some(at(minute)));
        let lost = |minute| Readiness::Lost(at(minute));
        let never = Readiness::Never;
        for (one, other, expected) in [
            (ready("10"), ready("12"), ready("10")),
            (ready("10"), Readiness::Ready(None), ready("10")),
            (ready("10"), lost("15"), ready("10")),
            (lost("15"), lost("16"), lost("16")),
            (lost("15"), never, lost("15")),
            (never, never, never),
        ] {
            assert_eq!(one.or(other), expected);
            assert_eq!(other.or(one), expected);
        }
    }
}
