//! Pods that are being deleted, on nodes that may be lost.

use super::*;

/// A bound Pod of this kind of owner that is being deleted on a node.
fn deleted(owner: &str) -> ObservedPod {
    let owned = native(|pod| {
        pod["metadata"]["ownerReferences"] = json!([
            {"apiVersion": "apps/v1", "kind": owner, "name": "web", "uid": "u", "controller": true},
        ]);
        pod["metadata"]["labels"]["graphcore.ai/partition-id"] = json!("p-web");
        pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:30:00Z");
        pod["spec"]["schedulingGates"] = json!(null);
        pod["spec"]["nodeName"] = json!("node-1");
    });
    observed(owned, Some(offering(State::Ready(partition_ref("p-web")))))
}

/// The node has been unreachable for long.
fn lost() -> Circumstances {
    Circumstances {
        node_lost_since: Some("2026-01-01T00:20:00Z".parse().unwrap()),
        ..around()
    }
}

#[test]
fn only_pods_of_stateful_sets_survive_a_lost_node() {
    let reported = Some("NodeLost".to_owned());
    for owner in ["Job", "ReplicaSet", "Notebook"] {
        let expected = (Some(Step::ForceDelete), reported.clone());
        assert_eq!(decided(&deleted(owner), &lost()), expected, "{owner}");
    }
    let of_stateful_set = deleted("StatefulSet");
    assert_eq!(decided(&of_stateful_set, &lost()), (None, reported.clone()));
    let mut bare = deleted("Job");
    bare.pod.has_controller = false;
    assert_eq!(decided(&bare, &lost()), (Some(Step::ForceDelete), reported));
}

#[test]
fn a_pod_that_may_still_end_is_left_alone() {
    let nothing = (None, None);
    assert_eq!(decided(&deleted("Job"), &around()), nothing);
    let mut unbound = deleted("Job");
    unbound.pod.partition_id = None;
    let mut without_node = deleted("Job");
    without_node.pod.termination = Some(deleted_on(None));
    for seen in [unbound, without_node] {
        assert_eq!(decided(&seen, &lost()), nothing);
    }
    let never = Circumstances {
        lost_node: None,
        ..lost()
    };
    assert_eq!(decided(&deleted("Job"), &never), nothing);
}

#[test]
fn the_node_of_a_terminating_pod_is_read_again() {
    let requeue = |seen: &ObservedPod, around: &Circumstances| plan(seen, around).requeue;
    let overdue = deleted("Job");
    assert_eq!(requeue(&overdue, &around()), Some(Duration::from_secs(15)));
    let early = Circumstances {
        now: "2026-01-01T00:29:00Z".parse().unwrap(),
        ..around()
    };
    assert_eq!(requeue(&overdue, &early), Some(Duration::from_secs(61)));
    let never = Circumstances {
        lost_node: None,
        ..around()
    };
    assert_eq!(requeue(&overdue, &never), None);
}
