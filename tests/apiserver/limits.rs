//! Limits that become stricter, and a quota that lets some Pods of a job through, on a real API server.

use ipu_api::crd;
use k8s_openapi::api::core::v1::ResourceQuota;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tests::wait::{Seen, eventually};

use crate::definitions::{define, loose};
use crate::job::{parallel, single};
use crate::stage::Stage;

async fn no_partition_is_left(stage: &Stage) {
    eventually("all partitions are given back", async || {
        Seen::when(stage.partitions().await, Vec::is_empty)
    })
    .await;
}

async fn said(stage: &Stage, name: &str, part: &str) {
    eventually(&format!("{name} says `{part}`"), async || {
        let job = stage.jobs().get(name).await.unwrap();
        let said = job.data["status"]["lastMessage"].to_string();
        Seen::when(said, |said| said.contains(part))
    })
    .await;
}

#[tokio::test]
async fn a_job_that_runs_goes_on_to_its_end_under_a_stricter_limit() {
    let mut stage = Stage::new("stricter").await;
    stage.start();
    stage.submit(&single("runs")).await;
    stage.partition_ready(0).await;
    stage.pod_runs("runs-worker-0").await;
    stage
        .row("runs", "Running 1 1", "Successfully reconciled IPUJob")
        .await;
    stage.kill().await;
    stage.start_under(2);
    stage.submit(&single("later")).await;
    stage
        .row("later", "Failed 0 1", "spec.ipusPerJobInstance: \"4\"")
        .await;
    // What came later was looked at: so was this.
    stage
        .row("runs", "Running 1 1", "Successfully reconciled IPUJob")
        .await;
    let scaled = Patch::Merge(json!({"spec": {"replicas": 2}}));
    let nobody = PatchParams::default();
    stage
        .jobs()
        .patch_scale("runs", &nobody, &scaled)
        .await
        .unwrap();
    said(&stage, "runs", "spec.ipusPerJobInstance").await;
    assert_eq!(stage.partitions().await.len(), 1);
    let scaled = Patch::Merge(json!({"spec": {"replicas": 1}}));
    stage
        .jobs()
        .patch_scale("runs", &nobody, &scaled)
        .await
        .unwrap();
    stage
        .row("runs", "Running 1 1", "Successfully reconciled IPUJob")
        .await;
    stage.pod_ends("runs-worker-0", 0).await;
    stage
        .row("runs", "Completed 0 1", "All instances done")
        .await;
    no_partition_is_left(&stage).await;
    // An admin takes the limit back.
    stage.kill().await;
    stage.start();
    stage.partition_ready(0).await;
    stage
        .row("later", "Running 1 1", "Successfully reconciled IPUJob")
        .await;
    for job in ["runs", "later"] {
        stage.delete(job).await;
        stage.gone(job).await;
    }
    stage.kill().await;
}

#[tokio::test]
async fn the_end_of_a_job_that_cannot_be_read_any_more_is_seen() {
    let mut stage = Stage::new("unreadable").await;
    stage.start();
    let mut job = parallel("mpi");
    job["spec"]["cleanPodPolicy"] = json!("Workers");
    stage.submit(&job).await;
    stage.partition_ready(0).await;
    for pod in ["mpi-worker-0", "mpi-worker-1", "mpi-launcher"] {
        stage.pod_runs(pod).await;
    }
    stage
        .row("mpi", "Running 1 1", "Successfully reconciled IPUJob")
        .await;
    define(&stage.client, &loose(crd::ipujob())).await;
    let broken: Value = json!({"spec": {"restartPolicy": {"type": "Sometimes"}}});
    eventually("the loose CRD is served", async || {
        let (patch, nobody) = (Patch::Merge(&broken), PatchParams::default());
        stage.jobs().patch("mpi", &nobody, &patch).await
    })
    .await;
    stage
        .row(
            "mpi",
            "Running 1 1",
            "nothing more is made for the job: spec.restartPolicy.type",
        )
        .await;
    stage.kill().await;
    stage.start();
    stage.pod_ends("mpi-launcher", 0).await;
    stage
        .row("mpi", "Completed 0 1", "All instances done")
        .await;
    no_partition_is_left(&stage).await;
    stage.delete("mpi").await;
    stage.gone("mpi").await;
    define(&stage.client, &crd::ipujob()).await;
    stage.kill().await;
}

#[tokio::test]
async fn a_worker_that_ran_beside_one_of_a_full_quota_is_followed_by_a_reset() {
    let mut stage = Stage::new("quota").await;
    let quota: ResourceQuota = serde_json::from_value(json!({
        "metadata": {"name": "pods"}, "spec": {"hard": {"pods": "1"}},
    }))
    .unwrap();
    let quotas: Api<ResourceQuota> = Api::namespaced(stage.client.clone(), &stage.namespace);
    quotas.create(&PostParams::default(), &quota).await.unwrap();
    // Nobody plays the controller of quotas here; admission counts for itself.
    let counted = json!({"status": {"hard": {"pods": "1"}, "used": {"pods": "0"}}});
    let (counted, nobody) = (Patch::Merge(&counted), PatchParams::default());
    quotas
        .patch_status("pods", &nobody, &counted)
        .await
        .unwrap();

    stage.start();
    let mut job = single("pair");
    job["spec"]["workersPerJobInstance"] = json!("2");
    stage.submit(&job).await;
    stage.partition_ready(0).await;
    stage.pod_runs("pair-worker-0").await;
    said(&stage, "pair", "exceeded quota").await;
    let status = stage.jobs().get("pair").await.unwrap().data["status"].clone();
    let used = status["run"]["used"]["0"].as_str().unwrap();
    assert!(used.ends_with("quota-0/0"), "{used}");
    let resets = async || {
        let partitions = stage.partitions().await;
        partitions[0].spec.reset_generation
    };
    assert_eq!(resets().await, 0);

    let now = DeleteParams::default().grace_period(0);
    stage.pods().delete("pair-worker-0", &now).await.unwrap();
    eventually("the partition is to be reset", async || {
        Seen::when(resets().await, |resets| *resets == 1)
    })
    .await;
    let pods = stage.pods().list(&ListParams::default()).await.unwrap();
    let pods: Vec<String> = pods.iter().map(ResourceExt::name_any).collect();
    assert!(pods.is_empty(), "nothing uses it before: {pods:?}");
    quotas
        .delete("pods", &DeleteParams::default())
        .await
        .unwrap();
    stage.partition_reset(0).await;
    for pod in ["pair-worker-0", "pair-worker-1"] {
        stage.pod_runs(pod).await;
    }
    stage
        .row("pair", "Running 1 1", "Successfully reconciled IPUJob")
        .await;
    assert_eq!(resets().await, 1);
    stage.delete("pair").await;
    stage.gone("pair").await;
    stage.kill().await;
}
