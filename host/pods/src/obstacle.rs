//! Pure: the reason for which a Pod with its partition cannot start.
//!
//! A container that has started, an image that is pulled for the first time, and a Pod for which the scheduler has
//! chosen a node and evicts others are no obstacles. The kubelet reports a failed pull until another one succeeds.

use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodStatus};

/// The reasons that every container has for a moment, also while its image is pulled.
const STARTING: [&str; 2] = ["ContainerCreating", "PodInitializing"];

/// Returns the reason for which a Pod cannot start. `None`: there is none, or a container has started.
pub fn obstacle(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?;
    let is_pending = status.phase.as_deref() == Some("Pending");
    let is_nominated = status
        .nominated_node_name
        .as_ref()
        .is_some_and(|node| !node.is_empty());
    if !is_pending || is_nominated || containers(status).any(has_started) {
        return None;
    }
    containers(status)
        .find_map(waiting)
        .or_else(|| unschedulable(status))
}

fn containers(status: &PodStatus) -> impl Iterator<Item = &ContainerStatus> {
    let init_containers = status.init_container_statuses.iter().flatten();
    init_containers.chain(status.container_statuses.iter().flatten())
}

fn has_started(container: &ContainerStatus) -> bool {
    let mut states = container.state.iter().chain(&container.last_state);
    states.any(|state| state.running.is_some() || state.terminated.is_some())
}

fn waiting(container: &ContainerStatus) -> Option<String> {
    let waiting = container.state.as_ref()?.waiting.as_ref()?;
    let reason = waiting
        .reason
        .as_deref()
        .filter(|reason| !STARTING.contains(reason))?;
    Some(joined(
        &format!("container {}: {reason}", container.name),
        waiting.message.as_deref(),
    ))
}

/// Reason of the scheduler for a Pod that fits on no node.
const UNSCHEDULABLE: &str = "Unschedulable";

fn unschedulable(status: &PodStatus) -> Option<String> {
    let mut conditions = status.conditions.iter().flatten();
    let condition = conditions.find(|condition| {
        condition.type_ == "PodScheduled" && condition.reason.as_deref() == Some(UNSCHEDULABLE)
    })?;
    Some(joined(UNSCHEDULABLE, condition.message.as_deref()))
}

fn joined(reason: &str, message: Option<&str>) -> String {
    match message.filter(|message| !message.is_empty()) {
        Some(message) => format!("{reason}: {message}"),
        None => reason.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::samples::pod;

    fn of(status: &Value) -> Option<String> {
        obstacle(&pod(|pod| pod["status"] = status.clone()))
    }

    /// A container that waits for this reason.
    fn waits(reason: &str) -> Value {
        json!({"name": "main", "state": {"waiting": {"reason": reason, "message": "no such image"}}})
    }

    fn unscheduled() -> Value {
        json!([{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}])
    }

    #[test]
    fn a_pod_that_cannot_start_says_why() {
        let failing = waits("ImagePullBackOff");
        let reason = "container main: ImagePullBackOff: no such image";
        for (status, expected) in [
            (
                json!({"phase": "Pending", "conditions": unscheduled()}),
                "Unschedulable: 0/3 nodes",
            ),
            (
                json!({"phase": "Pending", "containerStatuses": [failing]}),
                reason,
            ),
            (
                json!({"phase": "Pending", "initContainerStatuses": [failing]}),
                reason,
            ),
        ] {
            assert_eq!(of(&status).as_deref(), Some(expected), "{status}");
        }
    }

    #[test]
    fn a_pod_that_starts_or_has_started_has_no_obstacle() {
        let (running, failing) = (
            json!({"name": "main", "state": {"running": {}}}),
            waits("ErrImagePull"),
        );
        let ended = json!({"name": "fetch", "state": {"terminated": {"exitCode": 0}}});
        let mut restarted = waits("CrashLoopBackOff");
        restarted["lastState"] = json!({"terminated": {"exitCode": 1}});
        let nominated = json!({
            "phase": "Pending", "nominatedNodeName": "node-1", "conditions": unscheduled(),
        });
        let gated =
            json!([{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]);
        for status in [
            json!({"phase": "Pending"}),
            json!({"phase": "Pending", "containerStatuses": [waits("ContainerCreating")]}),
            json!({"phase": "Pending", "containerStatuses": [waits("PodInitializing")]}),
            json!({"phase": "Pending", "initContainerStatuses": [running], "containerStatuses": [failing]}),
            json!({"phase": "Pending", "initContainerStatuses": [ended], "containerStatuses": [failing]}),
            json!({"phase": "Pending", "containerStatuses": [restarted]}),
            json!({"phase": "Running", "containerStatuses": [running, failing]}),
            json!({"phase": "Pending", "conditions": gated}),
            json!({"phase": "Failed", "reason": "OutOfcpu"}),
            nominated,
            Value::Null,
        ] {
            assert_eq!(of(&status), None, "{status}");
        }
    }
}
