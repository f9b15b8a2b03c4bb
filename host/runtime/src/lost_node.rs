//! Pure: how long a node has been unreachable.
//!
//! Kubernetes deletes the Pods of a deleted Node, or of one with the out-of-service taint. It does
//! not know whether the containers of an unreachable node still run, so their Pods remain
//! terminating.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, NodeCondition};

/// Returns the time since which a node is unreachable, if it has been for `timeout`.
pub fn lost_since(node: &Node, timeout: Duration, now: Timestamp) -> Option<Timestamp> {
    let timeout = SignedDuration::try_from(timeout).unwrap_or(SignedDuration::MAX);
    unreachable_since(node).filter(|since| now.duration_since(*since) >= timeout)
}

/// Returns the time since which the kubelet of a node has not reported, if it does not.
fn unreachable_since(node: &Node) -> Option<Timestamp> {
    let conditions = node.status.as_ref()?.conditions.iter().flatten();
    let mut ready = conditions.filter(|condition| condition.type_ == "Ready");
    let NodeCondition {
        status,
        last_transition_time,
        ..
    } = ready.next()?;
    // The kubelet itself reports `False`, and still terminates its Pods.
    if status != "Unknown" {
        return None;
    }
    Some(last_transition_time.as_ref()?.0)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_node_is_lost_when_its_kubelet_has_not_reported_for_long() {
        let since = "2026-06-01T12:00:00Z";
        let ready = |status: &str| {
            json!([
                {"type": "DiskPressure", "status": "Unknown", "lastTransitionTime": "2026-01-01T00:00:00Z"},
                {"type": "Ready", "status": status, "lastTransitionTime": since},
            ])
        };
        let untimed = json!([{"type": "Ready", "status": "Unknown"}]);
        let lost = Some(since.parse().unwrap());
        for (conditions, now, expected) in [
            (ready("Unknown"), "2026-06-01T12:10:00Z", lost),
            (ready("Unknown"), "2026-06-01T12:09:59Z", None),
            (ready("Unknown"), "2026-01-01T00:00:00Z", None),
            (ready("True"), "2026-06-01T13:00:00Z", None),
            (ready("False"), "2026-06-01T13:00:00Z", None),
            (untimed, "2026-06-01T13:00:00Z", None),
            (json!([]), "2026-06-01T13:00:00Z", None),
            (Value::Null, "2026-06-01T13:00:00Z", None),
        ] {
            let node = json!({"status": {"conditions": conditions}});
            let node = serde_json::from_value(node).unwrap();
            let found = lost_since(&node, Duration::from_mins(10), now.parse().unwrap());
            assert_eq!(found, expected, "{conditions} {now}");
        }
    }
}
