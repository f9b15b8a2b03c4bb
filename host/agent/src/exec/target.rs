//! Pure: selects the container of a Pod for a command, and checks that it runs.

use k8s_openapi::api::core::v1::{ContainerState, Pod};

use crate::{DEFAULT_CONTAINER_ANNOTATION, MAIN_CONTAINER_ANNOTATION};

/// Reason why no command can run in a Pod.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// The Pod has no container at all.
    #[error("the Pod has no container")]
    NoContainer,
    /// The container does not run.
    #[error("its container {container} does not run: {state}")]
    NotRunning {
        /// Name of the container.
        container: String,
        /// Its state.
        state: String,
    },
}

/// Returns the name of the container for a command: the one in the Pod's annotations, otherwise the
/// first. It must run.
pub fn container(pod: &Pod) -> Result<&str, TargetError> {
    let name = main_container(pod).ok_or(TargetError::NoContainer)?;
    let state = pod
        .status
        .as_ref()
        .and_then(|status| status.container_statuses.as_ref())
        .and_then(|statuses| statuses.iter().find(|status| status.name == name))
        .and_then(|status| status.state.as_ref());
    match state {
        Some(ContainerState {
            running: Some(_), ..
        }) => Ok(name),
        _ => Err(TargetError::NotRunning {
            container: name.to_owned(),
            state: describe(pod, state),
        }),
    }
}

fn main_container(pod: &Pod) -> Option<&str> {
    let containers = &pod.spec.as_ref()?.containers;
    let annotations = pod.metadata.annotations.as_ref();
    let named = |annotation: &str| {
        let name = annotations.and_then(|annotations| annotations.get(annotation))?;
        containers.iter().find(|container| container.name == *name)
    };
    // The user of the job may have chosen another default for `kubectl`.
    named(MAIN_CONTAINER_ANNOTATION)
        .or_else(|| named(DEFAULT_CONTAINER_ANNOTATION))
        .or(containers.first())
        .map(|container| container.name.as_str())
}

fn describe(pod: &Pod, state: Option<&ContainerState>) -> String {
    if let Some(ended) = state.and_then(|state| state.terminated.as_ref()) {
        return format!("it ended with code {}", ended.exit_code);
    }
    let waiting = state
        .and_then(|state| state.waiting.as_ref())
        .and_then(|waiting| waiting.reason.as_deref());
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref())
        .unwrap_or("Unknown");
    match waiting {
        Some(reason) => format!("it waits ({reason})"),
        None => format!("the Pod is {phase}"),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::{Value, json};

    use super::{TargetError, container};

    fn pod(change: impl FnOnce(&mut Value)) -> Pod {
        let mut pod = json!({
            "metadata": { "name": "mnist-worker-0" },
            "spec": { "containers": [{ "name": "worker" }, { "name": "sidecar" }] },
            "status": {
                "phase": "Running",
                "containerStatuses": [
                    { "name": "sidecar", "state": { "running": {} }, "image": "", "imageID": "",
                      "ready": true, "restartCount": 0 },
                    { "name": "worker", "state": { "running": {} }, "image": "", "imageID": "",
                      "ready": true, "restartCount": 0 },
                ],
            },
        });
        change(&mut pod);
        serde_json::from_value(pod).unwrap()
    }

    #[test]
    fn the_main_container_is_meant() {
        let (main, default) = (
            "graphcore.ai/main-container",
            "kubectl.kubernetes.io/default-container",
        );
        for (annotations, expected) in [
            (json!({}), "worker"),
            (json!({ default: "sidecar" }), "sidecar"),
            (json!({ default: "gone" }), "worker"),
            (json!({ main: "worker", default: "sidecar" }), "worker"),
            (json!({ main: "sidecar", default: "worker" }), "sidecar"),
            (json!({ main: "gone", default: "sidecar" }), "sidecar"),
        ] {
            let annotated = pod(|pod| pod["metadata"]["annotations"] = annotations.clone());
            assert_eq!(container(&annotated), Ok(expected), "{annotations}");
        }
    }

    #[test]
    fn a_container_that_does_not_run_is_refused_with_its_state() {
        type Change = fn(&mut Value);
        let cases: [(Change, &str); 4] = [
            (
                |pod| {
                    pod["status"]["containerStatuses"][1]["state"] =
                        json!({ "terminated": { "exitCode": 3 } });
                },
                "it ended with code 3",
            ),
            (
                |pod| {
                    pod["status"]["containerStatuses"][1]["state"] =
                        json!({ "waiting": { "reason": "ImagePullBackOff" } });
                },
                "it waits (ImagePullBackOff)",
            ),
            (
                |pod| pod["status"] = json!({ "phase": "Pending" }),
                "the Pod is Pending",
            ),
            (|pod| pod["status"] = json!({}), "the Pod is Unknown"),
        ];
        for (change, state) in cases {
            let expected = TargetError::NotRunning {
                container: "worker".to_owned(),
                state: state.to_owned(),
            };
            assert_eq!(container(&pod(change)), Err(expected));
        }
        assert_eq!(
            container(&pod(|pod| pod["spec"] = json!({ "containers": [] }))),
            Err(TargetError::NoContainer)
        );
    }
}
