//! IPUJobs that were created under an older CRD: that of Graphcore's operator, and that of the
//! previous release. They continue under this version's CRD, and go back.

mod policies;

use std::collections::BTreeMap;
use std::fs;

use cluster::wait::{Seen, eventually};
use ipu_api::crd;
use ipu_api::labels;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps,
};
use kube::ResourceExt;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams, PostParams};
use release::guests::checkout;
use release::package::previous::Previous;
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

/// Fields that mark the definitions, so that a test sees which one the API server serves.
const OLDER: &str = "older";
const NEWER: &str = "newer";

#[tokio::test]
async fn jobs_of_graphcores_crd_continue_under_ours_and_back_and_again() {
    let mut fixture = JobFixture::new("upgraded").await;
    let theirs: CustomResourceDefinition = serde_saphyr::from_str(GRAPHCORE).unwrap();
    defined(&fixture, &theirs, OLDER).await;
    made_by_graphcore(&fixture, &single("ran"), &completed()).await;
    made_by_graphcore(&fixture, &parallel("waits"), &pending()).await;
    continues_back_and_again(&mut fixture, &theirs, "run").await;
    // Completed jobs stay completed.
    fixture.row("ran", "Completed 0 1", ENDED).await;
    fixture.delete("ran").await;
    fixture.once_gone("ran").await;
    fixture.kill().await;
}

#[tokio::test]
async fn jobs_of_the_previous_crd_continue_under_this_one_and_back() {
    let mut fixture = JobFixture::new("upgraded-previous").await;
    let checkout = checkout();
    let texts = Previous::locked(checkout).unwrap().texts(checkout);
    let previous = fs::read_to_string(texts.join("crds/ipujobs.graphcore.ai.yaml")).unwrap();
    let previous: CustomResourceDefinition = serde_saphyr::from_str(&previous).unwrap();
    defined(&fixture, &previous, OLDER).await;
    fixture.submit(&parallel("waits")).await;
    continues_back_and_again(&mut fixture, &previous, "accounting").await;
    fixture.kill().await;
}

/// The job `waits`, which was created under an older definition, starts under the current one,
/// keeps its Pods and its spec while the older one is in place, and completes under the current one
/// again. The older definition does not have the field `pruned` of `status`.
async fn continues_back_and_again(
    fixture: &mut JobFixture,
    older: &CustomResourceDefinition,
    pruned: &str,
) {
    // Forward: no object changes, and waiting jobs start.
    let made = jobs(fixture).await;
    defined(fixture, &crd::ipujob(), NEWER).await;
    assert_eq!(jobs(fixture).await, made);
    fixture.start();
    fixture.job_partition_ready("waits").await;
    for pod in ["waits-worker-0", "waits-worker-1", "waits-launcher"] {
        fixture.pod_runs(pod).await;
    }
    fixture.row("waits", "Running 1 1", RUNS).await;
    fixture.kill().await;
    let ours = fixture.jobs().get("waits").await.unwrap();
    assert_ne!(ours.data["status"][pruned], Value::Null);
    let before = pods(fixture).await;
    assert_eq!(before.len(), 3);

    // Back: only the fields of this operator are pruned.
    defined(fixture, older, OLDER).await;
    let back = fixture.jobs().get("waits").await.unwrap();
    assert_eq!(back.data["spec"], made["waits"]["spec"]);
    assert_eq!(back.data["status"][pruned], Value::Null);
    fixture.row("waits", "Running 1 1", RUNS).await;
    let (jobs, parameters) = (fixture.jobs(), PostParams::default());
    let written = jobs.replace_status("waits", &parameters, &back);
    written.await.unwrap();

    // Forward again: the operator recovers the pruned fields from the existing objects.
    defined(fixture, &crd::ipujob(), NEWER).await;
    fixture.start();
    fixture.pod_ends("waits-launcher", 0).await;
    fixture.row("waits", "Completed 0 1", ENDED).await;
    assert_eq!(pods(fixture).await, before, "no Pod was made again");
    assert_eq!(fixture.partitions().await.len(), 1);
    let job = fixture.jobs().get("waits").await.unwrap();
    assert_eq!(job.data["status"]["restartCount"], json!(0));
    fixture.delete("waits").await;
    fixture.once_gone("waits").await;
}

/// Applies a definition with an additional field of `spec`, and waits until the API server serves
/// it.
async fn defined(fixture: &JobFixture, definition: &CustomResourceDefinition, mark: &str) {
    let mut definition = definition.clone();
    let schema = definition.spec.versions[0].schema.as_mut().unwrap();
    let schema = schema.open_api_v3_schema.as_mut().unwrap();
    let spec = schema.properties.as_mut().unwrap().get_mut("spec").unwrap();
    let marked = JSONSchemaProps {
        type_: Some("boolean".to_owned()),
        ..JSONSchemaProps::default()
    };
    let fields = spec.properties.as_mut().unwrap();
    fields.insert(mark.to_owned(), marked);
    define(&fixture.client, &definition).await;
    let mut job = single("marked");
    job["spec"][mark] = json!(true);
    let job: DynamicObject = serde_json::from_value(job).unwrap();
    let dry_run = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    eventually("the API server serves the definition", async || {
        let made = fixture.jobs().create(&dry_run, &job).await.unwrap();
        Seen::when(made.data["spec"][mark].clone(), |mark| *mark == json!(true))
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

/// Returns the content of all jobs, by name.
async fn jobs(fixture: &JobFixture) -> BTreeMap<String, Value> {
    let jobs = fixture.jobs().list(&ListParams::default()).await.unwrap();
    let jobs = jobs.into_iter();
    jobs.map(|job| (job.name_any(), job.data)).collect()
}

/// Returns the UIDs of all Pods, by name.
async fn pods(fixture: &JobFixture) -> BTreeMap<String, Option<String>> {
    let pods = fixture.pods().list(&ListParams::default()).await.unwrap();
    let pods = pods.into_iter();
    pods.map(|pod| (pod.name_any(), pod.uid())).collect()
}
