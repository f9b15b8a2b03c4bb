//! A Pod that its node rejects before its containers start, on a real API server: what the status
//! records survives the schema and a restart of the operator.

use cluster::wait::{Seen, eventually};
use kube::ResourceExt;
use serde_json::json;

use crate::job::single;
use crate::job_fixture::JobFixture;

const WORKER: &str = "job-worker-0";

#[tokio::test]
async fn a_rejected_pod_is_created_again_on_the_same_partition() {
    let mut fixture = JobFixture::new("rejected").await;
    fixture.start();
    fixture.submit(&single("job")).await;
    fixture.partition_ready(0).await;
    let mut before = None;
    for attempt in ["first", "second"] {
        let uid = eventually(&format!("the {attempt} Pod is made"), async || {
            let uid = fixture.pod_exists(WORKER).await.uid();
            Seen::when(uid, |uid| uid.is_some() && *uid != before)
        })
        .await;
        let why = format!("no CPU at the {attempt} attempt");
        let rejected = json!({"phase": "Failed", "reason": "OutOfcpu", "message": why});
        fixture.pod_status(WORKER, &rejected).await;
        let said = format!("the node rejected Pod job-worker-0 (OutOfcpu): {why}");
        fixture.row("job", "Running 1 1", &said).await;
        fixture.kill().await;
        fixture.start();
        before = uid;
    }
    let uid = eventually("the last Pod is made", async || {
        let uid = fixture.pod_exists(WORKER).await.uid();
        Seen::when(uid, |uid| *uid != before)
    });
    uid.await;
    fixture.pod_runs(WORKER).await;
    fixture.row("job", "Running 1 1", "Successfully").await;
    fixture.pod_ends(WORKER, 0).await;
    fixture
        .row("job", "Completed 0 1", "All instances done")
        .await;
    let reasons = fixture.reasons_of("job").await;
    assert!(
        !reasons.iter().any(|reason| reason == "PartitionReset"),
        "{reasons:?}"
    );
    fixture.delete("job").await;
    fixture.once_gone("job").await;
    fixture.kill().await;
}
