//! The controller is killed before each of its writes, and started again.

use std::collections::{BTreeMap, BTreeSet};

use futures::future::join_all;
use kube::ResourceExt;

use super::parallel;
use crate::cut_off::{Writes, uids};
use crate::job_fixture::{JobFixture, settings};

/// Plays the user and the proxy in the life of a parallel job, whose launcher ends. Returns the
/// UIDs of the Pods that ran, by their names.
async fn live(fixture: &JobFixture, job: &str) -> BTreeMap<String, String> {
    fixture.submit(&parallel(job)).await;
    fixture.job_partition_ready(job).await;
    let launcher = format!("{job}-launcher");
    let made = fixture.pod_exists(&launcher).await;
    let account = made.spec.unwrap().service_account_name;
    assert_eq!(account.as_ref(), Some(&launcher));
    fixture
        .row(job, "Running 1 1", "Successfully reconciled IPUJob")
        .await;
    let workers = [0, 1].map(|worker| format!("{job}-worker-{worker}"));
    let mut ran = BTreeMap::new();
    for pod in [&launcher, &workers[0], &workers[1]] {
        ran.insert(pod.clone(), fixture.pod_exists(pod).await.uid().unwrap());
    }
    fixture.pod_ends(&launcher, 0).await;
    fixture
        .row(job, "Completed 0 1", "All instances done")
        .await;
    let mut partitions = fixture.partitions().await;
    partitions.retain(|partition| partition.spec.owner.name == job);
    assert_eq!(partitions.len(), 1, "its workers still use it");
    fixture.delete(job).await;
    fixture.once_gone(job).await;
    ran
}

#[tokio::test]
async fn controller_killed_before_any_of_its_writes_completes_each_job() {
    let mut fixture = JobFixture::new("parallel").await;
    // A controller that finds no Pods, after they may have been created, cannot know whether there
    // were any.
    fixture.partitions_are_reset();
    fixture.pods_run();
    let plain = fixture.client.clone();
    let all = Writes::limited([("whole", None)]);
    fixture.start_with(all.client(&plain));
    live(&fixture, "whole").await;
    fixture.kill().await;
    let count = all.sent("whole");
    assert!(count > 15, "{count} writes");

    let jobs: Vec<String> = (0..count)
        .map(|number| format!("cut-{number:02}"))
        .collect();
    let limits = jobs.iter().enumerate();
    let before = Writes::limited(limits.map(|(number, job)| (job.as_str(), Some(number))));
    let after = Writes::limited(jobs.iter().map(|job| (job.as_str(), None)));
    let first = fixture.controller(before.client(&plain), settings());
    let lives = jobs.iter().map(async |job| {
        let ran = live(&fixture, job).await;
        before.complete(job);
        ran
    });
    let mut second = None;
    let killed = async {
        before.once_cut_off().await;
        first.abort();
        assert!(first.await.unwrap_err().is_cancelled());
        second = Some(fixture.controller(after.client(&plain), settings()));
    };
    let ((), ran) = futures::join!(killed, join_all(lives));
    second.unwrap().abort();

    let first = before.created();
    let all = [&first[..], &after.created()].concat();
    let pods = uids(&all, "pods");
    let is_made = |pod: &String| uids(&first, "pods").contains_key(pod);
    // If only one of two workers was created, the other one may have been deleted: both start after
    // a reset.
    let workers = jobs
        .iter()
        .map(|job| [0, 1].map(|worker| format!("{job}-worker-{worker}")));
    let halves = workers.filter(|[first, second]| is_made(first) && !is_made(second));
    let halves: BTreeSet<String> = halves.map(|[first, _]| first).collect();
    assert_eq!(pods.len(), 3 * count, "{pods:?}");
    for (pod, uid) in ran.into_iter().flatten() {
        let made = &pods[&pod];
        assert!(made.contains(&uid), "{pod}: {uid} is none of {made:?}");
        let expected = if halves.contains(&pod) { 2 } else { 1 };
        assert_eq!(made.len(), expected, "{pod}: {made:?}");
    }
    for kind in ["ipupartitions", "serviceaccounts", "roles", "rolebindings"] {
        for (name, made) in uids(&all, kind) {
            assert_eq!(made.len(), 1, "{kind} {name}: {made:?}");
        }
    }
    assert!(fixture.partitions().await.is_empty());
}
