//! `ipu-operator verify`, which `helm test` runs: it runs a job to its end, or reports what blocks
//! it.

use ipu_operator::verify::{self, VerifyError, VerifyOptions};
use tokio::task::JoinHandle;

use crate::job_fixture::JobFixture;

/// Runs it as a task. Returns its output and its result.
fn verify(
    fixture: &JobFixture,
    timeout_seconds: u64,
) -> JoinHandle<(String, Result<(), VerifyError>)> {
    let options = VerifyOptions {
        namespace: fixture.namespace.clone(),
        name: "verify".to_owned(),
        image: "ipu-operator:1".to_owned(),
        image_pull_policy: None,
        image_pull_secret: Vec::new(),
        ipus: 1,
        timeout_seconds,
    };
    let client = fixture.client.clone();
    tokio::spawn(async move {
        let mut said = Vec::new();
        let ended = verify::run(client, &options, &mut said).await;
        (String::from_utf8(said).unwrap(), ended)
    })
}

#[tokio::test]
async fn a_job_is_run_to_completion_and_deleted() {
    let mut fixture = JobFixture::new("verify").await;
    fixture.start();
    let verification = verify(&fixture, 60);
    fixture.partition_ready(0).await;
    fixture.pod_runs("verify-worker-0").await;
    fixture.pod_ends("verify-worker-0", 0).await;
    let (said, ended) = verification.await.unwrap();
    ended.unwrap();
    assert!(said.ends_with("its partition was released\n"), "{said}");
    fixture.once_gone("verify").await;

    let failing = verify(&fixture, 60);
    fixture.partition_ready(0).await;
    fixture.pod_runs("verify-worker-0").await;
    fixture.pod_ends("verify-worker-0", 3).await;
    let (_, ended) = failing.await.unwrap();
    let error = ended.unwrap_err();
    assert!(matches!(error, VerifyError::Failed { .. }), "{error}");

    let (_, ended) = verify(&fixture, 2).await.unwrap();
    let error = ended.unwrap_err().to_string();
    assert!(error.contains("partition not ready yet!"), "{error}");
    fixture.kill().await;
}

#[tokio::test]
async fn without_a_controller_it_says_so() {
    let fixture = JobFixture::new("verify-alone").await;
    let (_, ended) = verify(&fixture, 2).await.unwrap();
    let error = ended.unwrap_err().to_string();
    assert!(error.contains("has not reconciled it yet"), "{error}");
    fixture.once_gone("verify").await;
}
