//! The pages of jobs that wait, with what the V-IPU controllers could serve.

use insta::assert_snapshot;
use serde_json::{Value, json};

use super::{FULL, SINCE, around, page, partition, ready, status, waiting};
use crate::access::{Access, Objects};
use crate::why::Around;

/// A V-IPU controller with this spec, which answers or not, and its largest free partition.
fn controller(name: &str, spec: Value, ready: &str, largest_free: u32) -> Value {
    let (word, message) = match ready {
        "True" => ("Reachable", ""),
        _ => ("Unreachable", "connection refused"),
    };
    json!({
        "apiVersion": "graphcore.ai/v1alpha1",
        "kind": "VIPUController",
        "metadata": {"name": format!("{name}-8090")},
        "spec": spec,
        "status": {
            "address": format!("{name}:8090"), "summary": "",
            "ipus": {"total": 16, "used": 8, "usedByOthers": 0, "largestFree": largest_free},
            "conditions": [{
                "type": "Ready", "status": ready, "reason": word, "message": message,
                "lastTransitionTime": SINCE,
            }],
        },
    })
}

fn with_controllers(mut around: Around, controllers: &[Value]) -> Around {
    let read = |value: &Value| serde_json::from_value(value.clone()).unwrap();
    around.controllers = Access::Allowed(Objects {
        readable: controllers.iter().map(read).collect(),
        unreadable: 0,
    });
    around
}

#[test]
fn what_would_fit_and_who_has_cordoned_the_others() {
    let message = format!("instance 0: pod1:8090: {FULL}");
    let conditions = [["PartitionsReady", "False", "WaitingForPartition", &*message]];
    let status = status("Pending", "partition not ready yet!", &conditions);
    let all = [partition("train", 48, waiting(FULL))];
    let cordoned = json!({"cordoned": true, "requestedBy": "alice", "reason": "new firmware"});
    let mut reserved = controller("pod4", json!({}), "True", 16);
    reserved["status"]["ipus"]["largestFit"] = json!(0);
    let whom = "team-b/big (64 IPUs), which has waited since 2026-01-01T00:10:00Z";
    reserved["status"]["reservedFor"] = json!(whom);
    let controllers = [
        controller("pod3", json!({}), "False", 16),
        controller("pod2", cordoned, "True", 16),
        controller("pod1", json!({}), "True", 2),
        reserved,
    ];
    let around = with_controllers(around(&all, &[], &[]), &controllers);
    assert_snapshot!(page(status, &around));
}

#[test]
fn a_job_that_does_not_wait_shows_no_controllers() {
    let status = status("Running", "Successfully reconciled IPUJob", &[]);
    let all = [partition("train", 48, ready(json!([])))];
    let controllers = [controller("pod1", json!({}), "True", 2)];
    let around = with_controllers(around(&all, &[], &[]), &controllers);
    let page = page(status, &around);
    assert!(!page.contains("V-IPU controllers:"), "{page}");
}
