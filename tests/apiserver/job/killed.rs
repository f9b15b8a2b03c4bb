//! The controller is killed before each of its writes, and started again.

use std::collections::BTreeSet;

use futures::future::join_all;

use super::parallel;
use crate::cut_off::Writes;
use crate::job_fixture::{JobFixture, settings};

/// Plays the user and the proxy in the life of a parallel job, whose launcher ends.
async fn live(fixture: &JobFixture, job: &str) {
    fixture.submit(&parallel(job)).await;
    fixture.job_partition_ready(job).await;
    let launcher = format!("{job}-launcher");
    let made = fixture.pod_exists(&launcher).await;
    let account = made.spec.unwrap().service_account_name;
    assert_eq!(account.as_ref(), Some(&launcher));
    fixture
        .row(job, "Running 1 1", "Successfully reconciled IPUJob")
        .await;
    fixture.pod_ends(&launcher, 0).await;
    fixture
        .row(job, "Completed 0 1", "All instances done")
        .await;
    let mut partitions = fixture.partitions().await;
    partitions.retain(|partition| partition.spec.owner.name == job);
    assert_eq!(partitions.len(), 1, "its workers still use it");
    fixture.delete(job).await;
    fixture.once_gone(job).await;
}

#[tokio::test]
async fn controller_killed_before_any_of_its_writes_completes_each_job() {
    let mut fixture = JobFixture::new("parallel").await;
    // A controller that finds no Pods, after they may have been created, cannot know whether there were any.
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
        live(&fixture, job).await;
        before.complete(job);
    });
    let mut second = None;
    let killed = async {
        before.once_cut_off().await;
        first.abort();
        assert!(first.await.unwrap_err().is_cancelled());
        second = Some(fixture.controller(after.client(&plain), settings()));
    };
    futures::join!(killed, join_all(lives));
    second.unwrap().abort();

    let made = before.created();
    let is_made = |pod: &String| {
        made.iter()
            .any(|(kind, name)| kind == "pods" && name == pod)
    };
    // If only one of two workers was created, the other one may have been deleted: both start after a reset.
    let halves = jobs
        .iter()
        .map(|job| [0, 1].map(|worker| format!("{job}-worker-{worker}")));
    let halves = halves.filter(|[first, second]| is_made(first) && !is_made(second));
    let halves: Vec<String> = halves.map(|[first, _]| first).collect();
    let (mut distinct, mut again) = (BTreeSet::new(), Vec::new());
    for (kind, name) in made.iter().cloned().chain(after.created()) {
        if !distinct.insert((kind, name.clone())) {
            again.push(name);
        }
    }
    again.sort();
    assert_eq!(again, halves, "created twice");
    let pods = distinct.iter().filter(|(kind, _)| kind == "pods");
    assert_eq!(pods.count(), 3 * count, "{distinct:?}");
    assert!(fixture.partitions().await.is_empty());
}
