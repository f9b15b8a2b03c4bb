//! The label of the queue is removed from jobs in each state, moved, and added again: quota and
//! partitions stay together.

use cluster::wait::{Seen, eventually};
use ipu_api::ipujob::IPUJob;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use tests::kueue::objects::{QUEUE_LABEL, local_queue};
use tests::kueue::workload::of_job;

use super::check::checked;
use super::fixture::{Fixture, NAMESPACE, QUEUE, job};

/// The user changes the label of a job. `null` removes it.
async fn label(fixture: &Fixture, job: &str, queue: Value) {
    try_label(fixture, job, queue).await.unwrap();
}

async fn try_label(fixture: &Fixture, job: &str, queue: Value) -> kube::Result<IPUJob> {
    let patch = Patch::Merge(json!({"metadata": {"labels": {QUEUE_LABEL: queue}}}));
    let jobs = fixture.installation.jobs();
    jobs.patch(job, &PatchParams::default(), &patch).await
}

/// Waits until a job that is in no queue has neither a Workload nor a partition.
async fn once_left(fixture: &Fixture, job: &str) {
    eventually(&format!("{job} has left its queue"), async || {
        let workloads = of_job(&fixture.installation.client, NAMESPACE, job).await;
        let partitions = fixture.installation.partitions().await.into_iter();
        let partitions = partitions.filter(|(owner, _)| owner == job).count();
        let said = fixture.status(job).await.contains("QuotaReserved");
        Seen::when((workloads.unwrap().len(), partitions, said), |left| {
            *left == (0, 0, false)
        })
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_without_its_label_leaves_neither_quota_nor_partitions() {
    let fixture = checked(8).await;
    fixture.apply(&local_queue(NAMESPACE, "other", QUEUE)).await;
    fixture.submit("runs", 4).await;
    fixture.once_running("runs").await;
    fixture.hold(true, false);
    fixture.submit("reserves", 4).await;
    fixture.once_taken(8).await;
    fixture.submit("waits", 4).await;
    fixture.once_waiting("waits").await;

    label(&fixture, "waits", json!("other")).await;
    fixture
        .once("waits", "is in the other queue", |one| {
            one.0.data["spec"]["queueName"] == "other"
        })
        .await;
    label(&fixture, "waits", Value::Null).await;
    once_left(&fixture, "waits").await;

    label(&fixture, "reserves", Value::Null).await;
    // The V-IPU controller replies late. Until then the state of the partition is unknown, and the
    // quota stays.
    fixture.hold(false, false);
    once_left(&fixture, "reserves").await;
    fixture.once_reserved(4).await;

    // A running job keeps its quota to its end, and its queue.
    for queue in [Value::Null, json!("other")] {
        let denied = try_label(&fixture, "runs", queue).await.unwrap_err();
        let message = denied.to_string();
        assert!(
            message.contains("while Kueue has admitted the job"),
            "{message}"
        );
    }
    label(&fixture, "waits", json!(QUEUE)).await;
    fixture.once_running("waits").await;
    label(&fixture, "reserves", json!(QUEUE)).await;
    fixture.once_waiting("reserves").await;
    fixture.end("runs").await;
    fixture
        .once("runs", "is finished", |one| one.is("Finished"))
        .await;
    fixture.once_running("reserves").await;
    assert_eq!(fixture.most_taken(), 8);

    // A job that runs before it is in a queue has no quota, and runs once.
    let mut outside = job("outside", 4);
    outside["metadata"]["labels"] = json!({});
    fixture.installation.submit(&outside).await;
    fixture.once_running("outside").await;
    label(&fixture, "outside", json!(QUEUE)).await;
    eventually("the job says that it runs outside", async || {
        Seen::when(fixture.status("outside").await, |status| {
            status.contains("StartedOutsideQueue")
        })
    })
    .await;
    for job in ["waits", "reserves", "outside"] {
        fixture.end(job).await;
    }
    fixture.once_reserved(0).await;
    fixture.once_taken(0).await;
    let workloads = of_job(&fixture.installation.client, NAMESPACE, "outside").await;
    assert_eq!(workloads.unwrap().len(), 0);
}
