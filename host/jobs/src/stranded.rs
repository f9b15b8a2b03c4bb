//! Pure: Pods that never end because their node is lost, and how long they are waited for.
//!
//! Kubernetes itself deletes the Pods of a Node object that is gone or carries the out-of-service
//! taint. Of a node that is only silent it cannot know whether its containers still run, and its Pods
//! are being deleted for ever. The operator can tell: a partition that is reset or removed on its
//! V-IPU controller is of no more use to a program that still runs somewhere.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, NodeCondition, Pod};

use super::plan::Deletion;

/// A Pod whose node has been silent for too long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stranded {
    /// The Pod.
    pub pod: Deletion,
    /// Its node.
    pub node: String,
    /// Since when that is not Ready.
    pub since: Timestamp,
}

/// The node of a Pod that should have ended by `now`: its deletion was asked for, and its grace
/// period is over.
pub fn overdue_on(pod: &Pod, now: Timestamp) -> Option<&str> {
    let due = pod.metadata.deletion_timestamp.as_ref()?.0;
    let node = pod.spec.as_ref()?.node_name.as_deref()?;
    (due < now).then_some(node)
}

/// Pods that should have ended, and whose node has not been Ready for `patience`.
pub fn stranded(pods: &[Pod], nodes: &[Node], patience: Duration, now: Timestamp) -> Vec<Stranded> {
    let patience = SignedDuration::try_from(patience).unwrap_or(SignedDuration::MAX);
    let on_silent_nodes = pods.iter().filter_map(|pod| {
        let name = overdue_on(pod, now)?;
        let mut nodes = nodes.iter();
        let node = nodes.find(|node| node.metadata.name.as_deref() == Some(name))?;
        Some((pod, name, silent_since(node)?))
    });
    on_silent_nodes
        .filter(|(_, _, since)| now.duration_since(*since) >= patience)
        .filter_map(|(pod, node, since)| {
            Some(Stranded {
                pod: Deletion::of(&pod.metadata)?,
                node: node.to_owned(),
                since,
            })
        })
        .collect()
}

/// Since when the kubelet of a node has not been heard of, where it has not.
fn silent_since(node: &Node) -> Option<Timestamp> {
    let conditions = node.status.as_ref()?.conditions.iter().flatten();
    let mut ready = conditions.filter(|condition| condition.type_ == "Ready");
    let NodeCondition {
        status,
        last_transition_time,
        ..
    } = ready.next()?;
    // `False` is said by the kubelet itself, which then still ends its Pods.
    if status != "Unknown" {
        return None;
    }
    Some(last_transition_time.as_ref()?.0)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const PATIENCE: Duration = Duration::from_mins(10);

    fn pod(name: &str, node: &str, deleted: Option<&str>) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": name, "uid": format!("uid-of-{name}"), "deletionTimestamp": deleted},
            "spec": {"nodeName": node, "containers": []},
        }))
        .unwrap()
    }

    fn node(name: &str, conditions: &Value) -> Node {
        serde_json::from_value(json!({
            "metadata": {"name": name},
            "status": {"conditions": conditions},
        }))
        .unwrap()
    }

    fn found(pod: &Pod, node: &Node, now: &str) -> Vec<String> {
        let (pods, nodes) = ([pod.clone()], [node.clone()]);
        stranded(&pods, &nodes, PATIENCE, now.parse().unwrap())
            .into_iter()
            .map(|stranded| format!("{} on {}", stranded.pod.uid, stranded.node))
            .collect()
    }

    #[test]
    fn only_a_pod_that_should_have_ended_on_a_node_that_has_long_been_silent_is_stranded() {
        let ready = |status: &str| {
            let since = "2026-06-01T12:00:00Z";
            node(
                "a",
                &json!([
                    {"type": "DiskPressure", "status": "Unknown", "lastTransitionTime": since},
                    {"type": "Ready", "status": status, "lastTransitionTime": since},
                ]),
            )
        };
        let silent = ready("Unknown");
        let deleted = pod("w", "a", Some("2026-06-01T12:05:00Z"));
        assert_eq!(
            found(&deleted, &silent, "2026-06-01T12:10:00Z"),
            ["uid-of-w on a"]
        );
        let none: [String; 0] = [];
        for (why, pod, node, now) in [
            ("too early", &deleted, &silent, "2026-06-01T12:09:59Z"),
            ("Ready", &deleted, &ready("True"), "2026-06-01T13:00:00Z"),
            (
                "the kubelet is there",
                &deleted,
                &ready("False"),
                "2026-06-01T13:00:00Z",
            ),
            (
                "not deleted",
                &pod("w", "a", None),
                &silent,
                "2026-06-01T13:00:00Z",
            ),
            (
                "in its grace period",
                &pod("w", "a", Some("2026-06-01T14:00:00Z")),
                &silent,
                "2026-06-01T13:00:00Z",
            ),
            (
                "elsewhere",
                &pod("w", "b", Some("2026-06-01T12:05:00Z")),
                &silent,
                "2026-06-01T13:00:00Z",
            ),
            (
                "nothing known",
                &deleted,
                &node("a", &json!([])),
                "2026-06-01T13:00:00Z",
            ),
        ] {
            assert_eq!(found(pod, node, now), none, "{why}");
        }
    }
}
