//! IPUJobs that were created under the CRD of Graphcore's operator: they continue under this operator's CRD, and go
//! back.

use std::collections::BTreeMap;

use cluster::wait::{Seen, eventually};
use ipu_api::crd;
use ipu_api::labels;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::definitions::define;
use crate::job::{parallel, single};
use crate::job_fixture::JobFixture;

/// The CRD of Graphcore's operator 1.2.0.
const GRAPHCORE: &str = include_str!("upgraded/graphcore-1.2.0.yaml");

/// The status message of a running job in both operators.
const RUNS: &str = "Successfully reconciled IPUJob";

/// The status message of a completed job in both.
const ENDED: &str = "All instances done";

#[tokio::test]
async fn jobs_of_graphcores_crd_continue_under_ours_and_back_and_again() {
    let mut fixture = JobFixture::new("upgraded").await;
    let theirs: CustomResourceDefinition = serde_saphyr::from_str(GRAPHCORE).unwrap();
    defined(&fixture, &theirs).await;
    let ran = made_by_graphcore(&fixture, &single("ran"), &completed()).await;
    let waits = made_by_graphcore(&fixture, &parallel("waits"), &pending()).await;

    // Forward: completed jobs stay completed, and waiting jobs start.
    defined(&fixture, &crd::ipujob()).await;
    assert_eq!(fixture.jobs().get("ran").await.unwrap().data, ran.data);
    fixture.start();
    fixture.job_partition_ready("waits").await;
    for pod in ["waits-worker-0", "waits-worker-1", "waits-launcher"] {
        fixture.pod_runs(pod).await;
    }
    fixture.row("waits", "Running 1 1", RUNS).await;
    fixture.row("ran", "Completed 0 1", ENDED).await;
    fixture.kill().await;
    let ours = fixture.jobs().get("waits").await.unwrap();
    assert_ne!(ours.data["status"]["run"], Value::Null);
    let before = pods(&fixture).await;
    assert_eq!(before.len(), 3);

    // Back: only the fields of this operator are pruned.
    defined(&fixture, &theirs).await;
    let back = fixture.jobs().get("waits").await.unwrap();
    assert_eq!(back.data["spec"], waits.data["spec"]);
    assert_eq!(back.data["status"]["run"], Value::Null);
    fixture.row("waits", "Running 1 1", RUNS).await;
    let (jobs, parameters) = (fixture.jobs(), PostParams::default());
    let written = jobs.replace_status("waits", &parameters, &back);
    written.await.unwrap();

    // Forward again: the operator recovers the pruned fields from the existing objects.
    defined(&fixture, &crd::ipujob()).await;
    fixture.start();
    fixture.pod_ends("waits-launcher", 0).await;
    fixture.row("waits", "Completed 0 1", ENDED).await;
    assert_eq!(pods(&fixture).await, before, "no Pod was made again");
    assert_eq!(fixture.partitions().await.len(), 1);
    let job = fixture.jobs().get("waits").await.unwrap();
    assert_eq!(job.data["status"]["restartCount"], json!(0));
    for job in ["ran", "waits"] {
        fixture.delete(job).await;
        fixture.once_gone(job).await;
    }
    fixture.kill().await;
}

/// Applies a definition, and waits until the API server serves it: only this operator's CRD knows `suspend`.
async fn defined(fixture: &JobFixture, definition: &CustomResourceDefinition) {
    define(&fixture.client, definition).await;
    let schema = definition.spec.versions[0].schema.clone().unwrap();
    let schema = schema.open_api_v3_schema.unwrap().properties.unwrap();
    let knows = schema["spec"].properties.as_ref().unwrap();
    let knows = knows.contains_key("suspend");
    let mut job = single("asked");
    job["spec"]["suspend"] = json!(true);
    let job: DynamicObject = serde_json::from_value(job).unwrap();
    let dry_run = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    eventually("the definition holds", async || {
        let made = fixture.jobs().create(&dry_run, &job).await.unwrap();
        Seen::when(made.data["spec"]["suspend"] == json!(true), |is_there| {
            *is_there == knows
        })
    })
    .await;
}

/// Creates a job as Graphcore's operator leaves it. Returns the object.
async fn made_by_graphcore(fixture: &JobFixture, job: &Value, status: &Value) -> DynamicObject {
    let mut job: DynamicObject = serde_json::from_value(job.clone()).unwrap();
    job.finalizers_mut()
        .push(labels::GRAPHCORE_JOB_FINALIZER.to_owned());
    job.data["spec"]["cleanPodPolicy"] = json!("None");
    job.data["spec"]["restartPolicy"] = json!({"type": "Never", "backOffLimit": 3});
    let (jobs, parameters) = (fixture.jobs(), PostParams::default());
    let made = jobs.create(&parameters, &job).await.unwrap();
    let (name, nobody) = (made.name_any(), PatchParams::default());
    let status = Patch::Merge(json!({"status": status}));
    let written = jobs.patch_status(&name, &nobody, &status);
    written.await.unwrap()
}

/// The status of a job whose Pods and partition are deleted.
fn completed() -> Value {
    let at = "2023-05-04T10:00:00Z";
    json!({
        "launcherStatus": "Completed", "lastMessage": ENDED,
        "currentReplicas": 0, "desiredReplicas": 1, "iPUPartitionCreated": true, "restartCount": 0,
        "startTime": at, "completionTime": at, "lastReconcileTime": at,
        "workersStatus": {"active": 0, "failed": 0, "succeeded": 1},
        "conditions": [
            condition("Pending", "False", "IPUJobPending"),
            condition("Running", "False", "IPUJobRunning"),
            condition("Succeeded", "True", "IPUJobSucceeded"),
        ],
    })
}

/// The status of a job that waits for its partition.
fn pending() -> Value {
    json!({
        "launcherStatus": "Pending", "lastMessage": "partition not ready yet!",
        "currentReplicas": 0, "desiredReplicas": 1, "iPUPartitionCreated": false, "restartCount": 0,
        "startTime": "2023-05-04T10:00:00Z",
        "conditions": [condition("Pending", "True", "IPUJobPending")],
    })
}

fn condition(kind: &str, status: &str, reason: &str) -> Value {
    let at = "2023-05-04T10:00:00Z";
    json!({
        "type": kind, "status": status, "reason": reason, "message": "",
        "lastUpdateTime": at, "lastTransitionTime": at,
    })
}

/// Returns the UIDs of all Pods, by name.
async fn pods(fixture: &JobFixture) -> BTreeMap<String, Option<String>> {
    let pods = fixture.pods().list(&ListParams::default()).await.unwrap();
    let pods = pods.into_iter();
    pods.map(|pod| (pod.name_any(), pod.uid())).collect()
}
