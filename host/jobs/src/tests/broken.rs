//! Partitions that break, vanish or have to leave their controller under a job.

use ipu_api::ipujob::{IPUJob, RestartPolicyType};
use ipu_api::ipujob_status::JobState;
use ipu_api::ipupartition::{AutoResets, IPUPartitionStatus, PartitionPhase};
use ipu_api::partition_conditions::{self, DRAINING};

use super::fixtures::{JobFixture, parallel};
use super::world::{World, controller};
use crate::phase::Phase;
use crate::status::events;
use crate::validate::ValidJob;

fn running(job: &IPUJob) -> (ValidJob, World) {
    let job = job.valid();
    let mut world = World::new();
    world.settle(&job);
    world.ready(world.slots_without_status());
    go_on(&job, &mut world);
    assert_eq!(world.status().launcher_status, JobState::Running);
    (job, world)
}

fn go_on(job: &ValidJob, world: &mut World) {
    for _ in 0..3 {
        world.settle(job);
        world.run_pods();
    }
    world.settle(job);
}

/// The proxy reports a partition in ERROR, or a lost one.
fn in_error(is_gone: bool) -> IPUPartitionStatus {
    IPUPartitionStatus {
        phase: PartitionPhase::Error,
        controller: (!is_gone).then(controller),
        partition_id: (!is_gone).then(|| "p-sample-0".to_owned()),
        generation: 1,
        message: Some("link 3 does not train".to_owned()),
        ..IPUPartitionStatus::default()
    }
}

fn leaving() -> IPUPartitionStatus {
    let ready = IPUPartitionStatus {
        phase: PartitionPhase::Ready,
        ..in_error(false)
    };
    let now = "2026-01-01T00:00:00Z".parse().unwrap();
    let message = "pod1:8090 is being drained".to_owned();
    let mut leaving = IPUPartitionStatus {
        message: Some(message.clone()),
        ..ready
    };
    partition_conditions::set(&mut leaving, DRAINING, "ControllerDrained", message, now);
    leaving
}

/// The proxy reports that another partition has replaced the previous one.
fn moved() -> IPUPartitionStatus {
    IPUPartitionStatus {
        phase: PartitionPhase::Ready,
        partition_id: Some("p-sample-0-moved".to_owned()),
        ..in_error(false)
    }
}

#[test]
fn pods_on_a_broken_partition_end_also_where_a_reset_waits_for_them() {
    let (job, mut world) = running(&IPUJob::sample());
    world.observed.partitions[0].spec.reset_generation += 1;
    world.partition_status(0, in_error(false));
    world.settle(&job);
    assert!(world.pods().is_empty());
    assert!(world.resets.is_empty(), "it is asked for already");
}

#[test]
fn an_instance_starts_again_on_a_partition_that_was_reset() {
    for is_gone in [false, true] {
        let (job, mut world) = running(&IPUJob::sample());
        world.partition_status(0, in_error(is_gone));
        assert_eq!(world.step(&job).plan.delete_pods.len(), 1);
        assert!(world.resets.is_empty(), "not while its Pod is there");
        let why = &world.condition("PartitionsReady").message;
        assert!(why.contains("link 3 does not train"), "{why}");
        world.settle(&job);
        assert_eq!(world.resets.len(), 1);
        assert!(world.pods().is_empty());
        world.ready([0]);
        world.reset_partitions();
        go_on(&job, &mut world);
        assert_eq!(world.pods(), ["sample-worker-0"]);
        assert_eq!(world.status().restart_count, Some(0), "it is not counted");
    }
}

#[test]
fn a_run_under_a_launcher_has_failed_and_its_policy_decides() {
    for (policy, expected) in [
        (RestartPolicyType::Never, JobState::Failed),
        (RestartPolicyType::OnFailure, JobState::Pending),
    ] {
        let (job, mut world) = running(&parallel().restart(policy));
        world.partition_status(0, in_error(false));
        world.step(&job);
        let status = world.status();
        assert_eq!(status.launcher_status, expected, "{policy:?}");
        assert!(
            status.last_message.contains("link 3 does not train"),
            "{status:?}"
        );
        world.settle(&job);
        assert_eq!(
            world.resets.len(),
            usize::from(expected == JobState::Pending)
        );
    }
}

#[test]
fn one_that_breaks_before_the_launcher_is_reset_under_no_pod() {
    let job = parallel().valid();
    let mut world = World::new();
    world.settle(&job);
    world.ready([0]);
    world.settle(&job);
    assert_eq!(world.pods().len(), 3, "none has started");
    world.partition_status(0, in_error(false));
    world.settle(&job);
    assert!(world.pods().is_empty());
    assert_eq!(world.resets.len(), 1);
}

#[test]
fn instances_leave_a_drained_controller_and_come_back() {
    let (job, mut world) = running(&IPUJob::sample());
    world.partition_status(0, leaving());
    world.settle(&job);
    assert!(world.pods().is_empty());
    assert!(world.resets.is_empty(), "the proxy makes it anew elsewhere");
    world.partition_status(0, moved());
    go_on(&job, &mut world);
    assert_eq!(world.pods(), ["sample-worker-0"]);
    assert_eq!(world.status().restart_count, Some(0));
}

#[test]
fn a_partition_may_move_as_the_restart_policy_of_now_says() {
    let once = parallel();
    let again = parallel().restart(RestartPolicyType::OnFailure);
    let (_, mut world) = running(&once);
    for (job, pinned) in [(&again, false), (&once, true), (&again, false)] {
        world.step(&job.valid());
        assert_eq!(world.observed.partitions[0].spec.options.pinned, pinned);
    }
    let (_, mut world) = running(&IPUJob::sample());
    let plan = world.step(&IPUJob::sample().valid()).plan;
    assert_eq!(plan.pin_updates, [], "a worker by itself is always moved");
}

#[test]
fn a_run_leaves_a_drained_controller_only_where_another_may_follow() {
    let (job, mut world) = running(&parallel());
    assert!(world.observed.partitions[0].spec.options.pinned);
    world.partition_status(0, leaving());
    assert_eq!(world.step(&job).phase, Phase::Running);

    let (job, mut world) = running(&parallel().restart(RestartPolicyType::OnFailure));
    assert!(!world.observed.partitions[0].spec.options.pinned);
    world.partition_status(0, leaving());
    let step = world.step(&job);
    assert!(matches!(step.phase, Phase::Restart(why) if why.contains("is being drained")));
    world.settle(&job);
    assert!(world.pods().is_empty());
    world.partition_status(0, moved());
    go_on(&job, &mut world);
    assert_eq!(world.pods().len(), 3);
    assert_eq!(world.status().restart_count, Some(0), "it is not counted");
    assert_eq!(world.status().launcher_status, JobState::Running);
}

#[test]
fn instances_under_one_launcher_are_wanted_together() {
    let mut job = parallel();
    job.spec.job_instances = 3;
    let job = job.valid();
    let mut world = World::new();
    world.settle(&job);
    let gangs = world.observed.partitions.iter();
    let gangs: Vec<_> = gangs.map(|one| one.spec.options.gang_size).collect();
    assert_eq!(gangs, [Some(3), Some(3), Some(3)]);
    world.ready([0, 1]);
    world.settle(&job);
    assert!(
        world.pods().is_empty(),
        "they would hold what could be released"
    );
    world.ready([2]);
    world.settle(&job);
    assert_eq!(world.pods().len(), 7);
}

#[test]
fn automatic_resets_are_counted_and_reported() {
    let (job, mut world) = running(&IPUJob::sample());
    assert_eq!(world.status().automatic_resets, None);
    let before = world.status().clone();
    let mut status = world.observed.partitions[0].status.clone().unwrap();
    status.auto_resets = Some(AutoResets {
        count: 2,
        max: 3,
        last_time: None,
    });
    world.partition_status(0, status);
    world.settle(&job);
    assert_eq!(world.status().automatic_resets, Some(2));
    let reported = events::status_events(&before, world.status());
    assert!(
        reported
            .iter()
            .any(|event| event.reason == "AutomaticReset"),
        "{reported:?}"
    );
}
