//! Faults that the job pipeline meets: refusals of the API server, processes that are killed, Pods
//! that go.

use ipu_api::ipujob::{IPUJob, RestartPolicyType};
use ipu_api::ipujob_status::{IPUJobStatus, JobState, RunStatus};

use super::fixtures::JobFixture;
use super::world::{CrashPoint, World};
use crate::job_conditions;
use crate::status::{Obstacle, events};
use crate::validate::ValidJob;

/// Two workers that share a partition, without a launcher.
fn pair() -> ValidJob {
    IPUJob::sample().workers("2").valid()
}

fn quota(pod: &str) -> [Obstacle; 1] {
    [Obstacle::Refused {
        object: format!("Pod {pod}"),
        reason: "exceeded quota: pods, requested: pods=1, used: pods=4".to_owned(),
    }]
}

/// The partition is there, and nothing uses it yet.
fn with_partition(job: &ValidJob) -> World {
    let mut world = World::new();
    world.settle(job);
    world.ready([0]);
    world
}

fn used(world: &World) -> Vec<&str> {
    let run = world.status().run.as_ref();
    let used = run.iter().flat_map(|run| run.used.values());
    used.map(String::as_str).collect()
}

#[test]
fn the_use_of_a_partition_is_written_down_before_the_first_pod() {
    for job in [pair(), IPUJob::sample().launcher(&["mpirun"]).valid()] {
        let mut world = with_partition(&job);
        world.step_killed(&job, &[], CrashPoint::BeforePods);
        assert_eq!(world.pods(), [""; 0]);
        assert_eq!(used(&world), ["p-sample-0/0"]);
        assert_eq!(
            world.condition(job_conditions::PARTITIONS_READY).status,
            "True"
        );
    }
}

#[test]
fn a_worker_that_ran_beside_a_refused_one_leaves_no_partition_without_a_reset() {
    let job = pair();
    let mut world = with_partition(&job);
    let refused = quota("sample-worker-1");
    world.step_with(&job, &refused);
    world.run_pods();
    for _ in 0..3 {
        world.step_with(&job, &refused);
    }
    assert_eq!(world.pods(), ["sample-worker-0"], "it goes on waiting");
    assert!(world.resets.is_empty(), "nothing has used it and is gone");
    world.evict("sample-worker-0");
    world.step_with(&job, &refused);
    world.settle(&job);
    assert_eq!(world.resets.len(), 1);
    assert!(world.pods().is_empty(), "nothing uses it before");
    world.reset_partitions();
    world.settle(&job);
    assert_eq!(world.pods().len(), 2);
    assert_eq!(world.resets.len(), 1);
}

#[test]
fn a_worker_that_is_made_later_joins_the_other() {
    let job = pair();
    let mut world = with_partition(&job);
    world.step_with(&job, &quota("sample-worker-1"));
    world.run_pods();
    world.settle(&job);
    assert_eq!(world.pods().len(), 2);
    assert!(world.resets.is_empty());
}

#[test]
fn a_job_whose_pods_are_all_refused_asks_for_no_reset() {
    let job = IPUJob::sample().valid();
    let mut world = with_partition(&job);
    for _ in 0..5 {
        world.step_with(&job, &quota("sample-worker-0"));
    }
    assert!(world.resets.is_empty());
    world.settle(&job);
    assert_eq!(world.pods(), ["sample-worker-0"]);
}

#[test]
fn a_worker_that_was_deleted_before_it_had_a_node_leaves_a_partition_that_needs_no_reset() {
    let job = pair();
    let mut world = with_partition(&job);
    world.settle(&job);
    for name in ["sample-worker-0", "sample-worker-1"] {
        world.lose(name);
        world.observed.uncreated.insert(name.to_owned());
    }
    world.settle(&job);
    assert_eq!((world.resets.len(), world.pods().len()), (0, 2));
}

#[test]
fn a_worker_does_not_hold_up_the_reset_that_the_other_one_waits_for() {
    let job = pair();
    let mut world = with_partition(&job);
    world.settle(&job);
    // An earlier leader saw no Pod, requested a reset, and deleted the first worker when it saw it.
    world.observed.partitions[0].spec.reset_generation += 1;
    world.lose("sample-worker-0");
    world
        .observed
        .uncreated
        .insert("sample-worker-0".to_owned());
    world.settle(&job);
    assert_eq!(world.pods(), [""; 0]);
    world.reset_partitions();
    world.settle(&job);
    assert_eq!(world.pods(), ["sample-worker-0", "sample-worker-1"]);
    assert_eq!(world.resets, [""; 0], "one is enough");
}

#[test]
fn what_another_process_knows_nothing_of_is_reset() {
    let job = pair();
    // Killed before the Pods: nothing proves that there were none.
    let mut world = with_partition(&job);
    world.step_killed(&job, &[], CrashPoint::BeforePods);
    world.settle(&job);
    assert_eq!((world.resets.len(), world.pods().len()), (1, 0));
    world.reset_partitions();
    world.settle(&job);
    assert_eq!((world.resets.len(), world.pods().len()), (1, 2));

    // Killed after one was refused: that one may have been there too.
    let mut world = with_partition(&job);
    world.step_killed(&job, &quota("sample-worker-1"), CrashPoint::BeforeReport);
    world.settle(&job);
    assert_eq!((world.resets.len(), world.pods().len()), (1, 0));

    // Killed after all were made: they are there.
    let mut world = with_partition(&job);
    world.step_killed(&job, &[], CrashPoint::BeforeReport);
    world.settle(&job);
    assert_eq!((world.resets.len(), world.pods().len()), (0, 2));
}

#[test]
fn a_worker_that_an_earlier_version_made_is_reset_after_too() {
    let job = pair();
    let mut world = with_partition(&job);
    world.step_with(&job, &quota("sample-worker-1"));
    // That version wrote the use down once all workers were there.
    world.observed.status.run = None;
    world.observed.uncreated.clear();
    world.evict("sample-worker-0");
    world.settle(&job);
    assert_eq!((world.resets.len(), world.pods().len()), (1, 0));
}

#[test]
fn another_run_uses_the_partition_after_a_reset_wherever_its_process_was_killed() {
    let job = IPUJob::sample()
        .workers("2")
        .launcher(&["mpirun"])
        .restart(RestartPolicyType::OnFailure)
        .valid();
    for killed in [CrashPoint::BeforePods, CrashPoint::BeforeReport] {
        let mut world = with_partition(&job);
        for _ in 0..3 {
            world.settle(&job);
            world.run_pods();
        }
        world.settle(&job);
        world.end("sample-launcher", 1);
        for _ in 0..6 {
            world.step_killed(&job, &[], killed);
            world.step(&job);
            world.reset_partitions();
        }
        assert_eq!(world.status().restart_count, Some(1), "{killed:?}");
        assert!(!world.resets.is_empty(), "{killed:?}");
        world.wait(20);
        for _ in 0..4 {
            world.settle(&job);
            world.reset_partitions();
            world.run_pods();
        }
        world.settle(&job);
        assert_eq!(world.status().launcher_status, JobState::Running);
    }
}

#[test]
fn a_wait_for_pods_is_reported_once_with_any_message() {
    let waits = |message: &str, reason: &str| {
        let condition = serde_json::json!({
            "type": job_conditions::PODS_READY, "status": "False", "reason": reason, "message": message,
        });
        IPUJobStatus {
            conditions: vec![serde_json::from_value(condition).unwrap()],
            ..IPUJobStatus::default()
        }
    };
    let notes = |old: &IPUJobStatus, new: &IPUJobStatus| {
        let events = events::status_events(old, new).into_iter();
        events.map(|event| event.note).collect::<Vec<_>>()
    };
    let first = waits("Unschedulable: 0/3 nodes are available", "PodsWaiting");
    let later = waits("Unschedulable: 0/4 nodes are available", "PodsWaiting");
    let quota_backoff = waits("were released", "PodsRefused");
    let runs = IPUJobStatus::default();
    assert_eq!(notes(&runs, &first).len(), 1);
    assert_eq!(notes(&first, &later), [""; 0]);
    assert_eq!(notes(&later, &quota_backoff), ["were released"]);
    assert_eq!(notes(&quota_backoff, &first).len(), 1);
    assert_eq!(notes(&first, &runs), [""; 0]);
}

#[test]
fn a_status_of_an_earlier_version_keeps_what_it_says_was_used() {
    let job = pair();
    let mut world = with_partition(&job);
    world.settle(&job);
    let run: RunStatus = serde_json::from_value(serde_json::json!({
        "used": {"0": "p-sample-0/0"},
    }))
    .unwrap();
    assert_eq!(world.status().run.as_ref(), Some(&run));
    world.lose("sample-worker-0");
    world.settle(&job);
    assert_eq!(world.resets.len(), 1);
}
