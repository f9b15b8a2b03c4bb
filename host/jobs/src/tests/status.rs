//! The contents of the status, and the times of its writes.

use ipu_api::ipujob::IPUJob;
use ipu_api::ipujob_status::{IPUJobStatus, JobCondition, JobState};
use ipu_api::ipupartition::{IPUPartitionStatus, PartitionPhase};
use serde_json::json;

use super::fixtures::{JobFixture, MAX_IPUS, parallel, refusal};
use super::world::World;
use crate::job_conditions;
use crate::status::{self, Applied, Obstacle, events};

#[test]
fn pending_turns_to_false_and_keeps_its_times() {
    let job = IPUJob::sample().valid();
    let mut world = World::new();
    world.settle(&job);
    let pending = world.condition("Pending").clone();
    assert_eq!(pending.status, "True");
    assert_eq!(pending.reason, "IPUJobPending");
    assert_eq!(
        pending.message,
        "IPUJob default/sample is waiting for resources to be ready."
    );
    world.ready([0]);
    world.settle(&job);
    let after = world.condition("Pending").clone();
    assert_eq!(
        after,
        JobCondition {
            status: "False".to_owned(),
            ..pending
        }
    );
    let running = world.condition("Running");
    assert_eq!(running.message, "IPUJob default/sample is running.");
    assert_eq!(world.status().conditions[0].type_, "Pending");
}

#[test]
fn waiting_has_a_reason_for_each_controller() {
    let job = IPUJob::sample().instances(2).valid();
    let mut world = World::new();
    world.settle(&job);
    world.waits(0, "4 IPUs are free in pieces of 2");
    world.settle(&job);
    assert_eq!(
        world.row(),
        "Pending 0 2 partition not ready yet!partition not ready yet!"
    );
    let waiting = world.condition(job_conditions::PARTITIONS_READY);
    assert_eq!(waiting.status, "False");
    for part in [
        "instance 0: pod1:8090: 4 IPUs are free in pieces of 2",
        "instance 1: ",
    ] {
        assert!(waiting.message.contains(part), "{}", waiting.message);
    }
}

#[test]
fn pods_are_counted_before_they_are_created_and_need_no_write_of_their_own() {
    let job = parallel().valid();
    let mut world = World::new();
    world.settle(&job);
    world.ready([0]);
    let creation = world.step(&job);
    assert_eq!(creation.plan.create_pods.len(), 3);
    let counted = world.status().clone();
    assert_eq!(counted.current_replicas, Some(1));
    assert_eq!(counted.workers_status.unwrap_or_default().active, 2);
    world.step(&job);
    assert_eq!(*world.status(), counted, "the Pods exist now");
}

#[test]
fn pods_that_are_refused_are_not_counted() {
    let job = IPUJob::sample().valid();
    let mut world = World::new();
    world.settle(&job);
    world.ready([0]);
    let quota = Obstacle::Refused {
        object: "Pod sample-worker-0".to_owned(),
        reason: "exceeded quota: pods".to_owned(),
    };
    world.step_with(&job, &[quota]);
    assert_eq!(world.status().current_replicas, Some(0));
    assert_eq!(world.status().workers_status.unwrap_or_default().active, 0);
}

#[test]
fn nothing_is_written_where_only_time_has_passed() {
    let job = IPUJob::sample().valid();
    let mut world = World::new();
    world.settle(&job);
    let before = world.status().clone();
    world.step(&job);
    world.step(&job);
    assert_eq!(*world.status(), before);
    assert!(before.last_reconcile_time.is_some());
}

#[test]
fn a_job_that_can_never_be_placed_says_so_and_goes_on_when_it_can() {
    let job = IPUJob::sample().valid();
    let mut world = World::new();
    world.settle(&job);
    world.partition_status(
        0,
        IPUPartitionStatus {
            phase: PartitionPhase::Rejected,
            message: Some("no V-IPU controller has 4 IPUs".to_owned()),
            ..IPUPartitionStatus::default()
        },
    );
    world.settle(&job);
    assert_eq!(world.row(), "Failed 0 1 no V-IPU controller has 4 IPUs");
    assert!(world.status().completion_time.is_none());
    world.ready([0]);
    world.settle(&job);
    assert_eq!(world.row(), "Running 1 1 Successfully reconciled IPUJob");
    assert!(
        world
            .status()
            .conditions
            .iter()
            .all(|found| found.type_ != "Failed")
    );
}

#[test]
fn a_stranger_in_the_way_is_named_and_nothing_ends() {
    let job = IPUJob::sample().valid();
    let mut world = World::new();
    world.settle(&job);
    world.ready([0]);
    let stranger = Obstacle::NotOwned {
        object: "Pod sample-worker-0".to_owned(),
        owner: "ReplicaSet web".to_owned(),
    };
    let step = world.step_with(&job, std::slice::from_ref(&stranger));
    assert_eq!(
        world.row(),
        "Pending 0 1 Pod sample-worker-0 exists and belongs to ReplicaSet web; delete it, or give \
         the job another name"
    );
    let hindered = Applied {
        obstacles: vec![stranger],
        ..Applied::default()
    };
    assert!(events::write_events(&step.plan, &hindered).is_empty());
    let blocked = Applied {
        blocked: true,
        ..Applied::default()
    };
    assert!(events::write_events(&step.plan, &blocked).is_empty());
    assert_eq!(
        events::write_events(&step.plan, &Applied::default()).len(),
        1
    );
    world.settle(&job);
    assert_eq!(world.row(), "Running 1 1 Successfully reconciled IPUJob");
}

#[test]
fn a_selector_that_contradicts_the_controller_holds_the_pod_back() {
    let job = IPUJob::sample()
        .template(&json!({"spec": {"nodeSelector": {"ipunode": "pod2"}}}))
        .valid();
    let mut world = World::new();
    world.settle(&job);
    world.ready([0]);
    world.settle(&job);
    assert!(world.pods().is_empty());
    let waiting = world.condition(job_conditions::PARTITIONS_READY);
    assert!(
        waiting.message.contains("ipunode=pod2") && waiting.message.contains("ipunode=pod1"),
        "{}",
        waiting.message
    );
}

#[test]
fn outdated_pods_of_a_rollout_are_reported_by_name() {
    let mut world = World::new();
    let before = IPUJob::sample().valid();
    world.settle(&before);
    world.ready([0]);
    world.settle(&before);
    world.run_pods();
    world.settle(&before);
    let after = IPUJob::sample()
        .template(&json!({"metadata": {"labels": {"new": "yes"}}}))
        .valid();
    world.step(&after);
    let current = world.condition(job_conditions::TEMPLATE_CURRENT);
    assert_eq!(current.reason, "RollingOut");
    assert!(
        current.message.contains("sample-worker-0"),
        "{}",
        current.message
    );
    assert_eq!(world.slots(), [0, 1], "another instance stands in");
}

#[test]
fn the_end_of_a_job_and_the_reason_for_kept_partitions_are_one_write() {
    let job = IPUJob::sample().launcher(&["mpirun"]).valid();
    let mut world = World::new();
    world.settle(&job);
    world.ready([0]);
    world.settle(&job);
    world.run_pods();
    world.settle(&job);
    world.run_pods();
    world.settle(&job);
    world.end("sample-launcher", 0);
    world.step(&job);
    let kept = world.condition(job_conditions::PARTITIONS_RELEASED);
    assert_eq!(kept.status, "False");
    assert!(kept.message.contains("sample-worker-0"), "{}", kept.message);
    let recorded = world.status().clone();
    assert_eq!(recorded.launcher_status, JobState::Completed);
    world.settle(&job);
    assert_eq!(*world.status(), recorded, "it takes one write");
    world.end("sample-worker-0", 0);
    world.settle(&job);
    world.settle(&job);
    assert_eq!(
        world.condition(job_conditions::PARTITIONS_RELEASED).status,
        "True"
    );
}

#[test]
fn a_job_that_cannot_be_read_says_why() {
    let bad = IPUJob::sample().ipus("3").object();
    let error = refusal(&bad, MAX_IPUS).unwrap();
    let now = World::new().now;
    let old = IPUJobStatus::default();
    let status = status::invalid::build(&bad, &error, &old, now);
    assert_eq!(status.launcher_status, JobState::Failed);
    assert!(
        status.last_message.contains("spec.ipusPerJobInstance")
            && status.last_message.contains("\"3\""),
        "{}",
        status.last_message
    );
    assert_eq!(job_conditions::recorded_end(&status), None);
    assert!(
        job_conditions::is_condition_true(&status, job_conditions::STALLED),
        "for kstatus"
    );
    let turned: Vec<_> = events::status_events(&old, &status)
        .into_iter()
        .map(|event| (event.is_warning, event.reason))
        .collect();
    assert_eq!(turned, [(true, "IPUJobFailed")]);
}

#[test]
fn a_status_takes_the_place_of_the_old_one_whole() {
    let mut object = IPUJob::sample().object();
    object["metadata"]["resourceVersion"] = json!("7");
    object["status"] = json!({"launcherStatus": "Pending", "odd": 1});
    let mut expected = object.clone();
    expected["status"] = json!(IPUJobStatus::default());
    let written = status::with_status(&object, &IPUJobStatus::default());
    assert_eq!(written, expected);
    assert_eq!(written["status"].get("odd"), None);
}
