//! Pods that their nodes reject before a container of them starts: they are created again after a
//! back-off, on the same partition, and count as no failure.

use ipu_api::ipujob::{IPUJob, RestartPolicyType};
use ipu_api::ipujob_status::JobState;
use serde_json::json;

use super::fixtures::{JobFixture, launching, parallel, running, starting};
use super::world::{CrashPoint, World};
use crate::facts::pod::PodState;
use crate::facts::projection::ObservedPod;
use crate::status::events::status_events;

const MESSAGE: &str =
    "Pod was rejected: Node didn't have enough resource: cpu, requested: 2, used: 3, capacity: 4";

impl World {
    /// The kubelet: the node rejects a Pod.
    pub(super) fn reject(&mut self, pod: &str, reason: &str) {
        let rejected = json!({"phase": "Failed", "reason": reason, "message": MESSAGE});
        self.pod_says(pod, rejected);
    }
}

fn said(pod: &str, reason: &str) -> String {
    format!("the node rejected Pod {pod} ({reason}): {MESSAGE}; the operator creates it again")
}

#[test]
fn a_rejected_pod_is_created_again_without_reset_or_failure() {
    for reason in [
        "OutOfcpu",
        "OutOfpods",
        "OutOfrdma/hca",
        "TopologyAffinityError",
        "SMTAlignmentError",
        "UnexpectedAdmissionError",
        "InvalidNodeInfo",
        "PodOSNotSupported",
        "NodeAffinity",
        "Evicted",
        "AdmissionOfTomorrow",
    ] {
        let (job, mut world) = starting(&IPUJob::sample());
        world.reject("sample-worker-0", reason);
        let before = world.status().clone();
        world.step(&job);
        let why = said("sample-worker-0", reason);
        assert_eq!(world.row(), format!("Running 1 1 {why}"));
        assert_eq!(world.condition("PodsReady").message, why);
        let events = status_events(&before, world.status());
        let notes: Vec<_> = events
            .iter()
            .map(|event| (event.reason, &*event.note))
            .collect();
        assert_eq!(notes, [("PodsWaiting", &*why)]);

        world.settle(&job);
        world.wait(5);
        world.settle(&job);
        world.run_pods();
        world.settle(&job);
        assert_eq!(world.row(), "Running 1 1 Successfully reconciled IPUJob");
        assert_eq!(world.resets, [""; 0], "no container has used the partition");
        let status = world.status();
        assert_eq!(status.restart_count, Some(0));
        assert_eq!(status.run.as_ref().unwrap().rejections, None);
        world.end("sample-worker-0", 0);
        world.settle(&job);
        assert_eq!(world.row(), "Completed 0 1 All instances done");
    }
}

#[test]
fn the_delay_doubles_and_survives_a_restart_of_the_operator() {
    let (job, mut world) = starting(&IPUJob::sample());
    world.settings.start_timeout = None;
    let before = world.status().clone();
    let mut delays = Vec::new();
    for _ in 0..10 {
        world.reject("sample-worker-0", "OutOfcpu");
        let rejected = world.now;
        world.settle(&job);
        let first = world.pod("sample-worker-0").status.clone();
        while world.pods().is_empty() || world.pod("sample-worker-0").status == first {
            world.step_killed(&job, &[], CrashPoint::BeforeReport);
            world.step(&job);
            assert_eq!(world.resets, [""; 0]);
        }
        delays.push(world.now.duration_since(rejected).as_secs());
    }
    let expected = [2, 4, 8, 16, 32, 64, 128, 256, 300, 300];
    for (delay, expected) in delays.iter().zip(expected) {
        assert!((expected..expected + 8).contains(delay), "{delays:?}");
    }
    let events = status_events(&before, world.status());
    assert_eq!(events.len(), 1, "the problem stays the same");
    assert_eq!(world.status().launcher_status, JobState::Running);
}

#[test]
fn a_sibling_that_runs_waits_for_a_rejected_worker() {
    let (job, mut world) = starting(&IPUJob::sample().workers("2"));
    world.reject("sample-worker-1", "OutOfcpu");
    world.run_pods();
    world.settle(&job);
    world.wait(5);
    world.settle(&job);
    world.run_pods();
    world.settle(&job);
    assert_eq!(world.pods(), ["sample-worker-0", "sample-worker-1"]);
    assert_eq!(world.resets, [""; 0]);

    // It runs, and has used the partition from now on.
    world.lose("sample-worker-1");
    world.settle(&job);
    assert_eq!(world.resets.len(), 1);
}

#[test]
fn pods_of_one_attempt_count_once() {
    let (job, mut world) = starting(&IPUJob::sample().workers("4"));
    for worker in 0..4 {
        world.reject(&format!("sample-worker-{worker}"), "OutOfcpu");
        world.step_killed(&job, &[], CrashPoint::Never);
        world.now -= jiff::SignedDuration::from_secs(1);
    }
    let run = world.status().run.clone().unwrap();
    let rejections = run.rejections.unwrap();
    assert_eq!((rejections.count, rejections.pods.len()), (1, 4));
}

#[test]
fn a_rejected_launcher_is_created_again() {
    let job = parallel().restart(RestartPolicyType::Never);
    let (job, mut world) = launching(&job);
    world.reject("sample-launcher", "OutOfmemory");
    world.settle(&job);
    assert_eq!(
        world.status().last_message,
        said("sample-launcher", "OutOfmemory")
    );
    world.wait(5);
    world.settle(&job);
    world.run_pods();
    world.settle(&job);
    assert_eq!(world.row(), "Running 1 1 Successfully reconciled IPUJob");
    assert_eq!(world.pods().len(), 3, "the workers stay");
}

#[test]
fn a_rejected_worker_is_no_failure_before_the_launcher() {
    let (job, mut world) = starting(&parallel());
    world.reject("sample-worker-0", "OutOfcpu");
    for _ in 0..4 {
        world.settle(&job);
        world.wait(5);
        world.run_pods();
    }
    world.settle(&job);
    assert_eq!(world.row(), "Running 1 1 Successfully reconciled IPUJob");
    assert_eq!(world.resets, [""; 0]);
}

#[test]
fn the_deadline_of_a_pod_and_a_failing_init_container_are_failures() {
    let deadline = json!({"phase": "Failed", "reason": "DeadlineExceeded"});
    let init = json!({"phase": "Failed", "initContainerStatuses": [{
        "name": "fetch", "image": "", "imageID": "", "ready": false, "restartCount": 0,
        "state": {"terminated": {"exitCode": 7, "reason": "Error"}},
    }]});
    let evicted = json!({"phase": "Failed", "reason": "Evicted", "initContainerStatuses": [{
        "name": "fetch", "image": "", "imageID": "", "ready": false, "restartCount": 0,
        "state": {"terminated": {"exitCode": 137, "reason": "Error"}},
    }]});
    for status in [deadline, init, evicted] {
        let (job, mut world) = starting(&IPUJob::sample());
        world.pod_says("sample-worker-0", status);
        world.settle(&job);
        assert_eq!(world.status().launcher_status, JobState::Failed);
    }
}

/// A kubelet that restarts admits its Pods again. It drops the states of the containers of those
/// that it rejects.
#[test]
fn a_pod_that_ran_before_its_rejection_is_lost() {
    let (_, mut world) = running(&IPUJob::sample());
    let ran = ObservedPod::of(world.pod("sample-worker-0")).unwrap();
    world.reject("sample-worker-0", "UnexpectedAdmissionError");
    let rejected = || ObservedPod::of(&world.observed.pods[0]).unwrap();
    let state = |pod: ObservedPod| pod.state(None, 0, false);
    let (_, mut fresh) = starting(&IPUJob::sample());
    let pending = ObservedPod::of(fresh.pod("sample-worker-0")).unwrap();
    assert!(matches!(
        state(rejected().after(Some(&pending))),
        PodState::Rejected(_)
    ));
    for before in [Some(&ran), None] {
        let found = rejected().after(before);
        assert!(
            matches!(state(found.clone()), PodState::Lost(_)),
            "{before:?}"
        );
        // Also later.
        assert!(matches!(
            state(rejected().after(Some(&found))),
            PodState::Lost(_)
        ));
        // Another process has seen it.
        assert!(matches!(found.state(None, 0, true), PodState::Rejected(_)));
    }
}
