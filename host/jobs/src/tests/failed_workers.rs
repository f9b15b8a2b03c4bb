//! A worker that fails while others of its job run, in jobs without a launcher.

use ipu_api::ipujob::{FailurePolicy, IPUJob, RestartPolicyType};
use ipu_api::ipujob_status::JobState;

use super::fixtures::{JobFixture, running};
use crate::job_conditions::PODS_READY;
use crate::status::events::status_events;

const SAID: &str =
    "worker failed, and others run: Pod sample-worker-1, container main: exit code 1 (Error)";

fn job(policy: Option<FailurePolicy>) -> IPUJob {
    let mut job = IPUJob::sample().workers("4");
    job.spec.workers.failure_policy = policy;
    job
}

#[test]
fn a_failed_worker_is_reported_at_once_while_its_siblings_run() {
    for policy in [None, Some(FailurePolicy::Wait)] {
        let (job, mut world) = running(&job(policy));
        let before = world.status().clone();
        world.end("sample-worker-1", 1);
        world.step(&job);
        assert_eq!(world.row(), format!("Running 1 1 {SAID}"));
        let condition = world.condition(PODS_READY);
        assert_eq!(
            (&*condition.status, &*condition.reason),
            ("False", "WorkerFailed")
        );
        assert_eq!(condition.message, SAID);
        let events = status_events(&before, world.status());
        let events: Vec<_> = events
            .iter()
            .map(|event| (event.reason, &*event.note))
            .collect();
        assert_eq!(events, [("WorkerFailed", SAID)]);

        // Another failure has an event of its own, and the instance still waits for its last
        // worker.
        let before = world.status().clone();
        world.end("sample-worker-0", 137);
        world.settle(&job);
        assert_eq!(status_events(&before, world.status()).len(), 1);
        assert_eq!(world.pods().len(), 4);
        assert_eq!(world.status().launcher_status, JobState::Running);
        world.end("sample-worker-2", 0);
        world.end("sample-worker-3", 0);
        world.settle(&job);
        assert_eq!(world.status().launcher_status, JobState::Failed);
    }
}

#[test]
fn a_failed_worker_ends_its_instance_with_fail_instance() {
    let (job, mut world) = running(&job(Some(FailurePolicy::FailInstance)));
    world.end("sample-worker-1", 1);
    world.settle(&job);
    assert_eq!(
        world.row(),
        "Failed 0 1 worker failed: Pod sample-worker-1, container main: exit code 1 (Error)"
    );
    assert_eq!(world.pods(), ["sample-worker-1"], "its log stays");
    assert_eq!(world.slots(), [0; 0]);
}

#[test]
fn the_job_restarts_after_the_end_of_its_instance() {
    let job = job(Some(FailurePolicy::FailInstance)).restart(RestartPolicyType::OnFailure);
    let (job, mut world) = running(&job);
    world.end("sample-worker-1", 1);
    world.settle(&job);
    world.wait(20);
    for _ in 0..3 {
        world.reset_partitions();
        world.settle(&job);
        world.run_pods();
    }
    world.settle(&job);
    assert_eq!(world.row(), "Running 1 1 Successfully reconciled IPUJob");
    assert_eq!(world.pods().len(), 4);
    assert_eq!(world.status().restart_count, Some(1));
}

#[test]
fn another_instance_continues_beside_a_failed_one() {
    let job = job(Some(FailurePolicy::FailInstance)).instances(2);
    let (job, mut world) = running(&job);
    world.end("sample-worker-1", 1);
    world.settle(&job);
    assert_eq!(world.row(), format!("Running 1 2 {SAID}"));
    assert_eq!(
        world.pods(),
        [
            "sample-worker-1",
            "sample-worker-4",
            "sample-worker-5",
            "sample-worker-6",
            "sample-worker-7"
        ]
    );
    assert_eq!(world.slots(), [1], "its partition is released");
    for worker in 4..8 {
        world.end(&format!("sample-worker-{worker}"), 0);
    }
    world.settle(&job);
    assert_eq!(world.status().launcher_status, JobState::Failed);
}
