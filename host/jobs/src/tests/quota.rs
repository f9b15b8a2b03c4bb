//! Quota of Kueue of a job whose Pods the API server refuses: it goes back, as a partition would.

use ipu_api::ipujob::IPUJob;
use ipu_api::ipujob_status::InstanceStart;
use serde_json::json;

use super::cluster::{self, Cluster};
use super::fixtures::{JobFixture, starting};
use super::world::World;
use crate::facts::Facts;
use crate::plan::Plan;
use crate::status::Obstacle;
use crate::step;
use crate::validate::{Suspension, ValidJob};

impl World {
    /// Does what the executor does after a trial.
    pub(super) fn refuse(
        &self,
        job: &ValidJob,
        facts: &Facts,
        obstacles: &[Obstacle],
        plan: &mut Plan,
    ) {
        let is_trial = |obstacle: &&Obstacle| matches!(obstacle, Obstacle::TrialRefused { .. });
        if let Some(refusal) = obstacles.iter().find(is_trial) {
            let timeout = self.settings.start_timeout;
            plan.refuse(job, facts, &refusal.to_string(), timeout);
        }
    }
}

fn trial_refused() -> Obstacle {
    Obstacle::TrialRefused {
        object: "Pod sample-worker-0".to_owned(),
        reason: "exceeded quota: memory".to_owned(),
    }
}

fn start(world: &World) -> InstanceStart {
    let run = world.status().run.clone().unwrap_or_default();
    run.starts.get("0").cloned().unwrap_or_default()
}

/// A job with this suspension, which Kueue has admitted or reserved quota for.
fn admitted(suspension: Suspension) -> ValidJob {
    ValidJob {
        is_admitted: true,
        suspension,
        ..IPUJob::sample().valid()
    }
}

#[test]
fn quota_of_a_job_without_a_partition_goes_back_after_the_timeout() {
    for suspension in [Suspension::Active, Suspension::Reserving] {
        let (job, mut world) = (admitted(suspension), World::new());
        world.step_with(&job, &[trial_refused()]);
        let refusal = "no IPUs are requested, because the API server refused Pod sample-worker-0: \
                       exceeded quota: memory";
        assert_eq!(world.status().last_message, refusal);
        world.wait(590);
        world.step_with(&job, &[trial_refused()]);
        assert!(!start(&world).releasing, "{suspension:?}: not yet");
        world.wait(10);
        world.step_with(&job, &[trial_refused()]);
        world.step_with(&job, &[trial_refused()]);
        let start_now = start(&world);
        assert!(start_now.releasing, "{suspension:?}");
        let message = format!(
            "Pods of the job could not be created for 600 seconds, so the job releases its quota: {refusal}"
        );
        assert_eq!(start_now.message, message);
        assert_eq!(world.slots(), [0; 0]);
        // Kueue has evicted it, and admits it again.
        world.settle(&ValidJob {
            is_admitted: false,
            ..admitted(Suspension::Suspended)
        });
        assert_eq!(start(&world), InstanceStart::default());
        world.settle(&job);
        assert_eq!(world.slots(), [0]);
    }
}

#[test]
fn pods_that_are_accepted_in_time_keep_the_quota() {
    let (job, mut world) = (admitted(Suspension::Active), World::new());
    world.step_with(&job, &[trial_refused()]);
    world.wait(590);
    world.settle(&job);
    world.wait(1_000);
    world.settle(&job);
    assert_eq!(start(&world), InstanceStart::default());
    assert_eq!(world.slots(), [0]);
}

#[test]
fn a_job_without_quota_waits_until_its_pods_are_accepted() {
    let (job, mut world) = (IPUJob::sample().valid(), World::new());
    for _ in 0..5 {
        world.step_with(&job, &[trial_refused()]);
        world.wait(600);
    }
    assert_eq!(start(&world), InstanceStart::default());
}

#[test]
fn quota_goes_with_the_partition_of_refused_pods() {
    let (mut job, mut world) = starting(&IPUJob::sample());
    job.is_admitted = true;
    world.observed.pods.clear();
    let refused = Obstacle::Refused {
        object: "Pod sample-worker-0".to_owned(),
        reason: "exceeded quota: memory".to_owned(),
    };
    world
        .observed
        .uncreated
        .insert("sample-worker-0".to_owned());
    world.step_with(&job, std::slice::from_ref(&refused));
    assert_eq!(world.slots(), [0]);
    world.wait(300);
    for _ in 0..3 {
        world.step_with(&job, std::slice::from_ref(&refused));
    }
    assert_eq!(world.slots(), [0; 0]);
    let released = start(&world);
    assert!(released.releasing);
    let message = "the API server refused Pods of the job for 5 minutes, so its partitions were released, and \
                   the job releases its quota";
    assert_eq!(released.message, message);
    // The next admission begins anew.
    world.settle(&ValidJob {
        is_admitted: false,
        ..admitted(Suspension::Suspended)
    });
    let run = world.status().run.clone().unwrap_or_default();
    assert_eq!(run.refused_since, None);
    assert!(run.starts.is_empty());
}

#[tokio::test]
async fn a_job_that_gets_the_label_of_a_queue_while_it_waits_releases_its_partition() {
    let cluster = Cluster::default();
    let (context, job) = (cluster.context(), cluster.submit(&IPUJob::sample()));
    let reconcile = async || {
        for _ in 0..3 {
            cluster.deliver(&context);
            step::step(&context, &job).await.unwrap();
        }
    };
    reconcile().await;
    assert_eq!(cluster.partitions().len(), 1);
    let label = json!({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "main"}}});
    cluster.change(&cluster::job("sample"), &label);
    reconcile().await;
    assert!(cluster.partitions().is_empty(), "it waits in the queue");
    let status = cluster.object(&cluster::job("sample"))["status"].clone();
    assert_eq!(status["launcherStatus"], "Suspended");
}
