//! Stricter limits, and a quota for only some Pods of a job, on a real API server.

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
use crate::job_fixture::JobFixture;

async fn no_partition_is_left(fixture: &JobFixture) {
    eventually("all partitions are released", async || {
        Seen::when(fixture.partitions().await, Vec::is_empty)
    })
    .await;
}

async fn said(fixture: &JobFixture, name: &str, part: &str) {
    eventually(&format!("{name} says `{part}`"), async || {
        let job = fixture.jobs().get(name).await.unwrap();
        let said = job.data["status"]["lastMessage"].to_string();
        Seen::when(said, |said| said.contains(part))
    })
    .await;
}

/// The user scales a job to this number of instances.
async fn scale(fixture: &JobFixture, job: &str, instances: u32) {
    let scaled = Patch::Merge(json!({"spec": {"replicas": instances}}));
    let (jobs, nobody) = (fixture.jobs(), PatchParams::default());
    jobs.patch_scale(job, &nobody, &scaled).await.unwrap();
}

#[tokio::test]
async fn a_running_job_completes_under_a_stricter_limit() {
    let mut fixture = JobFixture::new("stricter").await;
    fixture.start();
    fixture.submit(&single("runs")).await;
    fixture.partition_ready(0).await;
    fixture.pod_runs("runs-worker-0").await;
    fixture
        .row("runs", "Running 1 1", "Successfully reconciled IPUJob")
        .await;
    fixture.kill().await;
    fixture.start_under(2);
    fixture.submit(&single("later")).await;
    fixture
        .row("later", "Failed 0 1", "spec.ipusPerJobInstance: \"4\"")
        .await;
    // A later change was reconciled, so this one was, too.
    fixture
        .row("runs", "Running 1 1", "Successfully reconciled IPUJob")
        .await;
    scale(&fixture, "runs", 2).await;
    said(&fixture, "runs", "spec.ipusPerJobInstance").await;
    assert_eq!(fixture.partitions().await.len(), 1);
    scale(&fixture, "runs", 1).await;
    fixture
        .row("runs", "Running 1 1", "Successfully reconciled IPUJob")
        .await;
    fixture.pod_ends("runs-worker-0", 0).await;
    fixture
        .row("runs", "Completed 0 1", "All instances done")
        .await;
    no_partition_is_left(&fixture).await;
    // Events are written in their order: an event about the stricter limit would precede the end.
    eventually("an event reports its end", async || {
        let reasons = fixture.reasons_of("runs").await;
        Seen::when(reasons, |all| {
            all.iter().any(|one| one == "IPUJobSucceeded")
        })
    })
    .await;
    let [of_runs, of_later] = [fixture.reasons_of("runs"), fixture.reasons_of("later")];
    let (of_runs, of_later) = tokio::join!(of_runs, of_later);
    let fails = |reasons: &[String]| reasons.iter().any(|one| one == "IPUJobFailed");
    assert!(!fails(&of_runs), "{of_runs:?}");
    assert!(fails(&of_later), "{of_later:?}");
    // An admin removes the limit again.
    fixture.kill().await;
    fixture.start();
    fixture.partition_ready(0).await;
    fixture
        .row("later", "Running 1 1", "Successfully reconciled IPUJob")
        .await;
    for job in ["runs", "later"] {
        fixture.delete(job).await;
        fixture.once_gone(job).await;
    }
    fixture.kill().await;
}

#[tokio::test]
async fn the_end_of_a_job_that_cannot_be_read_any_more_is_seen() {
    let mut fixture = JobFixture::new("unreadable").await;
    fixture.start();
    let mut job = parallel("mpi");
    job["spec"]["cleanPodPolicy"] = json!("Workers");
    fixture.submit(&job).await;
    fixture.partition_ready(0).await;
    for pod in ["mpi-worker-0", "mpi-worker-1", "mpi-launcher"] {
        fixture.pod_runs(pod).await;
    }
    fixture
        .row("mpi", "Running 1 1", "Successfully reconciled IPUJob")
        .await;
    define(&fixture.client, &loose(crd::ipujob())).await;
    let broken: Value = json!({"spec": {"restartPolicy": {"type": "Sometimes"}}});
    eventually("the loose CRD is served", async || {
        let (patch, nobody) = (Patch::Merge(&broken), PatchParams::default());
        Seen::once_accepted(fixture.jobs().patch("mpi", &nobody, &patch).await)
    })
    .await;
    fixture
        .row(
            "mpi",
            "Running 1 1",
            "the operator creates no more objects for the job: spec.restartPolicy.type",
        )
        .await;
    fixture.kill().await;
    fixture.start();
    fixture.pod_ends("mpi-launcher", 0).await;
    fixture
        .row("mpi", "Completed 0 1", "All instances done")
        .await;
    no_partition_is_left(&fixture).await;
    fixture.delete("mpi").await;
    fixture.once_gone("mpi").await;
    define(&fixture.client, &crd::ipujob()).await;
    fixture.kill().await;
}

#[tokio::test]
async fn a_worker_that_ran_beside_one_of_a_full_quota_is_followed_by_a_reset() {
    let mut fixture = JobFixture::new("quota").await;
    let quota: ResourceQuota = serde_json::from_value(json!({
        "metadata": {"name": "pods"}, "spec": {"hard": {"pods": "1"}},
    }))
    .unwrap();
    let quotas: Api<ResourceQuota> = Api::namespaced(fixture.client.clone(), &fixture.namespace);
    quotas.create(&PostParams::default(), &quota).await.unwrap();
    // No quota controller runs here. Admission does its own count.
    let counted = json!({"status": {"hard": {"pods": "1"}, "used": {"pods": "0"}}});
    let (counted, nobody) = (Patch::Merge(&counted), PatchParams::default());
    quotas
        .patch_status("pods", &nobody, &counted)
        .await
        .unwrap();

    fixture.start();
    let mut job = single("pair");
    job["spec"]["workersPerJobInstance"] = json!("2");
    fixture.submit(&job).await;
    fixture.partition_ready(0).await;
    fixture.pod_runs("pair-worker-0").await;
    said(&fixture, "pair", "exceeded quota").await;
    let status = fixture.jobs().get("pair").await.unwrap().data["status"].clone();
    let used = status["run"]["used"]["0"].as_str().unwrap();
    assert!(used.ends_with("quota-0/0"), "{used}");
    let resets = async || {
        let partitions = fixture.partitions().await;
        partitions[0].spec.reset_generation
    };
    assert_eq!(resets().await, 0);

    let now = DeleteParams::default().grace_period(0);
    fixture.pods().delete("pair-worker-0", &now).await.unwrap();
    eventually("the partition is to be reset", async || {
        Seen::when(resets().await, |resets| *resets == 1)
    })
    .await;
    let pods = fixture.pods().list(&ListParams::default()).await.unwrap();
    let pods: Vec<String> = pods.iter().map(ResourceExt::name_any).collect();
    assert!(pods.is_empty(), "nothing uses it before: {pods:?}");
    quotas
        .delete("pods", &DeleteParams::default())
        .await
        .unwrap();
    fixture.partition_reset(0).await;
    for pod in ["pair-worker-0", "pair-worker-1"] {
        fixture.pod_runs(pod).await;
    }
    fixture
        .row("pair", "Running 1 1", "Successfully reconciled IPUJob")
        .await;
    assert_eq!(resets().await, 1);
    fixture.delete("pair").await;
    fixture.once_gone("pair").await;
    fixture.kill().await;
}

/// Creates a quota that requires requests of CPU and memory from every container, and has plenty of
/// both.
async fn quota_of_resources(fixture: &JobFixture) {
    let hard = json!({
        "requests.cpu": "64", "requests.memory": "64Gi", "limits.cpu": "64", "limits.memory": "64Gi",
    });
    let quota = json!({"metadata": {"name": "resources"}, "spec": {"hard": hard}});
    let quota: ResourceQuota = serde_json::from_value(quota).unwrap();
    let quotas: Api<ResourceQuota> = Api::namespaced(fixture.client.clone(), &fixture.namespace);
    quotas.create(&PostParams::default(), &quota).await.unwrap();
    // No quota controller runs here. Admission does its own count.
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

/// Returns each container of a Pod, the init containers first: its name and one line with its
/// requests and limits of CPU and memory.
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
    let mut fixture = JobFixture::new("limit-range").await;
    quota_of_resources(&fixture).await;
    fixture.start();
    let mut job = parallel("mpi");
    let worker = &mut job["spec"]["workers"]["template"]["spec"];
    worker["containers"][0]["resources"] = json!({
        "requests": {"cpu": "2", "memory": "1Gi"}, "limits": {"cpu": "4", "memory": "2Gi"},
    });
    worker["containers"]
        .as_array_mut()
        .unwrap()
        .push(json!({"name": "sidecar", "image": "sidecar:1"}));
    // The launcher has an init container that fills a volume of the first container.
    let mounts = json!([{"name": "data", "mountPath": "/data"}]);
    worker["volumes"] = json!([{"name": "data", "emptyDir": {}}]);
    worker["containers"][0]["volumeMounts"] = mounts.clone();
    worker["initContainers"] =
        json!([{"name": "fetch", "image": "fetch:1", "volumeMounts": mounts}]);
    fixture.submit(&job).await;
    said(&fixture, "mpi", "must specify limits.cpu").await;
    assert!(fixture.partitions().await.is_empty(), "it takes no IPUs");

    let range: LimitRange = serde_json::from_value(json!({
        "metadata": {"name": "defaults"}, "spec": {"limits": [{
            "type": "Container",
            "default": {"cpu": "500m", "memory": "256Mi"},
            "defaultRequest": {"cpu": "100m", "memory": "64Mi"},
        }]},
    }))
    .unwrap();
    let ranges: Api<LimitRange> = Api::namespaced(fixture.client.clone(), &fixture.namespace);
    ranges.create(&PostParams::default(), &range).await.unwrap();
    fixture.partition_ready(0).await;

    let (own, default) = ("2 1Gi of 4 2Gi", "100m 64Mi of 500m 256Mi");
    for worker in ["mpi-worker-0", "mpi-worker-1"] {
        let pod = fixture.pod_exists(worker).await;
        let expected = [
            // It has those of the container that it serves, so that the quality of service stays.
            ("ipu-operator-agent", own),
            ("fetch", default),
            ("main", own),
            ("sidecar", default),
        ];
        let expected = expected.map(|(name, line)| (name.to_owned(), line.to_owned()));
        assert_eq!(resources(&pod), expected, "{worker}");
        fixture.pod_runs(worker).await;
    }
    let launcher = fixture.pod_exists("mpi-launcher").await;
    let found = resources(&launcher);
    let names: Vec<_> = found.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["ipu-operator-agent", "fetch", "launcher"]);
    assert!(found.iter().all(|(_, line)| line == default), "{found:?}");
    fixture.pod_runs("mpi-launcher").await;
    fixture
        .row("mpi", "Running 1 1", "Successfully reconciled IPUJob")
        .await;
    fixture.delete("mpi").await;
    fixture.once_gone("mpi").await;
    fixture.kill().await;
}
