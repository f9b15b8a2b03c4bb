//! A launcher that is created together with its workers: the agent holds its command back until all
//! of them are Ready.

use ipu_api::ipujob::IPUJob;
use ipu_api::ipujob_status::JobState;
use ipu_api::labels;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

use super::cluster::{self, Cluster};
use super::fixtures::{JobFixture, parallel, running, starting};
use super::world::{CrashPoint, World};
use crate::step;
use crate::validate::ValidJob;

const LAUNCHER: &str = "sample-launcher";

/// Value of the annotation by which the agent starts the command.
fn start(pod: &Pod) -> Option<&str> {
    let annotations = pod.metadata.annotations.as_ref()?;
    annotations
        .get(labels::START_ANNOTATION)
        .map(String::as_str)
}

/// A job whose Pods were all created, and whose launcher runs before its workers.
fn holding(job: &IPUJob) -> (ValidJob, World) {
    let (job, mut world) = starting(job);
    world.run_held();
    world.settle(&job);
    assert_eq!(start(world.pod(LAUNCHER)), Some("held"));
    (job, world)
}

#[test]
fn a_launcher_is_created_with_its_workers_and_released_when_they_are_ready() {
    let (job, mut world) = holding(&parallel());
    assert_eq!(world.pods().len(), 3);
    assert_eq!(world.row(), "Pending 1 1 Successfully reconciled IPUJob");
    assert!(!world.facts(&job).has_run);
    world.run_pods();
    let release = world.step(&job).plan.release_launcher.unwrap();
    assert_eq!((&*release.name, &*release.uid), (LAUNCHER, LAUNCHER));
    assert_eq!(world.status().launcher_status, JobState::Pending);
    world.settle(&job);
    assert_eq!(world.row(), "Running 1 1 Successfully reconciled IPUJob");
    assert_eq!(start(world.pod(LAUNCHER)), Some(&*release.at));
    assert_eq!(world.step(&job).plan.release_launcher, None, "once");
}

/// Somebody requests a reset while the Pods start. It waits until no Pod uses the partition, and
/// workers that wait for their launcher use it for ever.
#[test]
fn a_reset_that_waits_for_workers_does_not_keep_their_launcher_from_its_start() {
    let (job, mut world) = holding(&parallel());
    world.observed.partitions[0].spec.reset_generation += 1;
    world.settle(&job);
    assert_eq!(start(world.pod(LAUNCHER)), Some("held"));
    world.run_pods();
    world.settle(&job);
    world.run_held();
    world.settle(&job);
    assert_eq!(world.row(), "Running 1 1 Successfully reconciled IPUJob");
}

#[test]
fn a_launcher_is_not_created_while_an_instance_has_no_partition() {
    let (job, mut world) = holding(&parallel().instances(2));
    // A user has deleted it. It goes when its workers have ended.
    let now = Time(world.now);
    world.observed.partitions[1].metadata.deletion_timestamp = Some(now);
    world.settle(&job);
    assert!(!world.pods().contains(&LAUNCHER), "{:?}", world.pods());
}

#[test]
fn a_launcher_is_not_released_before_the_last_worker_is_ready() {
    let (job, mut world) = holding(&parallel());
    world.run_pods();
    world.pod("sample-worker-1").status = None;
    world.wait(10_000);
    world.settle(&job);
    assert_eq!(start(world.pod(LAUNCHER)), Some("held"));
    assert_eq!(world.status().launcher_status, JobState::Pending);
}

#[test]
fn a_release_precedes_a_container_that_starts_late() {
    let (job, mut world) = starting(&parallel());
    world.run_pods();
    world.settle(&job);
    assert_ne!(start(world.pod(LAUNCHER)), Some("held"));
    assert_eq!(world.status().launcher_status, JobState::Pending);
    world.run_pods();
    world.settle(&job);
    assert_eq!(world.status().launcher_status, JobState::Running);
}

#[test]
fn workers_lost_before_the_release_come_back_uncounted_with_another_launcher() {
    let (job, mut world) = holding(&parallel());
    world.run_pods();
    world.pod("sample-worker-1").status = None;
    world.settle(&job);
    world.lose("sample-worker-1");
    world.settle(&job);
    assert_eq!(world.resets.len(), 1);
    assert_eq!(world.pods(), [""; 0], "it starts again as a whole");
    world.reset_partitions();
    world.settle(&job);
    assert_eq!(world.pods().len(), 3);
    assert_eq!(start(world.pod(LAUNCHER)), Some("held"));
    world.run_held();
    world.run_pods();
    world.settle(&job);
    assert_eq!(world.status().launcher_status, JobState::Running);
    assert_eq!(world.status().restart_count, Some(0));
}

#[test]
fn a_held_launcher_that_is_lost_comes_back_uncounted() {
    let (job, mut world) = holding(&parallel());
    world.lose(LAUNCHER);
    world.settle(&job);
    assert_eq!(start(world.pod(LAUNCHER)), Some("held"));
    world.evict(LAUNCHER);
    world.settle(&job);
    assert_eq!(start(world.pod(LAUNCHER)), Some("held"));
    assert_eq!(world.pods().len(), 3);
    assert!(world.resets.is_empty());
    assert_eq!(world.status().launcher_status, JobState::Pending);
    assert_eq!(world.status().restart_count, Some(0));
}

#[test]
fn a_held_launcher_that_fails_ends_the_run_as_a_launcher_does() {
    for (code, expected) in [
        (
            1,
            "launcher failed: Pod sample-launcher, container launcher: exit code 1 (Error)",
        ),
        (
            0,
            "launcher failed: Pod sample-launcher: exit code 0 (Completed): it ended before its workers were Ready",
        ),
    ] {
        let (job, mut world) = holding(&parallel());
        world.end(LAUNCHER, code);
        world.settle(&job);
        assert_eq!(world.status().launcher_status, JobState::Failed);
        assert_eq!(world.status().last_message, expected);
    }
}

#[test]
fn an_interactive_job_lasts_from_the_release() {
    let (job, mut world) = holding(&IPUJob::sample().workers("2").interactive(3600));
    assert_eq!(world.status().session_end_time, None);
    world.wait(10_000);
    world.run_pods();
    world.settle(&job);
    let released: Timestamp = start(world.pod(LAUNCHER)).unwrap().parse().unwrap();
    let until = world.status().session_end_time.clone().unwrap().0;
    assert_eq!(
        until.duration_since(released),
        SignedDuration::from_secs(3600)
    );
}

#[test]
fn a_launcher_with_init_containers_of_the_user_is_created_when_the_workers_are_ready() {
    let mount = json!([{"name": "data", "mountPath": "/d"}]);
    let template = json!({"spec": {
        "volumes": [{"name": "data", "emptyDir": {}}],
        "initContainers": [{"name": "fetch", "image": "c", "volumeMounts": mount}],
        "containers": [{"name": "main", "image": "a", "volumeMounts": mount}],
    }});
    let (job, mut world) = starting(&parallel().template(&template));
    assert_eq!(world.pods().len(), 2);
    world.run_pods();
    world.settle(&job);
    let launcher = world.pod(LAUNCHER);
    assert_eq!(start(launcher), None);
    let container = &launcher.spec.as_ref().unwrap().containers[0];
    assert_eq!(container.command, Some(vec!["mpirun".to_owned()]));
    world.run_pods();
    world.settle(&job);
    assert_eq!(world.status().launcher_status, JobState::Running);
}

#[test]
fn a_launcher_of_an_earlier_version_runs_with_its_container() {
    let (job, mut world) = starting(&parallel());
    world.run_pods();
    world.pod(LAUNCHER).metadata.annotations = None;
    world.run_pods();
    world.settle(&job);
    assert_eq!(world.status().launcher_status, JobState::Running);
    world.end(LAUNCHER, 0);
    world.settle(&job);
    assert_eq!(world.status().launcher_status, JobState::Completed);
}

#[test]
fn a_held_launcher_does_not_use_another_partition_than_its_workers() {
    let (job, mut world) = holding(&parallel());
    // The controller has seen neither the end of the first partition nor that of its Pods.
    let status = world.observed.partitions[0].status.as_mut().unwrap();
    status.partition_id = Some("p-other".to_owned());
    world.settle(&job);
    world.settle(&job);
    let launcher = world.pod(LAUNCHER).metadata.clone();
    assert_eq!(
        launcher.labels.unwrap()["graphcore.ai/partition-id"],
        "p-other"
    );
    assert_eq!(world.pods().len(), 3);
}

#[test]
fn a_controller_killed_at_any_step_releases_the_launcher_once_and_not_early() {
    for killed in [CrashPoint::BeforePods, CrashPoint::BeforeReport] {
        for cut in 0..8 {
            let (job, mut world) = (parallel().valid(), World::new());
            let mut releases = 0;
            for number in 0..20 {
                let crash = if number == cut {
                    killed
                } else {
                    CrashPoint::Never
                };
                let release = world.step_killed(&job, &[], crash).plan.release_launcher;
                let was_sent = crash != CrashPoint::BeforePods;
                releases += usize::from(release.is_some() && was_sent);
                if release.is_some() {
                    let workers = ["sample-worker-0", "sample-worker-1"];
                    assert!(workers.iter().all(|name| world.pod(name).status.is_some()));
                }
                let slots = world.slots_without_status();
                world.ready(slots);
                world.reset_partitions();
                world.run_held();
                if number % 3 == 2 {
                    world.run_pods();
                }
            }
            assert_eq!(
                world.status().launcher_status,
                JobState::Running,
                "{killed:?} {cut}"
            );
            assert_eq!(releases, 1, "{killed:?} {cut}");
            assert_eq!(world.status().restart_count, Some(0), "{killed:?} {cut}");
        }
    }
}

#[tokio::test]
async fn a_quota_that_refuses_a_pod_holds_nothing_up_for_longer_than_it_refuses() {
    for refused in ["sample-worker-1", LAUNCHER] {
        // This cluster refuses any object of the name, and the ServiceAccount of a launcher has its
        // name.
        let mut job = parallel();
        let launcher = job.spec.launcher.as_mut().unwrap();
        launcher.service_account_name = Some("trainer".to_owned());
        let cluster = Cluster::default();
        let (context, job) = (cluster.context(), cluster.submit(&job));
        let reconcile = async |times: usize| {
            for _ in 0..times {
                cluster.deliver(&context);
                step::step(&context, &job).await.unwrap();
                cluster.partitions_ready();
                cluster.pods_run();
            }
        };
        reconcile(1).await;
        // The trial of the Pods has found nothing.
        cluster.refuse(&[refused]);
        reconcile(4).await;
        let asked = cluster.asked();
        assert!(
            !asked.iter().any(|request| request.starts_with("DELETE")),
            "{asked:?}"
        );
        // A launcher does not take the place of a worker.
        assert!(
            cluster.object(&cluster::pod(LAUNCHER)).is_null(),
            "{asked:?}"
        );
        assert!(!cluster.object(&cluster::pod("sample-worker-0")).is_null());
        cluster.refuse(&[]);
        reconcile(5).await;
        let status = cluster.object(&cluster::job("sample"))["status"].clone();
        assert_eq!(status["launcherStatus"], "Running", "{refused}");
    }
}

#[test]
fn a_running_job_has_a_released_launcher() {
    let (_, mut world) = running(&parallel());
    let released: Timestamp = start(world.pod(LAUNCHER)).unwrap().parse().unwrap();
    assert!(released <= world.now);
}
