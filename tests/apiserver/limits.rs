//! Limits that become stricter, and a quota that lets some Pods of a job through, on a real API server.

use std::collections::BTreeMap;

use cluster::wait::{Seen, eventually};
use ipu_api::crd;
use k8s_openapi::api::core::v1::{LimitRange, Pod, ResourceQuota};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

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
    // Events are written in their order: what the stricter limit would have said of it came before its end.
    eventually("its end is told", async || {
        let reasons = stage.reasons_of("runs").await;
        Seen::when(reasons, |all| {
            all.iter().any(|one| one == "IPUJobSucceeded")
        })
    })
    .await;
    let [of_runs, of_later] = [stage.reasons_of("runs"), stage.reasons_of("later")];
    let (of_runs, of_later) = tokio::join!(of_runs, of_later);
    let fails = |reasons: &[String]| reasons.iter().any(|one| one == "IPUJobFailed");
    assert!(!fails(&of_runs), "{of_runs:?}");
    assert!(fails(&of_later), "{of_later:?}");
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

/// Sets a quota that asks every container for CPU and memory, of which there is plenty.
async fn quota_of_resources(stage: &Stage) {
    let hard = json!({
        "requests.cpu": "64", "requests.memory": "64Gi", "limits.cpu": "64", "limits.memory": "64Gi",
    });
    let quota = json!({"metadata": {"name": "resources"}, "spec": {"hard": hard}});
    let quota: ResourceQuota = serde_json::from_value(quota).unwrap();
    let quotas: Api<ResourceQuota> = Api::namespaced(stage.client.clone(), &stage.namespace);
    quotas.create(&PostParams::default(), &quota).await.unwrap();
    // Nobody plays the controller of quotas here; admission counts for itself.
    let used = json!({
        "requests.cpu": "0", "requests.memory": "0", "limits.cpu": "0", "limits.memory": "0",
    });
    let counted = Patch::Merge(json!({"status": {"hard": hard, "used": used}}));
    let nobody = PatchParams::default();
    quotas
        .patch_status("resources", &nobody, &counted)
        .await
        .unwrap();
}

/// Each container of a Pod, the init containers first: its name and one line with its requests and limits of CPU and
/// memory.
fn resources(pod: &Pod) -> Vec<(String, String)> {
    let spec = pod.spec.as_ref().unwrap();
    let init = spec.init_containers.iter().flatten();
    let all = init.chain(&spec.containers).map(|container| {
        let found = container.resources.clone().unwrap_or_default();
        let of = |map: Option<BTreeMap<String, Quantity>>| {
            let map = map.unwrap_or_default();
            ["cpu", "memory"].map(|name| map.get(name).map_or("none", |found| &found.0).to_owned())
        };
        let [requests, limits] = [of(found.requests), of(found.limits)];
        let line = format!("{} of {}", requests.join(" "), limits.join(" "));
        (container.name.clone(), line)
    });
    all.collect()
}

#[tokio::test]
async fn each_container_of_a_job_has_its_own_resources_or_those_of_the_limit_range() {
    let mut stage = Stage::new("limit-range").await;
    quota_of_resources(&stage).await;
    stage.start();
    let mut job = parallel("mpi");
    let worker = &mut job["spec"]["workers"]["template"]["spec"];
    worker["containers"][0]["resources"] = json!({
        "requests": {"cpu": "2", "memory": "1Gi"}, "limits": {"cpu": "4", "memory": "2Gi"},
    });
    worker["containers"]
        .as_array_mut()
        .unwrap()
        .push(json!({"name": "sidecar", "image": "sidecar:1"}));
    worker["initContainers"] = json!([{"name": "fetch", "image": "fetch:1"}]);
    stage.submit(&job).await;
    stage.partition_ready(0).await;
    said(&stage, "mpi", "must specify limits.cpu").await;

    let range: LimitRange = serde_json::from_value(json!({
        "metadata": {"name": "defaults"}, "spec": {"limits": [{
            "type": "Container",
            "default": {"cpu": "500m", "memory": "256Mi"},
            "defaultRequest": {"cpu": "100m", "memory": "64Mi"},
        }]},
    }))
    .unwrap();
    let ranges: Api<LimitRange> = Api::namespaced(stage.client.clone(), &stage.namespace);
    ranges.create(&PostParams::default(), &range).await.unwrap();

    let (own, default) = ("2 1Gi of 4 2Gi", "100m 64Mi of 500m 256Mi");
    for worker in ["mpi-worker-0", "mpi-worker-1"] {
        let pod = stage.pod_exists(worker).await;
        let expected = [
            ("ipu-operator-agent", default),
            ("fetch", default),
            ("main", own),
            ("sidecar", default),
        ];
        let expected = expected.map(|(name, line)| (name.to_owned(), line.to_owned()));
        assert_eq!(resources(&pod), expected, "{worker}");
        stage.pod_runs(worker).await;
    }
    let launcher = stage.pod_exists("mpi-launcher").await;
    let found = resources(&launcher);
    let names: Vec<_> = found.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["ipu-operator-agent", "launcher"]);
    assert!(found.iter().all(|(_, line)| line == default), "{found:?}");
    stage.pod_runs("mpi-launcher").await;
    stage
        .row("mpi", "Running 1 1", "Successfully reconciled IPUJob")
        .await;
    stage.delete("mpi").await;
    stage.gone("mpi").await;
    stage.kill().await;
}
