//! The start of a launcher: it needs the main containers of the workers, and nothing of the other
//! containers.

use serde_json::{Value, json};

use super::fixtures::{JobFixture, parallel, starting};
use super::world::World;
use crate::validate::ValidJob;

const LAUNCHER: &str = "sample-launcher";

/// A container in this state.
fn container(name: &str, is_ready: bool, state: &Value) -> Value {
    json!({
        "name": name, "image": "", "imageID": "", "ready": is_ready, "restartCount": 0, "state": state,
    })
}

fn runs() -> Value {
    json!({"running": {"startedAt": "2026-01-01T00:00:00Z"}})
}

/// A job whose first worker has this status, and whose second one runs and is Ready.
fn with_worker(status: &Value) -> (ValidJob, World) {
    let template = json!({"spec": {
        "readinessGates": [{"conditionType": "example.com/in-service"}],
        "containers": [{"name": "main", "image": "program:1"}, {"name": "fetch", "image": "data:1"}],
    }});
    let (job, mut world) = starting(&parallel().template(&template));
    world.run_pods();
    world.pod_says("sample-worker-0", status.clone());
    world.settle(&job);
    (job, world)
}

#[test]
fn containers_beside_the_main_one_do_not_delay_the_launcher() {
    let not_ready =
        json!([{"type": "Ready", "status": "False", "reason": "ReadinessGatesNotReady"}]);
    let main = container("main", true, &runs());
    let ended = |code: i32| container("fetch", false, &json!({"terminated": {"exitCode": code}}));
    let missing = container(
        "fetch",
        false,
        &json!({"waiting": {"reason": "ErrImagePull"}}),
    );
    let pulls = container(
        "fetch",
        false,
        &json!({"waiting": {"reason": "ContainerCreating"}}),
    );
    for (phase, beside) in [
        ("Running", ended(0)),
        ("Running", ended(1)),
        ("Running", container("fetch", false, &runs())),
        // A readiness gate of which nothing sets the condition.
        ("Running", container("fetch", true, &runs())),
        ("Pending", missing),
        ("Pending", pulls),
    ] {
        let status =
            json!({"phase": phase, "conditions": not_ready, "containerStatuses": [main, beside]});
        let (job, mut world) = with_worker(&status);
        assert!(!world.is_held(LAUNCHER), "{status}");
        world.run_pods();
        world.settle(&job);
        let row = world.row();
        assert!(row.starts_with("Running 1 1 "), "{status}: {row}");
        // It goes on for as long as it likes.
        world.wait(10_000);
        world.settle(&job);
        assert!(world.pods().contains(&LAUNCHER), "{status}");
    }
}

#[test]
fn a_main_container_that_is_not_ready_is_named_and_counted() {
    let status =
        json!({"phase": "Running", "containerStatuses": [container("main", false, &runs())]});
    let (job, mut world) = with_worker(&status);
    assert!(world.is_held(LAUNCHER));
    let message = "Pod sample-worker-0: its container main runs and is not Ready, and the launcher waits for it";
    assert_eq!(world.row(), format!("Pending 1 1 {message}"));
    world.wait(600);
    world.settle(&job);
    let status = &world.status().last_message;
    assert!(
        status.contains("could not start for 600 seconds"),
        "{status}"
    );
}

#[test]
fn workers_without_a_running_main_container_delay_the_launcher() {
    let waits = container(
        "main",
        false,
        &json!({"waiting": {"reason": "ContainerCreating"}}),
    );
    let status = json!({"phase": "Pending", "containerStatuses": [waits, container("fetch", true, &runs())]});
    let (job, mut world) = with_worker(&status);
    assert!(world.is_held(LAUNCHER));
    world.wait(10_000);
    world.settle(&job);
    assert!(world.is_held(LAUNCHER), "the image is being pulled");
}
