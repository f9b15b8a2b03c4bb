//! Rules and limits that become stricter: no new job starts, and started jobs continue to their
//! end.

use ipu_api::ipujob::{CleanPodPolicy, IPUJob, RestartPolicyType};
use ipu_api::ipujob_status::JobState;
use serde_json::{Value, json};

use super::fixtures::{JobFixture, MAX_IPUS};
use super::world::{Objects, World};
use crate::job_conditions;
use crate::raw::RawJob;
use crate::salvage::salvage;
use crate::status::events;
use crate::validate::{ValidJob, read};

/// A limit that a job of 4 IPUs breaks.
const STRICT: u32 = 2;

fn strict(job: &IPUJob) -> ValidJob {
    read(&job.object(), STRICT).unwrap()
}

/// A job that runs, under the limit that it was started under.
fn running(job: &IPUJob) -> World {
    let job = job.valid();
    let mut world = World::new();
    world.settle(&job);
    world.ready(world.slots_without_status());
    for _ in 0..2 {
        world.settle(&job);
        world.run_pods();
    }
    world.settle(&job);
    assert_eq!(world.status().launcher_status, JobState::Running);
    world
}

fn reasons(before: &ipu_api::ipujob_status::IPUJobStatus, world: &World) -> Vec<&'static str> {
    let events = events::status_events(before, world.status()).into_iter();
    events.map(|event| event.reason).collect()
}

#[test]
fn a_stricter_limit_lets_what_runs_go_on_to_its_end() {
    for (job, last) in [
        (IPUJob::sample(), "sample-worker-0"),
        (
            IPUJob::sample()
                .launcher(&["mpirun"])
                .clean(CleanPodPolicy::Workers),
            "sample-launcher",
        ),
    ] {
        let mut world = running(&job);
        let (before, job) = (world.status().clone(), strict(&job));
        world.settle(&job);
        assert_eq!(world.row(), "Running 1 1 Successfully reconciled IPUJob");
        assert_eq!(reasons(&before, &world), [""; 0], "nobody is alarmed");
        world.end(last, 0);
        world.settle(&job);
        assert_eq!(world.row(), "Completed 0 1 All instances done");
        assert_eq!(world.slots(), [0; 0], "it is released");
    }
}

#[test]
fn a_run_that_fails_is_followed_by_another_on_its_partition() {
    let job = IPUJob::sample()
        .launcher(&["mpirun"])
        .restart(RestartPolicyType::OnFailure);
    let (mut world, job) = (running(&job), strict(&job));
    world.end("sample-launcher", 1);
    world.settle(&job);
    world.wait(20);
    for _ in 0..4 {
        world.reset_partitions();
        world.settle(&job);
        world.run_pods();
    }
    world.settle(&job);
    assert_eq!(world.row(), "Running 1 1 Successfully reconciled IPUJob");
    assert_eq!(world.status().restart_count, Some(1));
}

#[test]
fn a_job_that_is_yet_to_start_says_why_it_does_not_and_starts_once_it_may() {
    let job = IPUJob::sample();
    let mut world = World::new();
    world.settle(&strict(&job));
    assert_eq!(world.slots(), [0; 0]);
    assert_eq!(world.status().launcher_status, JobState::Failed);
    assert_eq!(world.status().completion_time, None);
    let failed = world.condition(job_conditions::FAILED);
    assert_eq!(failed.reason, "IPUJobInvalid");
    let message = &world.status().last_message;
    for said in [message, &failed.message] {
        assert!(said.contains("spec.ipusPerJobInstance: \"4\""), "{said}");
    }
    let job = job.valid();
    world.settle(&job);
    assert_eq!(world.slots(), [0]);
    world.ready([0]);
    world.settle(&job);
    assert_eq!(world.row(), "Running 1 1 Successfully reconciled IPUJob");
}

#[test]
fn more_of_a_job_is_a_start_and_less_of_it_is_none() {
    let job = IPUJob::sample().instances(2);
    let mut world = running(&job);
    world.settle(&strict(&job.clone().instances(3)));
    assert_eq!(world.slots(), [0, 1]);
    let row = world.row();
    assert!(row.contains("spec.ipusPerJobInstance: \"4\""), "{row}");
    let why = &world.condition(job_conditions::PARTITIONS_READY).message;
    assert!(why.starts_with("instance 2: spec.ipusPerJob"), "{why}");
    world.settle(&strict(&job.clone().instances(1)));
    assert_eq!(world.slots(), [0]);
    assert_eq!(world.pods(), ["sample-worker-0"]);
    assert_eq!(world.row(), "Running 1 1 Successfully reconciled IPUJob");
}

#[test]
fn a_worker_that_is_lost_comes_back_on_its_partition() {
    let job = IPUJob::sample();
    let (mut world, job) = (running(&job), strict(&job));
    world.evict("sample-worker-0");
    world.settle(&job);
    world.reset_partitions();
    world.settle(&job);
    assert_eq!(world.pods(), ["sample-worker-0"]);
}

#[test]
fn a_start_that_was_half_way_comes_to_its_end() {
    let job = IPUJob::sample().instances(2).launcher(&["mpirun"]);
    let mut world = World::new();
    world.settle(&job.valid());
    world.ready([0]);
    world.observed.partitions.pop();
    let job = strict(&job);
    world.settle(&job);
    assert_eq!(world.slots(), [0, 1], "one holds nothing without the other");
}

/// A job that waits for IPUs has not started: it does not start against a stricter limit once IPUs
/// are free.
#[test]
fn what_waits_for_its_partition_is_given_up_and_begins_once_it_may() {
    let parallel = IPUJob::sample().instances(2).launcher(&["mpirun"]);
    for job in [IPUJob::sample(), parallel] {
        let mut world = World::new();
        world.settle(&job.valid());
        let waiting = world.slots();
        world.settle(&strict(&job));
        assert_eq!(world.slots(), [0; 0]);
        let message = &world.status().last_message;
        assert!(
            message.contains("spec.ipusPerJobInstance: \"4\""),
            "{message}"
        );
        assert_eq!(world.status().launcher_status, JobState::Failed);
        world.settle(&job.valid());
        assert_eq!(world.slots(), waiting);
    }
}

#[test]
fn what_has_run_and_waits_for_another_partition_is_not_given_up() {
    let job = IPUJob::sample();
    let (mut world, job) = (running(&job), strict(&job));
    world.evict("sample-worker-0");
    world.settle(&job);
    // As after a loss: nothing is left of the partition, and another one is looked for.
    for partition in &mut world.observed.partitions {
        partition.status = None;
    }
    world.settle(&job);
    assert_eq!(world.slots(), [0]);
    world.ready([0]);
    world.reset_partitions();
    world.settle(&job);
    assert_eq!(world.pods(), ["sample-worker-0"]);
}

#[test]
fn a_suspended_job_stays_suspended_and_resuming_it_is_a_start() {
    let job = IPUJob::sample();
    let mut world = running(&job);
    let suspended = strict(&job.clone().suspend(true));
    world.settle(&suspended);
    assert_eq!(world.slots(), [0; 0]);
    assert_eq!(world.status().launcher_status, JobState::Suspended);
    world.settle(&strict(&job));
    assert_eq!(world.slots(), [0; 0]);
    assert_eq!(world.status().launcher_status, JobState::Failed);
    world.settle(&job.valid());
    assert_eq!(world.slots(), [0]);
}

#[test]
fn a_job_that_has_ended_is_cleaned_and_deleted_in_its_time() {
    let mut job = IPUJob::sample();
    job.spec.ttl_seconds_after_finished = Some(60);
    let mut world = running(&job);
    world.end("sample-worker-0", 0);
    world.step(&job.valid());
    let job = strict(&job);
    world.settle(&job);
    assert_eq!(world.slots(), [0; 0]);
    world.wait(60);
    assert!(world.step(&job).plan.delete_job);
}

/// A job whose spec is no longer understood, with what there is of it.
fn unreadable(job: &IPUJob, patch: &Value, objects: &Objects) -> Option<ValidJob> {
    let mut object = job.object();
    json_patch::merge(&mut object, patch);
    let error = read(&object, MAX_IPUS).unwrap_err();
    let raw: RawJob = serde_json::from_value(object).unwrap();
    salvage(&raw, &objects.read(), error)
}

#[test]
fn an_unreadable_job_that_ends_releases_its_partitions() {
    let parallel = IPUJob::sample().workers("2").launcher(&["mpirun"]);
    let broken = [
        json!({"spec": {"ipusPerJobInstance": "3"}}),
        json!({"spec": {"jobInstances": 2_000_000_000}}),
        json!({"spec": {"jobInstances": "many"}}),
        json!({"spec": {"workers": {"template": {"spec": {"hostIPC": "yes"}}}}}),
        json!({"spec": {"restartPolicy": {"type": "Sometimes"}}}),
    ];
    for (job, last) in [
        (IPUJob::sample().instances(2).workers("2"), None),
        (
            parallel.clean(CleanPodPolicy::Workers),
            Some("sample-launcher"),
        ),
    ] {
        for (patch, code) in broken.iter().flat_map(|patch| [(patch, 0), (patch, 1)]) {
            let mut world = running(&job);
            let pods = world.pods().len();
            let salvaged = unreadable(&job, patch, &world.observed).unwrap();
            world.settle(&salvaged);
            assert_eq!(world.pods().len(), pods, "{patch}");
            assert_eq!(world.status().launcher_status, JobState::Running);
            match last {
                Some(launcher) => world.end(launcher, code),
                None => {
                    for pod in world
                        .pods()
                        .into_iter()
                        .map(str::to_owned)
                        .collect::<Vec<_>>()
                    {
                        world.end(&pod, code);
                    }
                }
            }
            // As in the controller: the state is read again each time.
            for _ in 0..4 {
                let salvaged = unreadable(&job, patch, &world.observed).unwrap();
                world.step(&salvaged);
            }
            let expected = match code {
                0 => JobState::Completed,
                _ => JobState::Failed,
            };
            assert_eq!(world.status().launcher_status, expected, "{patch}");
            assert_eq!(world.slots(), [0; 0], "{patch}");
            assert!(world.status().completion_time.is_some());
        }
    }
}

#[test]
fn nothing_is_made_for_a_job_that_cannot_be_read() {
    let job = IPUJob::sample().workers("2");
    let patch = json!({"spec": {"ipusPerJobInstance": "3"}});
    assert_eq!(unreadable(&job, &patch, &Objects::default()), None);
    let mut world = running(&job);
    world.lose("sample-worker-1");
    let salvaged = unreadable(&job, &patch, &world.observed).unwrap();
    world.settle(&salvaged);
    assert_eq!(world.pods(), ["sample-worker-0"]);
    assert!(world.resets.is_empty());
    // Once it is corrected, both start again together.
    let job = job.valid();
    world.settle(&job);
    world.reset_partitions();
    world.settle(&job);
    assert_eq!(world.pods().len(), 2);
}
