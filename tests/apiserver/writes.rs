//! The cost of a job: every write of the operator to the API server, by verb and resource.

use std::collections::{BTreeMap, BTreeSet};

use cluster::api_writes::Writes;
use cluster::wait::{Seen, eventually};
use ipu_api::ipujob_status::{IPUJobStatus, JobState};
use k8s_openapi::api::core::v1::Event;
use kube::ResourceExt;
use kube::api::{Api, ListParams};

use crate::job::parallel;
use crate::processes::{Given, Installation};
use crate::{launcher_rights, planes};

/// Most writes of a job with a launcher and two workers from its creation to Completed.
const BUDGET: u64 = 15;

/// The dry runs of a job: its worker and launcher at admission, which the test asks for twice,
/// first by a dry run of the job. Before it requests IPUs, a moment later, the operator knows that
/// the API server accepts both.
const TRIALS: &[(&str, u64)] = &[("TRY POST pods", 2 + 2)];

/// All of them. A new write must change this table.
const TO_COMPLETED: &[(&str, u64)] = &[
    // The command of the launcher is released, because its workers are Ready.
    ("PATCH pods", 1),
    // The Pods of workers and launcher created. The job succeeded.
    ("POST events", 2),
    ("POST ipupartitions", 1),
    ("POST pods", 3),
    ("POST rolebindings", 1),
    ("POST roles", 1),
    ("POST serviceaccounts", 1),
    // The partitions are ready, and used by Pods. The job runs. It has completed.
    ("PUT ipujobs/status", 3),
    // The attempt on a V-IPU controller before its call, and its outcome.
    ("PUT ipupartitions/status", 2),
];

/// The writes after that, until its IPUs are released.
const RELEASE: &[(&str, u64)] = &[
    // The launcher's Role names no worker any more, since others could give Pods these names.
    ("APPLY roles", 1),
    ("DELETE ipupartitions", 1),
    ("DELETE pods", 2),
    // The finalizer, when the partition is removed. No status reports a removal that nothing
    // blocks.
    ("PATCH ipupartitions", 1),
    // The partition released, after its Pods were deleted.
    ("POST events", 1),
    // No worker is left.
    ("PUT ipujobs/status", 1),
];

/// The writes of the user and the kubelet, and the summary of all partitions, which is written once
/// in five seconds at most, however many jobs there are.
const OTHERS: &[&str] = &[
    "POST ipujobs",
    "TRY POST ipujobs",
    "PATCH pods/status",
    "APPLY configmaps",
];

/// The writes of both tables that a job with shared rights does not take.
const OWN_RIGHTS: &[&str] = &[
    "POST rolebindings",
    "POST roles",
    "POST serviceaccounts",
    "APPLY roles",
];

#[tokio::test]
async fn a_job_takes_no_more_writes_than_the_table_says() {
    count_writes(Installation::new().await, &[]).await;
}

#[tokio::test]
async fn rights_that_launchers_share_take_no_write_of_a_job() {
    let given = Given {
        values: vec![launcher_rights::VALUE],
        controller: vec![launcher_rights::ARGUMENT],
        ..Given::default()
    };
    let installation = Installation::of(planes::with_definitions().await, given).await;
    count_writes(installation, OWN_RIGHTS).await;
}

/// Compares the writes of jobs with the tables, but for these.
async fn count_writes(installation: Installation, without: &[&str]) {
    let controller = installation
        .controller("writes-controller", Vec::new())
        .await;
    let proxy = installation.proxy("writes-proxy", Vec::new()).await;
    // The writes that happen once for all jobs happen for this one.
    complete(&installation, "first", "Workers").await;
    once_released(&installation, "first").await;
    let log = || format!("{}\n{}", controller.said(), proxy.said());
    // With this policy, the workers go on, and nothing follows.
    let before = Writes::so_far(&installation.client).await.unwrap();
    complete(&installation, "second", "None").await;
    let after = Writes::so_far(&installation.client).await.unwrap();
    let written = after.since(&before, OTHERS);
    check(&written, &[TRIALS, TO_COMPLETED], without, log);
    let stored = written.iter().filter(|(what, _)| !what.starts_with("TRY"));
    let stored: u64 = stored.map(|(_, count)| count).sum();
    assert!(stored <= BUDGET, "{written:?}");
    let before = after;
    complete(&installation, "third", "Workers").await;
    once_released(&installation, "third").await;
    let after = Writes::so_far(&installation.client).await.unwrap();
    let written = after.since(&before, OTHERS);
    check(&written, &[TRIALS, TO_COMPLETED, RELEASE], without, log);
}

/// Compares the writes with the lines of the tables. What differs comes before the long log.
fn check(
    written: &BTreeMap<String, u64>,
    tables: &[&[(&str, u64)]],
    without: &[&str],
    log: impl FnOnce() -> String,
) {
    let mut expected = BTreeMap::new();
    let lines = tables.iter().copied().flatten();
    for (what, count) in lines.filter(|(what, _)| !without.contains(what)) {
        *expected.entry((*what).to_owned()).or_default() += count;
    }
    let whats: BTreeSet<&String> = written.keys().chain(expected.keys()).collect();
    let differing = whats.into_iter().filter_map(|what| {
        let (found, expected) = (written.get(what), expected.get(what));
        (found != expected).then(|| format!("{what}: {found:?}, expected {expected:?}"))
    });
    let differing: Vec<String> = differing.collect();
    assert!(differing.is_empty(), "{}\n{}", differing.join("\n"), log());
}

/// Runs a job with a `cleanPodPolicy` until it has completed, and an event says so.
async fn complete(installation: &Installation, job: &str, clean: &str) {
    let mut object = parallel(job);
    object["spec"]["cleanPodPolicy"] = clean.into();
    installation.submit(&object).await;
    for worker in 0..2 {
        installation.runs(&format!("{job}-worker-{worker}")).await;
    }
    installation.runs(&format!("{job}-launcher")).await;
    installation.once(job, JobState::Running).await;
    installation.ends(&format!("{job}-launcher")).await;
    let status = installation.once(job, JobState::Completed).await;
    check_accounting(installation, job, &status).await;
    once_reported(installation, job, "IPUJobSucceeded").await;
}

/// Waits until the IPUs of a job are released, and an event says so.
async fn once_released(installation: &Installation, job: &str) {
    eventually("the status says that no worker is left", async || {
        let found = installation.jobs().get(job).await.unwrap();
        let workers = found.status.unwrap_or_default().workers_status;
        Seen::when(workers.unwrap_or_default().active, |active| *active == 0)
    })
    .await;
    eventually("nothing is left of its partition", async || {
        let partitions = installation.partitions().await;
        let of_job = partitions.into_iter().filter(|(owner, _)| owner == job);
        Seen::when(of_job.collect(), Vec::is_empty)
    })
    .await;
    once_reported(installation, job, "PartitionReleased").await;
}

async fn once_reported(installation: &Installation, job: &str, reason: &str) {
    let events: Api<Event> = Api::all(installation.client.clone());
    let list = ListParams::default().fields(&format!("reason={reason}"));
    eventually(&format!("an event {reason} reports on {job}"), async || {
        let listed = events.list(&list).await.unwrap().items;
        let names = listed
            .into_iter()
            .filter_map(|event| event.involved_object.name);
        Seen::when(names.collect::<Vec<_>>(), |names| {
            names.iter().any(|name| name.contains(job))
        })
    })
    .await;
}

/// The seconds of a job that has completed, which need no write of their own, add up to its life.
async fn check_accounting(installation: &Installation, job: &str, status: &IPUJobStatus) {
    let found = installation.jobs().get(job).await.unwrap();
    let created = found.creation_timestamp().unwrap().0.as_second();
    let ended = status.completion_time.as_ref().unwrap().0.as_second();
    let one = status.accounting.as_ref().unwrap();
    assert_eq!(one.until.0.as_second(), ended);
    assert_eq!(one.total(), ended - created, "{one:?}");
    let others = [one.restarting, one.suspended, one.resetting, one.wasted];
    assert_eq!(others, [0; 4], "{one:?}");
    assert_eq!(one.current, None, "{one:?}");
}
