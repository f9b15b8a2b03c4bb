//! Pure: finds the Pods to force-delete, because their node is lost.
//!
//! Kubernetes leaves the Pods of an unreachable node terminating. The operator can delete them:
//! after a reset or a removal on its V-IPU controller, a partition is useless to a program that
//! still runs.

use std::sync::Arc;
use std::time::Duration;

use ipu_runtime::lost_node::lost_since;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;

use super::facts::projection::ObservedPod;
use super::plan::Deletion;

/// A Pod whose node has been unreachable for too long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostPod {
    /// The Pod.
    pub pod: Deletion,
    /// Its node.
    pub node: String,
    /// Time since which the node is unreachable.
    pub since: Timestamp,
}

/// Returns the node of a terminating Pod whose grace period is over.
pub fn overdue_node(pod: &ObservedPod, now: Timestamp) -> Option<&str> {
    let termination = pod.termination.as_ref()?;
    let node = termination.node.as_deref()?;
    (termination.due < now).then_some(node)
}

/// Returns the overdue Pods whose node has been unreachable for `timeout`.
pub fn lost_pods(
    pods: &[Arc<ObservedPod>],
    nodes: &[Node],
    timeout: Duration,
    now: Timestamp,
) -> Vec<LostPod> {
    let lost = pods.iter().filter_map(|pod| {
        let name = overdue_node(pod, now)?;
        let mut nodes = nodes.iter();
        let node = nodes.find(|node| node.metadata.name.as_deref() == Some(name))?;
        Some(LostPod {
            pod: Deletion::of(&pod.object),
            node: name.to_owned(),
            since: lost_since(node, timeout, now)?,
        })
    });
    lost.collect()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::{Value, json};

    use super::*;

    const TIMEOUT: Duration = Duration::from_mins(10);

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

    fn lost(pod: &Pod, node: &Node, now: &str) -> Vec<String> {
        let pod = ObservedPod::of(pod).unwrap();
        let (pods, nodes) = ([Arc::new(pod)], [node.clone()]);
        lost_pods(&pods, &nodes, TIMEOUT, now.parse().unwrap())
            .into_iter()
            .map(|lost| format!("{} on {}", lost.pod.uid, lost.node))
            .collect()
    }

    #[test]
    fn only_an_overdue_pod_on_a_node_that_has_long_been_unreachable_is_lost() {
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
        let unreachable = ready("Unknown");
        let deleted = pod("w", "a", Some("2026-06-01T12:05:00Z"));
        assert_eq!(
            lost(&deleted, &unreachable, "2026-06-01T12:10:00Z"),
            ["uid-of-w on a"]
        );
        let none: [String; 0] = [];
        for (case, pod, node, now) in [
            ("too early", &deleted, &unreachable, "2026-06-01T12:09:59Z"),
            ("Ready", &deleted, &ready("True"), "2026-06-01T13:00:00Z"),
            (
                "the kubelet reports",
                &deleted,
                &ready("False"),
                "2026-06-01T13:00:00Z",
            ),
            (
                "not deleted",
                &pod("w", "a", None),
                &unreachable,
                "2026-06-01T13:00:00Z",
            ),
            (
                "in its grace period",
                &pod("w", "a", Some("2026-06-01T14:00:00Z")),
                &unreachable,
                "2026-06-01T13:00:00Z",
            ),
            (
                "on another node",
                &pod("w", "b", Some("2026-06-01T12:05:00Z")),
                &unreachable,
                "2026-06-01T13:00:00Z",
            ),
            (
                "no conditions",
                &deleted,
                &node("a", &json!([])),
                "2026-06-01T13:00:00Z",
            ),
        ] {
            assert_eq!(lost(pod, node, now), none, "{case}");
        }
    }
}
