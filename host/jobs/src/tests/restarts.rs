//! Jobs that start again: when, how often, and never on a partition that is in use or was not
//! reset.

use ipu_api::ipujob::{CleanPodPolicy, IPUJob, RestartPolicyType};
use ipu_api::ipujob_status::JobState;
use serde_json::json;

use super::fixtures::{JobFixture, parallel};
use super::world::World;
use crate::facts::pod::PodState;
use crate::outcome::Outcome;
use crate::phase::Phase;
use crate::restart::Next;
use crate::validate::ValidJob;

/// A job that runs.
fn running(job: &IPUJob) -> (ValidJob, World) {
    let job = job.valid();
    let mut world = World::new();
    go_on(&job, &mut world);
    assert_eq!(world.status().launcher_status, JobState::Running);
    (job, world)
}

/// Partitions, kubelet and proxy act until the job runs.
fn go_on(job: &ValidJob, world: &mut World) {
    world.settle(job);
    let missing: Vec<u32> = world.slots_without_status();
    world.ready(missing);
    for _ in 0..3 {
        world.reset_partitions();
        world.run_pods();
        world.settle(job);
    }
}

fn run_labels(world: &World) -> Vec<&str> {
    let pods = world.observed.pods.iter();
    pods.filter_map(|pod| pod.metadata.labels.as_ref())
        .map(|labels| labels["graphcore.ai/run"].as_str())
        .collect()
}

#[test]
fn a_failed_launcher_starts_the_whole_run_again_on_a_reset_partition() {
    let (job, mut world) = running(&parallel().restart(RestartPolicyType::OnFailure));
    world.end("sample-launcher", 1);
    let ended = world.step(&job);
    assert!(ended.plan.delete_pods.is_empty(), "it is written first");
    assert!(
        matches!(
            ended.phase,
            Phase::Ended(Outcome::Failed(_), Next::Retry { failures: 1, .. })
        ),
        "{:?}",
        ended.phase
    );
    let message = &world.status().last_message;
    assert!(message.starts_with("restarting, not before"), "{message}");
    assert!(message.contains("failure 1 of at most 3"), "{message}");
    assert_eq!(world.status().restart_count, Some(1));

    let deletes = world.step(&job).plan.delete_pods.len();
    assert_eq!(deletes, 3, "launcher and workers go");
    assert!(world.resets.is_empty(), "not while they are there");
    world.settle(&job);
    assert_eq!(world.resets.len(), 1);
    world.reset_partitions();
    world.settle(&job);
    assert_eq!(world.pods().len(), 0, "it waits");
    world.wait(10);
    world.settle(&job);
    assert_eq!(world.pods().len(), 3);
    go_on(&job, &mut world);
    assert_eq!(world.status().launcher_status, JobState::Running);
    assert_eq!(run_labels(&world), ["1", "1", "1"]);
    assert_eq!(world.resets.len(), 1);
    world.end("sample-launcher", 0);
    world.settle(&job);
    assert_eq!(world.row(), "Completed 0 1 All instances done");
    assert_eq!(world.status().restart_count, Some(1));
}

#[test]
fn after_the_last_allowed_failure_it_is_over() {
    let (job, mut world) = running(&parallel().restart(RestartPolicyType::OnFailure));
    for _ in 0..3 {
        world.end("sample-launcher", 1);
        world.settle(&job);
        world.wait(300);
        go_on(&job, &mut world);
        assert_eq!(world.status().launcher_status, JobState::Running);
    }
    world.end("sample-launcher", 1);
    world.settle(&job);
    assert_eq!(world.status().launcher_status, JobState::Failed);
    assert_eq!(world.status().restart_count, Some(3));
    let failed = world.condition("Failed");
    assert_eq!(failed.reason, "BackoffLimitExceeded");
    assert!(failed.message.contains("exit code 1"), "{}", failed.message);
}

#[test]
fn a_lost_worker_ends_the_run_and_the_policy_decides() {
    let (job, mut world) = running(&parallel().restart(RestartPolicyType::ExitCode));
    world.evict("sample-worker-1");
    world.settle(&job);
    assert_eq!(world.status().restart_count, Some(1));
    let message = &world.status().last_message;
    assert!(
        message.contains("sample-worker-1") && message.contains("Evicted"),
        "{message}"
    );

    let (job, mut world) = running(&parallel().restart(RestartPolicyType::ExitCode));
    world.end("sample-launcher", 2);
    world.settle(&job);
    assert_eq!(world.status().launcher_status, JobState::Failed);
    assert_eq!(world.status().restart_count, Some(0));
}

#[test]
fn always_starts_a_completed_job_again_and_all_never_does() {
    let always = IPUJob::sample().restart(RestartPolicyType::Always);
    let (job, mut world) = running(&always);
    for round in 1..=5 {
        world.end("sample-worker-0", 0);
        world.settle(&job);
        assert_eq!(world.status().restart_count, Some(round));
        world.wait(10);
        go_on(&job, &mut world);
        assert_eq!(world.status().launcher_status, JobState::Running);
    }
    let (job, mut world) = running(&always.clean(CleanPodPolicy::All));
    world.end("sample-worker-0", 0);
    world.settle(&job);
    assert_eq!(world.status().launcher_status, JobState::Completed);
}

#[test]
fn a_deleted_worker_comes_back_on_a_reset_partition_and_is_not_counted() {
    let (job, mut world) = running(&IPUJob::sample().workers("2"));
    world.lose("sample-worker-1");
    world.settle(&job);
    assert_eq!(world.pods(), [""; 0], "both start again together");
    assert_eq!(world.resets.len(), 1);
    go_on(&job, &mut world);
    assert_eq!(world.pods(), ["sample-worker-0", "sample-worker-1"]);
    assert_eq!(world.row(), "Running 1 1 Successfully reconciled IPUJob");
    assert_eq!(world.status().restart_count, Some(0));
    assert_eq!(world.resets.len(), 1, "once");
}

#[test]
fn an_evicted_worker_comes_back_where_its_end_would_have_been_a_failure() {
    let (job, mut world) = running(&IPUJob::sample());
    world.evict("sample-worker-0");
    assert!(matches!(
        world.facts(&job).instances[0].workers[0].state,
        PodState::Lost(_)
    ));
    world.settle(&job);
    go_on(&job, &mut world);
    assert_eq!(world.row(), "Running 1 1 Successfully reconciled IPUJob");
    assert_eq!(world.status().restart_count, Some(0));
}

#[test]
fn an_instance_that_has_ended_is_not_run_again_when_its_pod_is_deleted() {
    let (job, mut world) = running(&IPUJob::sample().instances(2));
    world.end("sample-worker-0", 3);
    world.settle(&job);
    world.lose("sample-worker-0");
    world.settle(&job);
    assert_eq!(world.pods(), ["sample-worker-1"]);
    assert_eq!(world.slots(), [1]);
    world.end("sample-worker-1", 0);
    world.settle(&job);
    let message = &world.status().last_message;
    assert_eq!(world.status().launcher_status, JobState::Failed);
    assert!(message.contains("exit code 3"), "{message}");
}

#[test]
fn a_pod_of_an_earlier_run_is_deleted_and_waited_for() {
    let (job, mut world) = running(&IPUJob::sample().restart(RestartPolicyType::OnFailure));
    world.end("sample-worker-0", 1);
    let before = world.observed.pods.clone();
    world.settle(&job);
    world.wait(60);
    // It is slow to go: it is back in the list, and leaving.
    world.observed.pods = before;
    let now = world.now;
    world.pod("sample-worker-0").metadata.deletion_timestamp = Some(super::world::time(now));
    let resets = world.resets.len();
    world.observed.partitions[0].spec.reset_generation = 0;
    world.settle(&job);
    assert_eq!(world.resets.len(), resets, "no reset under it");
    world.lose("sample-worker-0");
    go_on(&job, &mut world);
    assert_eq!(world.status().launcher_status, JobState::Running);
}

#[test]
fn a_job_with_a_launcher_starts_again_when_its_template_changes() {
    let (_, mut world) = running(&parallel());
    let changed = parallel()
        .template(&json!({"metadata": {"labels": {"version": "2"}}}))
        .valid();
    world.settle(&changed);
    go_on(&changed, &mut world);
    assert_eq!(world.status().launcher_status, JobState::Running);
    assert_eq!(run_labels(&world), ["1", "1", "1"]);
    assert_eq!(world.status().restart_count, Some(0), "nothing failed");
}
