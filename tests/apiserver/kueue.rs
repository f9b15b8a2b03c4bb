//! IPUJobs in the queues of the real Kueue, on a real API server with the operator's own processes.

mod check;
mod cohorts;
mod documents;
pub(crate) mod fixture;
mod flavors;
mod granted;
mod killed;
mod labels;
mod many_jobs;
mod multikueue;
mod native;
pub(crate) mod players;
mod pods;
mod pods_ready;
mod quantities;
mod topology;

use std::time::Duration;

use cluster::wait::{Seen, eventually, within};
use ipu_api::ipujob_status::JobState;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use tests::kueue::objects::{PRIORITY_LABEL, cluster_queue, priority_class};
use tests::kueue::workload::Workload;

use self::fixture::{FLAVOR, Fixture, QUEUE, job};

/// Median of the time until another job runs on the IPUs of an evicted job.
const HANDOVER: Duration = Duration::from_secs(1);

#[tokio::test(flavor = "multi_thread")]
async fn the_second_of_two_jobs_waits_for_quota_and_gets_it_when_the_first_is_deactivated() {
    let mut fixture = Fixture::with_quota(4).await;
    fixture.run_pods(false);
    fixture.submit("first", 4).await;
    fixture.once_running("first").await;
    let first = fixture
        .once("first", "is admitted and ready", |one| {
            one.is("Admitted") && one.is("PodsReady")
        })
        .await;
    assert_eq!(first.pod_sets(), [("worker".to_owned(), 1)]);
    assert_eq!(first.ipus(), 4);
    assert_eq!(first.flavor("worker"), Some(FLAVOR));

    fixture.submit("second", 4).await;
    fixture.once_waiting("second").await;
    let said = "insufficient unused quota";
    eventually("the job repeats what Kueue says", async || {
        Seen::when(fixture.status("second").await, |status| {
            status.contains(said)
        })
    })
    .await;
    fixture
        .installation
        .once("second", JobState::Suspended)
        .await;

    assert_eq!(fixture.most_taken(), 4);
    fixture.set_active("first", false).await;
    let handover = async {
        fixture.once_released("first").await;
        fixture.once_running("second").await;
    };
    within("the next job of a queue runs", HANDOVER, handover).await;
    fixture.count_anew();
    fixture
        .installation
        .once("first", JobState::Suspended)
        .await;

    // A job that is activated again returns to the queue.
    fixture.set_active("first", true).await;
    fixture.once_waiting("first").await;
    fixture.end("second").await;
    let second = fixture
        .once("second", "is finished", |one| one.is("Finished"))
        .await;
    assert_eq!(second.reason("Finished"), "Succeeded");
    fixture.once_running("first").await;
    fixture.end("first").await;
    assert_eq!(fixture.most_taken(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn ipus_are_counted_over_all_workers_and_instances() {
    let mut fixture = Fixture::with_quota(16).await;
    fixture.run_pods(false);
    let mut parallel = job("parallel", 8);
    parallel["spec"]["workersPerJobInstance"] = json!("2");
    parallel["spec"]["launcher"] = json!({"command": ["mpirun"]});
    fixture.installation.submit(&parallel).await;
    fixture.once_running("parallel").await;
    let workload = fixture.once("parallel", "is admitted", |one| one.is("Admitted"));
    let workload = workload.await;
    let expected = [("launcher", 1), ("worker", 2)];
    assert_eq!(
        workload.pod_sets(),
        expected.map(|(name, count)| (name.to_owned(), count))
    );
    assert_eq!(workload.ipus(), 8);

    // Two instances of one job have a partition each.
    let mut two = job("two", 4);
    two["spec"]["jobInstances"] = json!(2);
    fixture.installation.submit(&two).await;
    fixture.once_running("two").await;
    let workload = fixture.once("two", "is admitted", |one| one.is("Admitted"));
    assert_eq!(workload.await.ipus(), 8);
    fixture.once_reserved(16).await;
    assert_eq!(fixture.taken(), 16);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_that_is_not_desired_any_more_releases_its_quota() {
    let mut fixture = Fixture::with_quota(8).await;
    fixture.run_pods(false);
    let mut two = job("two", 4);
    two["spec"]["jobInstances"] = json!(2);
    fixture.installation.submit(&two).await;
    fixture.once_running("two").await;
    fixture.submit("other", 4).await;
    fixture.once_waiting("other").await;
    let one = Patch::Merge(json!({"spec": {"jobInstances": 1}}));
    let jobs = fixture.installation.jobs();
    jobs.patch("two", &PatchParams::default(), &one)
        .await
        .unwrap();
    fixture.once_running("other").await;
    let workload = fixture.once("two", "is admitted", |one| one.is("Admitted"));
    let reclaimable = workload.await.0.data["status"]["reclaimablePods"].clone();
    assert_eq!(reclaimable, json!([{"name": "worker", "count": 1}]));
    fixture.once_running("two").await;
    assert_eq!(fixture.most_taken(), 8);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_job_that_grows_is_stopped_and_waits_with_its_new_size() {
    let mut fixture = Fixture::with_quota(8).await;
    fixture.run_pods(false);
    fixture.submit("grows", 4).await;
    fixture.once_running("grows").await;
    let before = fixture.once("grows", "is admitted", |one| one.is("Admitted"));
    assert_eq!(before.await.ipus(), 4);
    // Its partition is removed only later. Until then it holds its quota, and waits.
    fixture.hold(false, true);
    let two = Patch::Merge(json!({"spec": {"jobInstances": 2}}));
    let jobs = fixture.installation.jobs();
    jobs.patch("grows", &PatchParams::default(), &two)
        .await
        .unwrap();
    fixture
        .installation
        .once("grows", JobState::Suspended)
        .await;
    eventually("its Pod is gone", async || {
        let pod = fixture.installation.pods().get_opt("grows-worker-0").await;
        Seen::when(pod.unwrap().is_none(), |is_gone| *is_gone)
    })
    .await;
    let held = fixture.once("grows", "holds its quota", Workload::holds_quota);
    assert_eq!(held.await.ipus(), 4);
    fixture
        .installation
        .once("grows", JobState::Suspended)
        .await;

    fixture.hold(false, false);
    fixture.once_running("grows").await;
    let after = fixture
        .once("grows", "is admitted with its new size", |one| {
            one.is("Admitted") && one.ipus() == 8
        })
        .await;
    assert_eq!(after.pod_sets(), [("worker".to_owned(), 2)]);
    fixture.once_taken(8).await;
    assert!(fixture.most_taken() <= 8, "never more than its quota");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_of_higher_priority_takes_the_ipus_of_a_lower_one() {
    let mut queue = cluster_queue(QUEUE, &[(FLAVOR, 4)]);
    queue["spec"]["preemption"] = json!({"withinClusterQueue": "LowerPriority"});
    let mut fixture = Fixture::with_queue(queue).await;
    fixture.run_pods(false);
    for (name, value) in [("low", 1), ("high", 100)] {
        fixture.apply(&priority_class(name, value)).await;
    }
    let with_priority = |name: &str| {
        let mut job = job(name, 4);
        job["metadata"]["labels"][PRIORITY_LABEL] = json!(name);
        job
    };
    fixture.installation.submit(&with_priority("low")).await;
    fixture.once_running("low").await;
    fixture.installation.submit(&with_priority("high")).await;
    fixture.once_running("high").await;
    let low = fixture
        .once("low", "is evicted, and in the queue again", |one| {
            one.is("Evicted") && one.is("Requeued") && one.admission().is_none()
        })
        .await;
    assert_eq!(low.reason("Evicted"), "Preempted");
    fixture.once_released("low").await;
    assert_eq!(fixture.most_taken(), 4, "one released its IPUs first");
    fixture.end("high").await;
    fixture.once_running("low").await;
    fixture.end("low").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_kueue_is_down_jobs_wait_and_when_it_is_back_all_continue() {
    let mut fixture = Fixture::with_quota(4).await;
    fixture.run_pods(false);
    fixture.submit("first", 4).await;
    fixture.once_running("first").await;
    fixture.submit("second", 4).await;
    fixture.once_waiting("second").await;

    fixture.kueue.kill();
    // Nothing admits or finishes Workloads now.
    fixture.submit("third", 4).await;
    fixture
        .installation
        .once("third", JobState::Suspended)
        .await;
    fixture.end("first").await;
    assert!(fixture.taken() <= 4);
    fixture.kueue.restart().await.unwrap();
    fixture
        .once("first", "is finished", |one| one.is("Finished"))
        .await;
    for job in ["second", "third"] {
        fixture.once_running(job).await;
        fixture.end(job).await;
    }

    // Kueue is killed while it evicts a job.
    fixture.submit("evicted", 4).await;
    fixture.once_running("evicted").await;
    fixture.hold(false, true);
    fixture.set_active("evicted", false).await;
    fixture
        .once("evicted", "is evicted", |one| one.is("Evicted"))
        .await;
    fixture.kueue.kill();
    fixture.hold(false, false);
    fixture.kueue.restart().await.unwrap();
    fixture.once_released("evicted").await;
    fixture.submit("last", 4).await;
    fixture.once_running("last").await;
    assert_eq!(fixture.most_taken(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_can_be_deleted_while_it_is_queued_admitted_and_evicted() {
    let mut queue = cluster_queue(QUEUE, &[(FLAVOR, 4)]);
    queue["spec"]["preemption"] = json!({"withinClusterQueue": "LowerPriority"});
    let mut fixture = Fixture::with_queue(queue).await;
    fixture.run_pods(false);
    fixture.apply(&priority_class("high", 100)).await;
    fixture.submit("admitted", 4).await;
    fixture.once_running("admitted").await;
    fixture.submit("queued", 4).await;
    fixture.once_waiting("queued").await;
    fixture.delete("queued").await;
    fixture.once_gone("queued").await;

    fixture.submit("evicted", 4).await;
    fixture.once_waiting("evicted").await;
    fixture.delete("admitted").await;
    fixture.once_gone("admitted").await;
    fixture.once_running("evicted").await;

    // Its partition is removed only after the deletion of the job. Until then no other job gets its
    // quota.
    fixture.hold(false, true);
    let mut next = job("next", 4);
    next["metadata"]["labels"][PRIORITY_LABEL] = json!("high");
    fixture.installation.submit(&next).await;
    fixture
        .once("evicted", "is evicted", |one| one.is("Evicted"))
        .await;
    fixture.delete("evicted").await;
    eventually("its Pod is gone", async || {
        let pod = fixture
            .installation
            .pods()
            .get_opt("evicted-worker-0")
            .await;
        Seen::when(pod.unwrap().is_none(), |is_gone| *is_gone)
    })
    .await;
    fixture
        .once("evicted", "holds its quota", Workload::holds_quota)
        .await;
    fixture.hold(false, false);
    fixture.once_gone("evicted").await;
    fixture.once_running("next").await;
    assert_eq!(fixture.most_taken(), 4);
    fixture.delete("next").await;
    fixture.once_gone("next").await;
    fixture.once_taken(0).await;
}
