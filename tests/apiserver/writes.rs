//! The cost of a job: every write of the operator to the API server, by verb and resource.

use std::collections::BTreeMap;

use cluster::wait::{Seen, eventually};
use ipu_api::ipujob_status::{IPUJobStatus, JobState};
use k8s_openapi::api::core::v1::Event;
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use tests::load::Writes;

use crate::job::parallel;
use crate::processes::Installation;

/// Most writes of a job with a launcher and two workers from its creation to Completed.
const BUDGET: u64 = 15;

/// All of them. A new write must change this table.
const TO_COMPLETED: &[(&str, u64)] = &[
    // Pods of workers and launcher created. The job succeeded.
    ("POST events", 3),
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
    ("DELETE ipupartitions", 1),
    ("DELETE pods", 2),
    // The finalizer.
    ("PATCH ipupartitions", 1),
    // Pods deleted. The partition released, and removed.
    ("POST events", 3),
    // No worker is left.
    ("PUT ipujobs/status", 1),
    // The partition is to be removed. It is removed.
    ("PUT ipupartitions/status", 2),
];

/// The writes of the user and the kubelet.
const OTHERS: &[&str] = &["POST ipujobs", "PATCH pods/status"];

#[tokio::test]
async fn a_job_takes_no_more_writes_than_the_table_says() {
    let installation = Installation::new().await;
    let controller = installation
        .controller("writes-controller", Vec::new())
        .await;
    let proxy = installation.proxy("writes-proxy", Vec::new()).await;
    // The writes that happen once for all jobs happen for this one.
    complete(&installation, "first").await;
    let before = Writes::so_far(&installation.client).await.unwrap();
    complete(&installation, "second").await;
    let after = Writes::so_far(&installation.client).await.unwrap();
    let written = after.since(&before, OTHERS);
    let mut expected = BTreeMap::new();
    for (what, count) in TO_COMPLETED.iter().chain(RELEASE) {
        *expected.entry((*what).to_owned()).or_default() += count;
    }
    let log = || format!("{}\n{}", controller.said(), proxy.said());
    assert_eq!(written, expected, "{}", log());
    let to_completed: u64 = TO_COMPLETED.iter().map(|(_, count)| count).sum();
    assert!(to_completed <= BUDGET, "{to_completed}");
}

/// Runs a job to its end until its IPUs are released. Events report both.
async fn complete(installation: &Installation, job: &str) {
    let mut object = parallel(job);
    object["spec"]["cleanPodPolicy"] = "Workers".into();
    installation.submit(&object).await;
    for worker in 0..2 {
        installation.runs(&format!("{job}-worker-{worker}")).await;
    }
    installation.runs(&format!("{job}-launcher")).await;
    installation.once(job, JobState::Running).await;
    installation.ends(&format!("{job}-launcher")).await;
    let status = installation.once(job, JobState::Completed).await;
    check_accounting(installation, job, &status).await;
    eventually("the status says that no worker is left", async || {
        let found = installation.jobs().get(job).await.unwrap();
        let workers = found.status.unwrap_or_default().workers_status;
        Seen::when(workers.unwrap_or_default().active, |active| *active == 0)
    })
    .await;
    eventually("nothing is left of its partition", async || {
        Seen::when(installation.partitions().await, Vec::is_empty)
    })
    .await;
    let events: Api<Event> = Api::all(installation.client.clone());
    for reason in ["IPUJobSucceeded", "PartitionReleased", "Removed"] {
        let list = ListParams::default().fields(&format!("reason={reason}"));
        eventually(&format!("an event {reason} reports on {job}"), async || {
            let found = events.list(&list).await.unwrap().items;
            let names = found
                .into_iter()
                .filter_map(|event| event.involved_object.name);
            Seen::when(names.collect::<Vec<_>>(), |names| {
                names.iter().any(|name| name.contains(job))
            })
        })
        .await;
    }
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
