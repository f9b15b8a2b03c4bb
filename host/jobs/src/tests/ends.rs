//! Ends of jobs. A lost worker never counts as a success.

use ipu_api::ipujob::{CleanPodPolicy, IPUJob};
use ipu_api::ipujob_status::JobState;
use ipu_api::naming;
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Container;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::fixtures::{JobFixture, launching, parallel, running};
use super::world::World;
use crate::job_conditions::Recorded;
use crate::outcome::Outcome;
use crate::phase::Phase;
use crate::restart::Next;
use crate::status::{Applied, events};

#[test]
fn the_exit_code_of_the_launcher_decides() {
    for (code, row) in [
        (0, "Completed 0 1 All instances done".to_owned()),
        (
            5,
            "Failed 0 1 launcher failed: Pod sample-launcher, container launcher: exit code 5 (Error)"
                .to_owned(),
        ),
    ] {
        let (job, mut world) = running(&parallel());
        world.end("sample-launcher", code);
        world.settle(&job);
        assert_eq!(world.row(), row);
        assert!(world.status().completion_time.is_some());
    }
}

#[test]
fn a_worker_lost_under_a_running_launcher_fails_the_job_by_name() {
    type Loss = fn(&mut World);
    let losses: [(Loss, &str); 4] = [
        (
            |world| world.lose("sample-worker-1"),
            "sample-worker-1 is gone",
        ),
        (
            |world| {
                let now = Time(world.now);
                world.pod("sample-worker-1").metadata.deletion_timestamp = Some(now);
            },
            "sample-worker-1 was deleted",
        ),
        (
            |world| world.end("sample-worker-1", 137),
            "Pod sample-worker-1, container main: exit code 137",
        ),
        (
            |world| world.end("sample-worker-1", 0),
            "sample-worker-1 ended",
        ),
    ];
    for (loss, wanted) in losses {
        let (job, mut world) = running(&parallel());
        loss(&mut world);
        world.settle(&job);
        assert_eq!(world.status().launcher_status, JobState::Failed);
        let message = &world.status().last_message;
        assert!(message.contains(wanted), "{message}");
        assert!(!world.pods().contains(&"sample-worker-2"));
    }
}

#[test]
fn open_mpi_5_ends_with_0_after_a_loss_and_that_is_no_success() {
    let (job, mut world) = running(&parallel());
    world.lose("sample-worker-0");
    world.end("sample-launcher", 0);
    world.settle(&job);
    assert_eq!(world.status().launcher_status, JobState::Failed);
    assert!(world.status().last_message.contains("sample-worker-0"));
}

#[test]
fn a_worker_that_goes_after_the_launcher_ended_is_no_loss() {
    let (job, mut world) = running(&parallel());
    world.end("sample-launcher", 0);
    let later = world.now + SignedDuration::from_secs(40);
    let worker = world.pod("sample-worker-0");
    // Requested 10 seconds after the launcher's end, with a grace period of 30 seconds.
    worker.metadata.deletion_timestamp = Some(Time(later));
    worker.metadata.deletion_grace_period_seconds = Some(30);
    world.settle(&job);
    assert_eq!(world.status().launcher_status, JobState::Completed);
}

#[test]
fn a_launcher_that_is_deleted_while_it_runs_fails_the_job() {
    let (job, mut world) = running(&parallel());
    world.lose("sample-launcher");
    world.settle(&job);
    assert_eq!(
        world.status().last_message,
        "launcher failed: Pod sample-launcher was deleted while it ran"
    );
    assert!(!world.pods().contains(&"sample-launcher"));
}

/// The kubelet reports late that the launcher runs. Until then it counts as waiting.
#[test]
fn a_worker_lost_before_the_launcher_was_seen_to_run_fails_the_job_by_name() {
    let (job, mut world) = launching(&parallel());
    let going = Some(Time(world.now + SignedDuration::from_secs(30)));
    let grace = Some(30);
    let worker = world.pod("sample-worker-1");
    worker.metadata.deletion_timestamp.clone_from(&going);
    worker.metadata.deletion_grace_period_seconds = grace;
    let mut launcher = world.pod("sample-launcher").clone();
    world.step(&job);
    assert_eq!(
        world.pods(),
        ["sample-worker-0", "sample-worker-1"],
        "the launcher goes first"
    );
    launcher.metadata.deletion_timestamp = going;
    launcher.metadata.deletion_grace_period_seconds = grace;
    world.observed.pods.push(launcher);
    world.run_pods();
    world.settle(&job);
    assert_eq!(world.status().launcher_status, JobState::Failed);
    assert_eq!(
        world.status().last_message,
        "worker sample-worker-1 was deleted, while the launcher ran"
    );
}

#[test]
fn pods_lost_before_the_launcher_started_come_back() {
    let job = parallel().valid();
    let mut world = World::new();
    world.settle(&job);
    world.ready([0]);
    world.settle(&job);
    world.run_pods();
    world.lose("sample-worker-0");
    world.settle(&job);
    world.reset_partitions();
    world.settle(&job);
    assert_eq!(
        world.pods(),
        ["sample-worker-0", "sample-worker-1", "sample-launcher"]
    );
    world.run_pods();
    world.settle(&job);
    world.lose("sample-launcher");
    world.settle(&job);
    assert!(world.pods().contains(&"sample-launcher"));
    assert_eq!(world.status().launcher_status, JobState::Pending);
    assert_eq!(world.status().restart_count, Some(0));
}

#[test]
fn the_end_is_recorded_before_anything_is_cleaned() {
    for policy in [
        CleanPodPolicy::None,
        CleanPodPolicy::Workers,
        CleanPodPolicy::All,
    ] {
        let (job, mut world) = running(&parallel().clean(policy));
        world.end("sample-launcher", 0);
        let ending = world.step(&job);
        assert_eq!(
            ending.phase,
            Phase::Ended(Outcome::Completed, Next::Terminal(None))
        );
        assert!(ending.plan.delete_pods.is_empty() && ending.plan.delete_partitions.is_empty());
        let cleaning = world.step(&job);
        assert_eq!(cleaning.phase, Phase::Finished(Recorded::Completed));
        world.settle(&job);
        let (pods, slots): (&[&str], &[u32]) = match policy {
            CleanPodPolicy::None => (
                &["sample-worker-0", "sample-worker-1", "sample-launcher"],
                &[0],
            ),
            CleanPodPolicy::Workers => (&["sample-launcher"], &[]),
            CleanPodPolicy::All => (&[], &[]),
        };
        assert_eq!(world.pods(), pods, "{policy:?}");
        assert_eq!(world.slots(), slots, "{policy:?}");
        assert_eq!(world.row(), "Completed 0 1 All instances done");
    }
}

/// A mesh adds a container to the launcher, which does not end by itself.
#[test]
fn a_sidecar_of_the_launcher_ends_and_its_log_stays() {
    for (policy, code) in [
        (CleanPodPolicy::None, 0),
        (CleanPodPolicy::Workers, 0),
        (CleanPodPolicy::Workers, 5),
        (CleanPodPolicy::All, 0),
    ] {
        let (job, mut world) = running(&parallel().clean(policy));
        let launcher = world.pod("sample-launcher");
        let spec = launcher.spec.as_mut().unwrap();
        spec.containers.push(Container {
            name: "proxy".to_owned(),
            ..Container::default()
        });
        world.end_main("sample-launcher", code);
        let steps = world.settle(&job);
        let ended = steps.iter().flat_map(|step| &step.plan.end_pods);
        let ended: Vec<&str> = ended.map(|pod| pod.name.as_str()).collect();
        let stays = policy != CleanPodPolicy::All;
        assert_eq!(ended.contains(&"sample-launcher"), stays, "{policy:?}");
        assert_eq!(world.pods().contains(&"sample-launcher"), stays);
        let expected = if code == 0 { "Completed" } else { "Failed" };
        assert!(world.row().starts_with(expected), "{}", world.row());
    }
}

/// The kubelet ends native sidecars itself.
#[test]
fn the_partition_waits_for_a_native_sidecar_of_the_launcher() {
    let (job, mut world) = running(&parallel().clean(CleanPodPolicy::Workers));
    world.end("sample-launcher", 0);
    let launcher = world.pod("sample-launcher");
    launcher.status.as_mut().unwrap().phase = Some("Running".to_owned());
    world.settle(&job);
    assert_eq!(world.pods(), ["sample-launcher"]);
    assert_eq!(world.slots(), [0]);
    world.end("sample-launcher", 0);
    world.settle(&job);
    assert_eq!(world.pods(), ["sample-launcher"]);
    assert_eq!(world.slots(), [0; 0]);
}

#[test]
fn a_job_without_launcher_ends_when_all_its_instances_have() {
    for (codes, row) in [
        ([0, 0], "Completed 0 2 All instances done"),
        (
            [0, 3],
            "Failed 0 2 worker failed: Pod sample-worker-1, container main: exit code 3 (Error)",
        ),
    ] {
        let (job, mut world) = running(&IPUJob::sample().instances(2));
        world.end("sample-worker-0", codes[0]);
        world.settle(&job);
        assert_eq!(world.row(), "Running 1 2 Successfully reconciled IPUJob");
        assert_eq!(
            world.slots(),
            [1],
            "the first instance gave its partition back"
        );
        world.end("sample-worker-1", codes[1]);
        world.settle(&job);
        assert_eq!(world.row(), row);
        assert_eq!(world.slots(), [0; 0]);
        assert_eq!(world.pods().len(), 2, "Pods stay for their logs");
    }
}

/// The reasons and notes of the events of all writes.
fn reported(steps: &[super::world::Step]) -> Vec<(&'static str, String)> {
    let events = steps
        .iter()
        .flat_map(|step| events::write_events(&step.plan, &Applied::default()));
    events.map(|event| (event.reason, event.note)).collect()
}

#[test]
fn one_event_reports_the_clean_up_of_an_instance() {
    let (job, _) = running(&parallel());
    let partition = naming::partition_object(&job.partition_owner(), 0);
    let released = |policy: &str| {
        let note = format!("released {partition}, which no Pod uses any more; deleted its Pods");
        let note = format!("{note} (cleanPodPolicy: {policy})");
        ("PartitionReleased", note)
    };
    let launcher = "deleted Pod sample-launcher".to_owned();
    for (policy, expected) in [
        (CleanPodPolicy::Workers, vec![released("Workers")]),
        (
            CleanPodPolicy::All,
            vec![("SuccessfulDelete", launcher), released("All")],
        ),
        // The workers go on.
        (CleanPodPolicy::None, Vec::new()),
    ] {
        let mut spec = parallel();
        spec.spec.clean_pod_policy = Some(policy);
        let (job, mut world) = running(&spec);
        world.end("sample-launcher", 0);
        let found = reported(&world.settle(&job));
        assert_eq!(found, expected, "{policy:?}");
    }
}

#[test]
fn an_ended_pod_that_is_being_deleted_is_not_deleted_again() {
    let mut spec = parallel();
    spec.spec.clean_pod_policy = Some(CleanPodPolicy::Workers);
    let (job, mut world) = running(&spec);
    world.end("sample-launcher", 0);
    let steps = world.settle(&job);
    let deleted = |step: &super::world::Step| step.plan.delete_pods.len();
    assert_eq!(steps.iter().map(deleted).sum::<usize>(), 2);

    let (job, mut world) = running(&spec);
    world.end("sample-launcher", 0);
    for worker in ["sample-worker-0", "sample-worker-1"] {
        world.end(worker, 143);
        let now = world.now;
        world.pod(worker).metadata.deletion_timestamp = Some(Time(now));
    }
    let steps = world.settle(&job);
    assert_eq!(steps.iter().map(deleted).sum::<usize>(), 0);
}
