//! Pods that cannot start: after a time they give their partition back, and the next one avoids its
//! V-IPU controller.

use ipu_api::ipujob::IPUJob;
use ipu_api::ipujob_status::{InstanceStart, JobState};
use serde_json::{Value, json};

use super::fixtures::{JobFixture, launching, parallel, running, starting};
use super::world::World;
use crate::facts::LAUNCHER_START;
use crate::status::events::status_events;
use crate::validate::ValidJob;
use ipu_runtime::pod_start::node_report::NodeReport;

const WORKER: &str = "sample-worker-0";

impl World {
    /// The kubelet: every Pod that has not started runs and is Ready, but for this one.
    fn run_pods_but(&mut self, pod: &str) {
        let status = self.pod(pod).status.clone();
        self.run_pods();
        self.pod(pod).status = status;
    }

    /// The events of a Pod: a failure of its node, and whether an image is being pulled.
    fn node_reports(&mut self, pod: &str, obstacle: Option<&str>, is_pulling: bool) {
        let report = NodeReport {
            obstacle: obstacle.map(str::to_owned),
            is_pulling,
        };
        self.observed.node_reports.insert(pod.to_owned(), report);
    }
}

fn unschedulable() -> Value {
    json!({"phase": "Pending", "conditions": [{
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
        "message": "0/2 nodes are available: 2 node(s) were unschedulable.",
    }]})
}

/// A Pod one of whose containers waits for this reason.
fn waiting(reason: &str) -> Value {
    json!({"phase": "Pending", "containerStatuses": [{
        "name": "main", "image": "", "imageID": "", "ready": false, "restartCount": 0,
        "state": {"waiting": {"reason": reason, "message": "no such thing"}},
    }]})
}

/// A Pod whose main container cannot start while an init container of this name runs.
fn initializing(init: &str) -> Value {
    let mut status = waiting("ErrImagePull");
    status["initContainerStatuses"] = json!([{
        "name": init, "image": "", "imageID": "", "ready": false, "restartCount": 0,
        "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
    }]);
    status
}

/// Names of the V-IPU controllers that the next partition of a slot avoids.
fn avoided(world: &World, slot: u32) -> &[String] {
    let mut partitions = world.observed.partitions.iter();
    let partition = partitions.find(|found| found.spec.slot == slot).unwrap();
    &partition.spec.options.avoid_controllers
}

fn start<'a>(world: &'a World, key: &str) -> Option<&'a InstanceStart> {
    world.status().run.as_ref()?.starts.get(key)
}

/// As long as the default of the chart.
fn wait_for_the_timeout(world: &mut World, job: &ValidJob) {
    world.settle(job);
    world.wait(590);
    world.settle(job);
}

#[test]
fn a_pod_that_cannot_start_gives_its_partition_back() {
    for status in [
        unschedulable(),
        waiting("ErrImagePull"),
        waiting("ImagePullBackOff"),
        waiting("InvalidImageName"),
        waiting("CreateContainerConfigError"),
        waiting("CreateContainerError"),
    ] {
        let (job, mut world) = starting(&IPUJob::sample());
        world.pod_says(WORKER, status);
        wait_for_the_timeout(&mut world, &job);
        assert_eq!(world.pods(), [WORKER], "not yet");
        let before = world.status().clone();
        world.wait(10);
        let plan = world.step(&job).plan;
        assert_eq!(plan.delete_pods.len(), 1);
        world.step(&job);
        world.step(&job);
        let message = &world.status().last_message;
        let expected = "Pods of the job could not start for 600 seconds, so the partition of instance 0 on \
                        pod1:8090 was released, and the job requests another one: Pod sample-worker-0: ";
        assert!(message.starts_with(expected), "{message}");
        assert_eq!(world.condition("PodsReady").reason, "PodsNotStarted");
        let events = status_events(&before, world.status());
        assert!(
            events.iter().any(|event| event.note == *message),
            "{events:?}"
        );

        // Another partition is requested, and no reset of the old one.
        world.settle(&job);
        assert_eq!(world.slots(), [0]);
        assert_eq!(avoided(&world, 0), ["pod1:8090"]);
        assert_eq!(world.resets, [""; 0]);
        assert_eq!(world.status().restart_count, Some(0));
        world.ready([0]);
        world.settle(&job);
        world.run_pods();
        world.settle(&job);
        assert_eq!(world.row(), "Running 1 1 Successfully reconciled IPUJob");
        assert_eq!(start(&world, "0"), None);
    }
}

#[test]
fn a_pull_an_init_container_and_a_running_sibling_take_as_long_as_they_take() {
    let fetches = IPUJob::sample().template(&json!({"spec": {"initContainers": [
        {"name": "fetch", "image": "data:1"},
        {"name": "mesh", "image": "mesh:1", "restartPolicy": "Always"},
    ]}}));
    let pulls = waiting("ContainerCreating");
    for (status, is_kept) in [
        (pulls, true),
        (initializing("fetch"), true),
        (initializing("mesh"), false),
    ] {
        let (job, mut world) = starting(&fetches);
        world.pod_says(WORKER, status.clone());
        wait_for_the_timeout(&mut world, &job);
        world.wait(10);
        let is_left = world.step(&job).plan.delete_pods.is_empty();
        assert_eq!(is_left, is_kept, "{status}");
    }
    let (job, mut world) = starting(&IPUJob::sample().workers("2"));
    world.pod_says(WORKER, unschedulable());
    world.run_pods_but(WORKER);
    for _ in 0..3 {
        wait_for_the_timeout(&mut world, &job);
    }
    assert_eq!(world.pods().len(), 2);
    // It has ended: nothing runs, and others need the IPUs.
    world.end("sample-worker-1", 0);
    wait_for_the_timeout(&mut world, &job);
    world.wait(10);
    world.settle(&job);
    assert_eq!(avoided(&world, 0), ["pod1:8090"]);
}

#[test]
fn a_volume_that_cannot_be_mounted_is_a_reason() {
    let (job, mut world) = starting(&IPUJob::sample());
    let why = "FailedMount: MountVolume.SetUp failed for volume \"key\" : secret \"key\" not found";
    world.pod_says(WORKER, waiting("ContainerCreating"));
    world.node_reports(WORKER, Some(why), false);
    world.settle(&job);
    assert_eq!(world.row(), format!("Running 1 1 Pod {WORKER}: {why}"));
    wait_for_the_timeout(&mut world, &job);
    world.wait(10);
    world.settle(&job);
    assert_eq!(avoided(&world, 0), ["pod1:8090"]);
}

#[test]
fn a_container_beside_the_program_keeps_no_partition() {
    let proxies = IPUJob::sample().template(&json!({"spec": {"containers": [
        {"name": "main", "image": "program:1"}, {"name": "proxy", "image": "proxy:1"},
    ]}}));
    let state = |name: &str, state: &Value| {
        json!({
            "name": name, "image": "", "imageID": "", "ready": true, "restartCount": 0, "state": state,
        })
    };
    let runs = json!({"running": {"startedAt": "2026-01-01T00:00:00Z"}});
    let missing = json!({"waiting": {"reason": "ErrImagePull", "message": "no such thing"}});
    let pending = |main: &Value, proxy: &Value| json!({"phase": "Pending", "containerStatuses": [state("main", main), state("proxy", proxy)]});
    let (job, mut world) = starting(&proxies);
    world.pod_says(WORKER, pending(&missing, &runs));
    wait_for_the_timeout(&mut world, &job);
    world.wait(10);
    world.settle(&job);
    assert_eq!(avoided(&world, 0), ["pod1:8090"]);

    let (job, mut world) = starting(&proxies);
    world.pod_says(WORKER, pending(&runs, &missing));
    wait_for_the_timeout(&mut world, &job);
    world.wait(10);
    world.settle(&job);
    assert_eq!(world.pods(), [WORKER], "the program runs");
    let message = "Pod sample-worker-0 runs, and another container of it waits: \
                   container proxy: ErrImagePull: no such thing";
    assert_eq!(world.row(), format!("Running 1 1 {message}"));
    let condition = world.condition("PodsReady");
    assert_eq!(condition.reason, "ContainersWaiting");
    // The program ends, and with it the job, although the proxy has not started.
    let done = json!({"terminated": {"exitCode": 0, "finishedAt": "2026-01-01T00:30:00Z"}});
    world.pod_says(WORKER, pending(&done, &missing));
    let steps = world.settle(&job);
    assert!(steps.iter().any(|step| !step.plan.end_pods.is_empty()));
    assert_eq!(world.status().launcher_status, JobState::Completed);
}

#[test]
fn an_image_that_is_pulled_again_takes_as_long_as_it_takes() {
    let (job, mut world) = starting(&IPUJob::sample());
    world.pod_says(WORKER, waiting("ImagePullBackOff"));
    wait_for_the_timeout(&mut world, &job);
    world.node_reports(WORKER, None, true);
    world.wait(3_600);
    world.settle(&job);
    assert_eq!(world.pods(), [WORKER]);
    let reason = format!("Pod {WORKER}: ImagePullBackOff: no such thing");
    let message = format!("{reason}; the image is being pulled again");
    assert_eq!(world.row(), format!("Running 1 1 {message}"));
    // It has failed again, and could not be pulled for more than ten minutes.
    world.node_reports(WORKER, None, false);
    world.settle(&job);
    assert_eq!(avoided(&world, 0), ["pod1:8090"]);
}

#[test]
fn a_registry_that_fails_slowly_gives_no_more_time() {
    let (job, mut world) = starting(&IPUJob::sample());
    world.pod_says(WORKER, waiting("ErrImagePull"));
    world.settle(&job);
    let since = start(&world, "0").cloned();
    for is_pulling in [true, false, true, false, true] {
        world.node_reports(WORKER, None, is_pulling);
        world.wait(119);
        world.settle(&job);
        assert_eq!(start(&world, "0"), since.as_ref(), "{is_pulling}");
    }
    world.node_reports(WORKER, None, false);
    world.wait(5);
    world.settle(&job);
    assert_eq!(avoided(&world, 0), ["pod1:8090"]);

    // A pull that succeeds after all ends the record.
    let (job, mut world) = starting(&IPUJob::sample());
    world.pod_says(WORKER, waiting("ErrImagePull"));
    world.settle(&job);
    world.pod_says(WORKER, waiting("ContainerCreating"));
    world.settle(&job);
    assert_eq!(start(&world, "0"), None);
}

#[test]
fn a_sidecar_whose_startup_probe_fails_gives_the_partition_back() {
    let meshed = IPUJob::sample().template(&json!({"spec": {"initContainers": [
        {"name": "mesh", "image": "mesh:1", "restartPolicy": "Always"},
    ]}}));
    let (job, mut world) = starting(&meshed);
    let mesh = |state: Value, restarts: i32| {
        let mut status = waiting("PodInitializing");
        status["initContainerStatuses"] = json!([{
            "name": "mesh", "image": "", "imageID": "", "ready": false, "restartCount": restarts,
            "started": false, "state": state, "lastState": {"terminated": {"exitCode": 137}},
        }]);
        status
    };
    let runs = json!({"running": {"startedAt": "2026-01-01T00:00:00Z"}});
    let ended = json!({"terminated": {"exitCode": 137}});
    let waits = json!({"waiting": {"reason": "CrashLoopBackOff"}});
    for state in [runs.clone(), ended, waits, runs.clone()] {
        world.pod_says(WORKER, mesh(state, 1));
        world.settle(&job);
        world.wait(150);
        assert!(start(&world, "0").is_some());
    }
    let why = "container mesh runs, and its startup probe has not succeeded";
    assert_eq!(world.row(), format!("Running 1 1 Pod {WORKER}: {why}"));
    world.settle(&job);
    assert_eq!(avoided(&world, 0), ["pod1:8090"]);
}

#[test]
fn a_timeout_of_zero_keeps_the_partition() {
    let (job, mut world) = starting(&IPUJob::sample());
    world.settings.start_timeout = None;
    world.pod_says(WORKER, unschedulable());
    for _ in 0..100 {
        wait_for_the_timeout(&mut world, &job);
    }
    assert_eq!(world.pods(), [WORKER]);
}

#[test]
fn rejections_count_until_the_pods_start() {
    let (job, mut world) = starting(&IPUJob::sample());
    let begin = world.now;
    while avoided(&world, 0).is_empty() {
        if world.pods() == [WORKER] {
            world.reject(WORKER, "OutOfcpu");
        }
        world.settle(&job);
        world.wait(20);
        assert!(world.now.duration_since(begin).as_secs() < 1500, "for ever");
        if world.slots().is_empty() {
            world.settle(&job);
        }
    }
    assert!(world.now.duration_since(begin).as_secs() >= 600);
    assert_eq!(world.resets, [""; 0]);
}

#[test]
fn only_the_instance_whose_pods_cannot_start_moves() {
    let (job, mut world) = starting(&IPUJob::sample().instances(2));
    world.pod_says(WORKER, unschedulable());
    world.run_pods_but(WORKER);
    wait_for_the_timeout(&mut world, &job);
    world.wait(10);
    world.settle(&job);
    assert_eq!(world.pods(), ["sample-worker-1"]);
    assert_eq!(avoided(&world, 0), ["pod1:8090"]);
    assert_eq!(avoided(&world, 1), [""; 0]);
}

#[test]
fn the_partitions_of_a_launcher_go_together() {
    let job = parallel().instances(2);
    // A worker cannot start, and the others wait for the launcher.
    let (valid, mut world) = starting(&job);
    world.pod_says("sample-worker-3", waiting("ImagePullBackOff"));
    world.run_pods_but("sample-worker-3");
    wait_for_the_timeout(&mut world, &valid);
    assert_eq!(world.pods().len(), 5);
    world.wait(10);
    world.settle(&valid);
    assert_eq!(world.pods(), [""; 0]);
    assert_eq!(world.slots(), [0, 1]);
    assert_eq!(avoided(&world, 0), [""; 0]);
    assert_eq!(avoided(&world, 1), ["pod1:8090"]);

    // The launcher cannot start.
    let (valid, mut world) = launching(&job);
    world.pod_says("sample-launcher", waiting("CreateContainerConfigError"));
    wait_for_the_timeout(&mut world, &valid);
    assert!(start(&world, LAUNCHER_START).is_some());
    assert_eq!(world.pods().len(), 5);
    world.wait(10);
    world.settle(&valid);
    assert_eq!(world.pods(), [""; 0]);
    assert_eq!(avoided(&world, 0), ["pod1:8090"]);
    assert_eq!(start(&world, LAUNCHER_START), None);
}

#[test]
fn an_admitted_job_waits_for_kueue_before_it_requests_again() {
    let (mut job, mut world) = starting(&IPUJob::sample());
    job.is_admitted = true;
    world.pod_says(WORKER, unschedulable());
    wait_for_the_timeout(&mut world, &job);
    world.wait(10);
    world.settle(&job);
    assert_eq!(world.slots(), [0; 0]);
    assert!(start(&world, "0").unwrap().releasing);
    // Kueue has evicted it, and admits it again.
    job.is_admitted = false;
    job.suspension = crate::validate::Suspension::Suspended;
    world.settle(&job);
    assert!(!start(&world, "0").unwrap().releasing);
    job.is_admitted = true;
    job.suspension = crate::validate::Suspension::Active;
    world.settle(&job);
    assert_eq!(avoided(&world, 0), ["pod1:8090"]);
}

#[test]
fn a_running_job_has_no_start() {
    let (job, mut world) = running(&parallel());
    world.wait(10_000);
    world.settle(&job);
    assert_eq!(world.status().launcher_status, JobState::Running);
    let run = world.status().run.as_ref().unwrap();
    assert!(run.starts.is_empty());
}
