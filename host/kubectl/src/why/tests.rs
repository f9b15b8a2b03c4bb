//! The pages of jobs and Pods in the states that need an explanation.

mod capacity;

use insta::assert_snapshot;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::core::DynamicObject;
use serde_json::{Value, json};

use super::{Around, has_job_ended, has_pod_ended, job, pod};
use crate::access::{Access, Objects};

fn now() -> Timestamp {
    "2026-01-01T01:00:00Z".parse().unwrap()
}

/// Twelve minutes before the page.
const SINCE: &str = "2026-01-01T00:48:00Z";

/// A status of the job, with these conditions: type, status, reason and message.
fn status(state: &str, message: &str, conditions: &[[&str; 4]]) -> Value {
    let conditions = conditions.iter().map(|[type_, status, word, message]| {
        json!({
            "type": type_, "status": status, "reason": word, "message": message,
            "lastTransitionTime": SINCE,
        })
    });
    json!({
        "launcherStatus": state,
        "desiredReplicas": 1,
        "lastMessage": message,
        "conditions": conditions.collect::<Vec<_>>(),
    })
}

/// The page of the job `team-a/train` with these labels.
fn page_of(labels: Value, status: Value, around: &Around) -> String {
    let object = json!({
        "apiVersion": "graphcore.ai/v1alpha1",
        "kind": "IPUJob",
        "metadata": {
            "name": "train", "namespace": "team-a", "uid": "uid-train", "labels": labels,
            "creationTimestamp": SINCE,
        },
        "spec": {"jobInstances": 1, "ipusPerJobInstance": "4"},
        "status": status,
    });
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    job(&object, around, now()).text(now())
}

fn page(status: Value, around: &Around) -> String {
    page_of(Value::Null, status, around)
}

/// A cluster with these IPUPartitions, Pods of the job, and events.
fn around(partitions: &[Value], pods: &[Value], events: &[Value]) -> Around {
    let read = |value: &Value| serde_json::from_value(value.clone()).unwrap();
    let pods: Vec<Pod> = pods
        .iter()
        .map(|one| serde_json::from_value(one.clone()).unwrap())
        .collect();
    let events: Vec<Event> = events
        .iter()
        .map(|one| serde_json::from_value(one.clone()).unwrap())
        .collect();
    Around {
        partitions: Access::Allowed(Objects {
            readable: partitions.iter().map(read).collect(),
            unreadable: 0,
        }),
        controllers: Access::Allowed(std::iter::empty().collect()),
        pods: Access::Allowed(pods),
        events: Access::Allowed(events),
    }
}

/// An IPUPartition of 4 IPUs of this owner, created at a minute of the hour.
fn partition(owner: &str, minute: u32, status: Value) -> Value {
    json!({
        "apiVersion": "graphcore.ai/v1alpha1",
        "kind": "IPUPartition",
        "metadata": {
            "name": format!("team-a.{owner}-0-x"),
            "creationTimestamp": format!("2026-01-01T00:{minute:02}:00Z"),
        },
        "spec": {
            "owner": {
                "apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUJob", "namespace": "team-a",
                "name": owner, "uid": format!("uid-{owner}"),
            },
            "slot": 0, "ipus": 4, "gcds": 1,
        },
        "status": status,
    })
}

fn waiting(why: &str) -> Value {
    json!({"phase": "Pending", "waiting": [{"controller": "pod1:8090", "reason": why}]})
}

fn ready(conditions: Value) -> Value {
    let controller = json!({
        "name": "pod1:8090", "host": "pod1", "port": 8090, "labelKey": "ipunode", "labelValue": "pod1",
    });
    json!({
        "phase": "Ready",
        "controller": controller,
        "partitionId": "p-train-1",
        "attempts": [{
            "controller": controller, "id": "p-train-1", "outcome": "created",
            "decidedBy": {"policy": "best-fit", "digest": "sha256:0123456789abcdef0123"},
        }],
        "conditions": conditions,
    })
}

/// A Pod of the job, with a status.
fn worker(status: Value) -> Value {
    json!({"metadata": {"name": "train-worker-0", "uid": "uid-worker"}, "status": status})
}

fn warning(kind: &str, name: &str, word: &str, message: &str, minute: u32) -> Value {
    json!({
        "metadata": {},
        "involvedObject": {"kind": kind, "name": name},
        "type": "Warning", "reason": word, "message": message, "count": 3,
        "lastTimestamp": format!("2026-01-01T00:{minute:02}:00Z"),
    })
}

const FULL: &str =
    "16 of its 16 IPUs are used, and the largest free partition is 0, smaller than the 4 requested";

#[test]
fn waiting_in_the_queue() {
    let why = "its free capacity is reserved for team-b/big (16 IPUs), which has waited since 2026-01-01T00:10:00Z";
    let message = format!("instance 0: pod1:8090: {why}");
    let conditions = [["PartitionsReady", "False", "WaitingForPartition", &*message]];
    let status = status("Pending", "partition not ready yet!", &conditions);
    let all = [
        partition("train", 48, waiting(why)),
        partition("big", 10, waiting(FULL)),
        partition("later", 50, waiting(FULL)),
    ];
    assert_snapshot!(page(status, &around(&all, &[], &[])));
}

#[test]
fn no_capacity() {
    let message = format!("instance 0: pod1:8090: {FULL}");
    let conditions = [["PartitionsReady", "False", "WaitingForPartition", &*message]];
    let status = status("Pending", "partition not ready yet!", &conditions);
    let all = [partition("train", 48, waiting(FULL))];
    let events = [
        warning("IPUJob", "train", "NodeLost", "node1 was lost", 20),
        warning("IPUJob", "other", "NodeLost", "of another job", 21),
    ];
    assert_snapshot!(page(status, &around(&all, &[], &events)));
}

#[test]
fn rejected() {
    let why = "no V-IPU controller can ever serve 4 IPUs (pod1:8090: has 2 IPUs in all, fewer than the 4 requested)";
    let message = format!("IPUJob team-a/train can never start: {why}");
    let conditions = [["Failed", "True", "IPUJobUnplaceable", &*message]];
    let status = status("Failed", &message, &conditions);
    let rejected = json!({"phase": "Rejected", "message": why});
    let all = [partition("train", 48, rejected)];
    assert_snapshot!(page(status, &around(&all, &[], &[])));
}

#[test]
fn queued_by_kueue() {
    let quota =
        "couldn't assign flavors: insufficient unused quota for graphcore.ai/ipu, 4 more needed";
    let conditions = [
        [
            "Suspended",
            "True",
            "JobSuspended",
            "IPUJob team-a/train is suspended.",
        ],
        ["QuotaReserved", "False", "Pending", quota],
    ];
    let status = status("Suspended", "suspended", &conditions);
    let labels = json!({"kueue.x-k8s.io/queue-name": "team-a"});
    assert_snapshot!(page_of(labels, status, &around(&[], &[], &[])));
}

#[test]
fn an_image_that_cannot_be_pulled() {
    let pulled = "Back-off pulling image \"registry.example.com/train:1\"";
    let message = format!("Pod train-worker-0: ImagePullBackOff: {pulled}");
    let conditions = [["PodsReady", "False", "PodsWaiting", &*message]];
    let status = status("Pending", "Successfully reconciled IPUJob", &conditions);
    let waits = json!({"waiting": {"reason": "ImagePullBackOff", "message": pulled}});
    let pod = worker(json!({
        "phase": "Pending",
        "containerStatuses": [{
            "name": "main", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": waits,
        }],
    }));
    let all = [partition("train", 48, ready(json!([])))];
    let events = [warning(
        "Pod",
        "train-worker-0",
        "Failed",
        "Error: ErrImagePull",
        59,
    )];
    assert_snapshot!(page(status, &around(&all, &[pod], &events)));
}

#[test]
fn unschedulable() {
    let message = "0/2 nodes are available: 2 Insufficient memory.";
    let waits = format!("Pod train-worker-0: Unschedulable: {message}");
    let conditions = [["PodsReady", "False", "PodsWaiting", &*waits]];
    let status = status("Pending", "Successfully reconciled IPUJob", &conditions);
    let pod = worker(json!({
        "phase": "Pending",
        "conditions": [{
            "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message,
        }],
    }));
    let all = [partition("train", 48, ready(json!([])))];
    assert_snapshot!(page(status, &around(&all, &[pod], &[])));
}

#[test]
fn running() {
    let conditions = [
        [
            "Running",
            "True",
            "IPUJobRunning",
            "IPUJob team-a/train is running.",
        ],
        ["Ready", "True", "Running", "the job runs"],
    ];
    let status = status("Running", "Successfully reconciled IPUJob", &conditions);
    let all = [partition("train", 48, ready(json!([])))];
    let pod = worker(json!({"phase": "Running"}));
    assert_snapshot!(page(status, &around(&all, &[pod], &[])));
}

#[test]
fn how_long_a_job_did_what() {
    let mut status = status("Running", "Successfully reconciled IPUJob", &[]);
    let without = page(status.clone(), &around(&[], &[], &[]));
    assert!(!without.contains("Time until"), "{without}");
    status["accounting"] =
        json!({"until": SINCE, "waiting": 7_300, "idle": 10, "resetting": 20, "wasted": 180});
    let page = page(status, &around(&[], &[], &[]));
    let line =
        "Time until 12m ago: waiting 2h, resetting 20s, idle 10s, wasted by failed runs 3m\n";
    assert!(page.contains(line), "{page}");
}

#[test]
fn failed() {
    let message = "IPUJob team-a/train has failed: Pod train-worker-0: container main ended with 3";
    let conditions = [["Failed", "True", "IPUJobFailed", message]];
    let status = status("Failed", message, &conditions);
    let ended = json!({"terminated": {"exitCode": 3, "reason": "Error"}});
    let pod = worker(json!({
        "phase": "Failed",
        "containerStatuses": [{
            "name": "main", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": ended,
        }],
    }));
    assert_snapshot!(page(status, &around(&[], &[pod], &[])));
}

#[test]
fn a_watch_ends_with_its_object() {
    let job_of = |status: Value| {
        let job = json!({
            "apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUJob", "metadata": {"name": "train"},
            "status": status,
        });
        has_job_ended(&serde_json::from_value(job).unwrap())
    };
    assert!(!job_of(Value::Null));
    assert!(!job_of(
        json!({"launcherStatus": "Failed", "completionTime": null})
    ));
    assert!(job_of(
        json!({"launcherStatus": "Completed", "completionTime": SINCE})
    ));
    let pod_of = |phase: &str| {
        let pod = json!({"status": {"phase": phase}});
        has_pod_ended(&serde_json::from_value(pod).unwrap())
    };
    assert!(!pod_of("Pending") && !pod_of("Running"));
    assert!(pod_of("Succeeded") && pod_of("Failed"));
}

#[test]
fn drained() {
    let conditions = [[
        "Running",
        "True",
        "IPUJobRunning",
        "IPUJob team-a/train is running.",
    ]];
    let status = status("Running", "Successfully reconciled IPUJob", &conditions);
    let draining = json!([{
        "type": "Draining", "status": "True", "reason": "ControllerDrained",
        "message": "pod1:8090 is being drained", "lastTransitionTime": SINCE,
    }]);
    let all = [partition("train", 48, ready(draining))];
    let pod = worker(json!({"phase": "Running"}));
    assert_snapshot!(page(status, &around(&all, &[pod], &[])));
}

#[test]
fn not_seen_by_the_operator() {
    assert_snapshot!(page(Value::Null, &around(&[], &[], &[])));
}

#[test]
fn not_allowed_to_list() {
    let message = format!("instance 0: pod1:8090: {FULL}");
    let conditions = [["PartitionsReady", "False", "WaitingForPartition", &*message]];
    let status = status("Pending", "partition not ready yet!", &conditions);
    let denied = |what: &str| format!("{what} is forbidden: User \"alice\" cannot list them");
    let around = Around {
        partitions: Access::Denied(denied("ipupartitions.graphcore.ai")),
        controllers: Access::Denied(denied("vipucontrollers.graphcore.ai")),
        pods: Access::Denied(denied("pods")),
        events: Access::Denied(denied("events")),
    };
    assert_snapshot!(page(status, &around));
}

/// A Pod that requests 4 IPUs by an annotation and waits behind the gate, for this reason.
fn gated(word: &str, message: &str) -> Pod {
    let gates = "Scheduling is blocked due to non-empty scheduling gates";
    let pod = json!({
        "metadata": {
            "name": "notebook", "namespace": "team-a", "uid": "uid-notebook", "creationTimestamp": SINCE,
            "annotations": {"graphcore.ai/ipu": "4"},
        },
        "spec": {
            "containers": [{"name": "main"}],
            "schedulingGates": [{"name": "graphcore.ai/partition"}],
        },
        "status": {
            "phase": "Pending",
            "conditions": [
                {
                    "type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": gates,
                },
                {
                    "type": "graphcore.ai/PartitionReady", "status": "False", "reason": word,
                    "message": message, "lastTransitionTime": SINCE,
                },
            ],
        },
    });
    serde_json::from_value(pod).unwrap()
}

#[test]
fn a_native_pod_behind_its_gate() {
    let found = gated("WaitingForPartition", &format!("pod1:8090: {FULL}"));
    let all = [partition("notebook", 48, waiting(FULL))];
    assert_snapshot!(pod(&found, &around(&all, &[], &[]), now()).text(now()));
}

#[test]
fn a_native_pod_that_waits_for_other_gates() {
    let message = "the partition is requested once graphcore.ai/partition is the only scheduling gate; still there: \
                   kueue.x-k8s.io/admission";
    let found = gated("WaitingForSchedulingGates", message);
    assert_snapshot!(pod(&found, &around(&[], &[], &[]), now()).text(now()));
}

#[test]
fn a_page_for_programs_has_times_and_no_control_characters() {
    let status = status("Failed", "broken\u{1b}[2J", &[]);
    let object = json!({
        "metadata": {"name": "train", "namespace": "team-a", "creationTimestamp": SINCE},
        "status": status,
    });
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    let page = json!(job(&object, &around(&[], &[], &[]), now()));
    assert_eq!(page["created"], SINCE);
    assert_eq!(page["message"], "broken\u{fffd}[2J");
    assert_eq!(page["advice"], json!(["read the message above"]));
}
