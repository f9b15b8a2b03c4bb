//! Interactive and suspended jobs, and deadlines.

use ipu_api::ipujob::{CleanPodPolicy, IPUJob};
use ipu_api::ipujob_status::JobState;
use jiff::SignedDuration;
use serde_json::json;

use super::fixtures::JobFixture;
use super::world::{World, environment};
use crate::validate::ValidJob;

fn running(job: &IPUJob) -> (ValidJob, World) {
    let job = job.valid();
    let mut world = World::new();
    world.settle(&job);
    world.ready(0..job.instances);
    for _ in 0..3 {
        world.settle(&job);
        world.run_pods();
    }
    world.settle(&job);
    assert_eq!(world.status().launcher_status, JobState::Running);
    (job, world)
}

#[test]
fn an_interactive_job_reports_its_end_and_completes_by_itself() {
    let (job, mut world) = running(&IPUJob::sample().workers("2").interactive(3600));
    let launcher = world.pod("sample-launcher").clone();
    let container = &launcher.spec.as_ref().unwrap().containers[0];
    assert_eq!(
        container.command.as_ref().unwrap()[5..],
        ["idle", "--grace-seconds", "28", "--seconds", "3600"]
    );
    assert!(environment(&launcher, 0).contains_key("OMPI_MCA_plm_rsh_agent"));
    let since = world.started("sample-launcher");
    let until = world.status().session_end_time.clone().unwrap().0;
    assert_eq!(until.duration_since(since), SignedDuration::from_secs(3600));
    let message = &world.status().last_message;
    assert!(
        message.contains("kubectl exec -it sample-launcher -- bash"),
        "{message}"
    );

    world.end("sample-launcher", 0);
    world.settle(&job);
    assert_eq!(world.row(), "Completed 0 1 All instances done");
    assert_eq!(
        world.pods(),
        ["sample-launcher"],
        "no IPU is held by an ended interactive job"
    );
    assert_eq!(world.slots(), [0; 0]);
}

#[test]
fn a_suspended_job_holds_nothing_and_continues_once_resumed() {
    let two = IPUJob::sample().instances(2);
    let (_, mut world) = running(&two);
    let first_start = world.status().start_time.clone();
    let resting = two.clone().suspend(true).valid();
    world.settle(&resting);
    assert_eq!(world.row(), "Suspended 0 2 suspended: spec.suspend is true");
    assert_eq!((world.pods().len(), world.slots().len()), (0, 0));
    assert_eq!(world.status().start_time, None);
    assert_eq!(world.condition("Suspended").status, "True");

    let job = two.suspend(false).valid();
    world.settle(&job);
    world.ready([0, 1]);
    world.settle(&job);
    world.run_pods();
    world.settle(&job);
    assert_eq!(world.row(), "Running 2 2 Successfully reconciled IPUJob");
    assert_eq!(world.condition("Suspended").status, "False");
    assert!(world.status().start_time > first_start);
    assert!(world.resets.is_empty(), "new partitions need no reset");
}

#[test]
fn a_parallel_job_at_rest_is_not_taken_for_failed() {
    let parallel = IPUJob::sample().workers("2").launcher(&["mpirun"]);
    let (_, mut world) = running(&parallel);
    let resting = parallel.clone().suspend(true).valid();
    world.settle(&resting);
    assert_eq!(world.pods().len(), 0);
    let job = parallel.valid();
    world.settle(&job);
    assert_eq!(world.status().launcher_status, JobState::Pending);
    assert_eq!(world.slots(), [0]);
}

#[test]
fn a_job_that_is_active_for_too_long_fails_and_frees_its_ipus() {
    let mut spec = IPUJob::sample().workers("2").launcher(&["mpirun"]);
    spec.spec.active_deadline_seconds = Some(600);
    let (job, mut world) = running(&spec);
    let plan = world.step(&job).plan;
    assert!(plan.requeue.unwrap().as_secs() < 600, "it wakes in time");
    world.wait(600);
    world.settle(&job);
    assert_eq!(world.status().launcher_status, JobState::Failed);
    assert_eq!(world.condition("Failed").reason, "DeadlineExceeded");
    assert_eq!((world.pods().len(), world.slots().len()), (0, 0));
}

#[test]
fn a_finished_job_is_deleted_after_its_time() {
    let mut spec = IPUJob::sample();
    spec.spec.ttl_seconds_after_finished = Some(60);
    let (job, mut world) = running(&spec);
    world.end("sample-worker-0", 0);
    world.settle(&job);
    let plan = world.step(&job).plan;
    assert!(!plan.delete_job);
    assert!(plan.requeue.unwrap().as_secs() <= 60);
    world.wait(60);
    assert!(world.step(&job).plan.delete_job);
}

#[test]
fn a_pod_that_is_about_to_end_is_left_to_end() {
    let job = IPUJob::sample().clean(CleanPodPolicy::None);
    let (job, mut world) = running(&job);
    world.end_main("sample-worker-0", 0);
    for _ in 0..2 {
        let plan = world.step(&job).plan;
        assert!(plan.end_pods.is_empty() && plan.delete_pods.is_empty());
        assert!(
            plan.delete_partitions.is_empty(),
            "native sidecars may still use it"
        );
    }
    assert_eq!(world.row(), "Completed 0 1 All instances done");
    world.end("sample-worker-0", 0);
    world.settle(&job);
    assert_eq!(world.slots(), [0; 0]);
}

#[test]
fn a_sidecar_does_not_keep_a_job_from_completing() {
    let job =
        IPUJob::sample()
            .clean(CleanPodPolicy::None)
            .template(&json!({"spec": {"containers": [
                {"name": "main", "image": "a"},
                {"name": "side", "image": "b"},
            ]}}));
    let (job, mut world) = running(&job);
    world.end_main("sample-worker-0", 0);
    let ended = world.step(&job);
    assert!(ended.plan.end_pods.is_empty() && ended.plan.delete_partitions.is_empty());
    assert_eq!(world.row(), "Completed 0 1 All instances done");
    let ending = world.step(&job).plan;
    assert_eq!(ending.end_pods.len(), 1);
    assert!(
        ending.delete_partitions.is_empty(),
        "the sidecar may still use it"
    );
    world.settle(&job);
    assert_eq!(
        world.pods(),
        ["sample-worker-0"],
        "the Pod stays for its logs"
    );
    assert_eq!(world.slots(), [0; 0]);
    assert_eq!(world.status().launcher_status, JobState::Completed);
}
