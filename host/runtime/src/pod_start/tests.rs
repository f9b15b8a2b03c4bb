//! Pods as their nodes and the scheduler report them, and what that says about their start.

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::{StartState, obstacle, preparing_since, start_state};

/// A Pod with an init container, a native sidecar, a main container and another one, with this
/// status.
fn pod(status: &Value) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": "w", "uid": "u"},
        "spec": {
            "initContainers": [
                {"name": "mesh", "restartPolicy": "Always"},
                {"name": "fetch"},
            ],
            "containers": [{"name": "main"}, {"name": "proxy"}],
        },
        "status": status,
    }))
    .unwrap()
}

fn container(name: &str, state: &Value) -> Value {
    json!({"name": name, "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state})
}

/// A container that waits for this reason.
fn waits(name: &str, reason: &str) -> Value {
    container(
        name,
        &json!({"waiting": {"reason": reason, "message": "no such thing"}}),
    )
}

fn runs(name: &str) -> Value {
    container(name, &json!({"running": {}}))
}

fn ended(name: &str) -> Value {
    container(name, &json!({"terminated": {"exitCode": 0}}))
}

fn pending(init_containers: &[Value], containers: &[Value]) -> Value {
    json!({"phase": "Pending", "initContainerStatuses": init_containers, "containerStatuses": containers})
}

fn unscheduled(reason: &str) -> Value {
    json!([{"type": "PodScheduled", "status": "False", "reason": reason, "message": "0/3 nodes"}])
}

/// The reason, and the start.
fn of(status: &Value) -> (Option<String>, StartState) {
    let pod = pod(status);
    let reason = obstacle(&pod).map(|obstacle| obstacle.to_string());
    (reason, start_state(&pod, "main"))
}

#[test]
fn init_containers_and_the_main_container_decide() {
    let missing = || waits("main", "ErrImagePull");
    let unpulled = StartState::Unpulled;
    let reason = "container main: ErrImagePull: no such thing";
    for (status, expected) in [
        (pending(&[], &[missing()]), unpulled),
        // They do nothing for the program.
        (pending(&[runs("mesh")], &[missing()]), unpulled),
        (pending(&[], &[missing(), runs("proxy")]), unpulled),
        (pending(&[], &[missing(), ended("proxy")]), unpulled),
        // It has done its work.
        (pending(&[ended("fetch")], &[missing()]), unpulled),
        (
            pending(&[runs("fetch")], &[missing()]),
            StartState::Initializing,
        ),
    ] {
        assert_eq!(of(&status), (Some(reason.to_owned()), expected), "{status}");
    }
}

#[test]
fn reason_of_another_container_is_reported_beside_the_main_one() {
    let status = pending(&[], &[runs("main"), waits("proxy", "ErrImagePull")]);
    let reason = "container proxy: ErrImagePull: no such thing".to_owned();
    assert_eq!(of(&status), (Some(reason), StartState::Started));
}

#[test]
fn reasons_of_kubernetes_block_a_start() {
    for reason in [
        "CreateContainerConfigError",
        "CreateContainerError",
        "InvalidImageName",
        "ErrImageNeverPull",
    ] {
        let (text, start) = of(&pending(&[], &[waits("main", reason)]));
        let expected = format!("container main: {reason}: no such thing");
        assert_eq!((text, start), (Some(expected), StartState::Blocked));
    }
    let status = json!({"phase": "Pending", "conditions": unscheduled("Unschedulable")});
    let expected = Some("Unschedulable: 0/3 nodes".to_owned());
    assert_eq!(of(&status), (expected, StartState::Blocked));
}

#[test]
fn pod_that_is_about_to_start_has_no_obstacle() {
    let mut nominated = json!({"phase": "Pending", "conditions": unscheduled("Unschedulable")});
    nominated["nominatedNodeName"] = json!("node-1");
    let gate_removed = json!({"phase": "Pending", "conditions": unscheduled("SchedulingGated")});
    for status in [
        json!({"phase": "Pending"}),
        pending(&[], &[waits("main", "ContainerCreating")]),
        pending(&[runs("mesh")], &[waits("main", "PodInitializing")]),
        nominated,
        gate_removed,
        Value::Null,
    ] {
        assert_eq!(of(&status), (None, StartState::Unhindered), "{status}");
    }
}

#[test]
fn sidecar_that_is_restarted_before_it_has_started_is_an_obstacle() {
    let mesh = |state: Value, started: Value, restarts: i32| {
        let mut mesh = container("mesh", &state);
        mesh["started"] = started;
        mesh["restartCount"] = json!(restarts);
        pending(&[mesh], &[waits("main", "PodInitializing")])
    };
    let runs = json!({"running": {}});
    let ended = json!({"terminated": {"exitCode": 137}});
    let failing = "container mesh runs, and its startup probe has not succeeded";
    let over = "container mesh ended before its startup probe succeeded";
    for (status, expected) in [
        (mesh(runs.clone(), json!(false), 0), None),
        (mesh(runs.clone(), json!(false), 1), Some(failing)),
        (mesh(ended.clone(), json!(false), 1), Some(over)),
        (mesh(ended, json!(false), 0), None),
        (mesh(runs.clone(), json!(true), 4), None),
        (mesh(runs, json!(null), 4), None),
    ] {
        let state = expected.map_or(StartState::Unhindered, |_| StartState::Blocked);
        assert_eq!(
            of(&status),
            (expected.map(str::to_owned), state),
            "{status}"
        );
    }
    // Another container of this status is no sidecar.
    let mut fetch = container("fetch", &json!({"running": {}}));
    fetch["started"] = json!(false);
    fetch["restartCount"] = json!(3);
    let status = pending(&[fetch], &[waits("main", "PodInitializing")]);
    assert_eq!(of(&status), (None, StartState::Initializing));
}

#[test]
fn init_container_that_waits_for_its_next_start_is_an_obstacle() {
    let mut fetch = waits("fetch", "CrashLoopBackOff");
    fetch["lastState"] = json!({"terminated": {"exitCode": 1}});
    let status = pending(&[ended("mesh"), fetch], &[waits("main", "PodInitializing")]);
    let reason = "container fetch: CrashLoopBackOff: no such thing";
    assert_eq!(of(&status), (Some(reason.to_owned()), StartState::Blocked));
}

#[test]
fn pod_that_has_started_has_no_obstacle() {
    let mut restarted = waits("main", "CrashLoopBackOff");
    restarted["lastState"] = json!({"terminated": {"exitCode": 1}});
    for status in [
        pending(&[], &[restarted]),
        json!({"phase": "Running", "containerStatuses": [runs("main"), waits("proxy", "ErrImagePull")]}),
    ] {
        assert_eq!(of(&status), (None, StartState::Started), "{status}");
    }
    let failed = json!({"phase": "Failed", "reason": "OutOfcpu"});
    assert_eq!(of(&failed).0, None);
}

#[test]
fn gate_of_a_template_is_a_reason() {
    let mut pod = pod(&json!({"phase": "Pending", "conditions": unscheduled("SchedulingGated")}));
    let gates = serde_json::from_value(json!([{"name": "example.com/gate"}])).unwrap();
    pod.spec.as_mut().unwrap().scheduling_gates = gates;
    assert_eq!(start_state(&pod, "main"), StartState::Blocked);
}

#[test]
fn only_a_pod_without_sandbox_is_prepared() {
    let of = |sandbox: &Value| {
        preparing_since(&pod(&json!({"phase": "Pending", "conditions": [
            sandbox,
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"},
        ]})))
    };
    let sandbox = |status: &str| json!({"type": "PodReadyToStartContainers", "status": status});
    assert!(of(&sandbox("False")).is_some());
    assert_eq!(of(&sandbox("True")), None);
    assert_eq!(of(&json!({"type": "Ready", "status": "False"})), None);
}
