//! The job controller on a real API server: from `kubectl apply` to Completed, and faults on the
//! way.

mod killed;
mod waited;

use std::time::Duration;

use cluster::wait::{Seen, eventually, within};
use ipu_api::crd;
use ipu_api::ipupartition::IPUPartition;
use ipu_api::labels;
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::definitions::{define, loose};
use crate::job_fixture::JobFixture;

/// Median of the time from the partition of a job to its first Pod.
const FIRST_POD: Duration = Duration::from_millis(150);

/// Median of the time from the end of a job to the release of its partition.
const RELEASE: Duration = Duration::from_millis(100);

/// A job of one worker on 4 IPUs, after defaulting.
pub(crate) fn single(name: &str) -> Value {
    json!({
        "apiVersion": "graphcore.ai/v1alpha1",
        "kind": "IPUJob",
        "metadata": {"name": name},
        "spec": {
            "jobInstances": 1,
            "ipusPerJobInstance": "4",
            "workers": {"template": {"metadata": {"labels": {"app": "mine"}}, "spec": {
                "containers": [{
                    "name": "main", "image": "program:1",
                    "resources": {"limits": {"rdma/rdma_shared_device_a": 1}},
                }],
            }}},
        },
    })
}

/// The same with a launcher and two workers.
pub(crate) fn parallel(name: &str) -> Value {
    let mut job = single(name);
    job["spec"]["workersPerJobInstance"] = json!("2");
    job["spec"]["launcher"] = json!({"command": ["mpirun"]});
    job
}

#[tokio::test]
async fn a_single_worker_completes_and_is_deleted_without_a_trace() {
    let mut fixture = JobFixture::new("single").await;
    fixture.start();
    fixture.submit(&single("hello")).await;
    fixture
        .row("hello", "Pending 0 1", "partition not ready yet!")
        .await;
    fixture.partition_ready(0).await;
    let worker = fixture.pod_exists("hello-worker-0");
    let worker = within("a job has its Pod", FIRST_POD, worker).await;
    assert_eq!(worker.labels()["app"], "mine");
    let limits = worker.spec.unwrap().containers[0]
        .resources
        .clone()
        .unwrap();
    assert_eq!(limits.limits.unwrap()["rdma/rdma_shared_device_a"].0, "1");
    fixture
        .row("hello", "Running 1 1", "Successfully reconciled IPUJob")
        .await;
    fixture.pod_runs("hello-worker-0").await;
    fixture.pod_ends("hello-worker-0", 0).await;
    fixture
        .row("hello", "Completed 0 1", "All instances done")
        .await;
    let released = eventually("the partition is released", async || {
        Seen::when(fixture.partitions().await, Vec::is_empty)
    });
    within("a completed job releases its IPUs", RELEASE, released).await;

    for wanted in ["SuccessfulCreate", "IPUJobSucceeded"] {
        fixture.event(wanted).await;
    }

    fixture.delete("hello").await;
    fixture.once_gone("hello").await;
    let left = fixture.pods().list(&ListParams::default()).await.unwrap();
    assert!(
        left.items.is_empty(),
        "the finalizer's work deletes Pods itself"
    );
    fixture.kill().await;
}

#[tokio::test]
async fn a_worker_deleted_under_a_running_launcher_fails_the_job_though_it_ends_with_0() {
    let mut fixture = JobFixture::new("lost").await;
    fixture.start();
    fixture.submit(&single("later")).await;
    fixture.job_partition_ready("later").await;
    fixture.pod_runs("later-worker-0").await;
    fixture.submit(&parallel("mpi")).await;
    fixture.job_partition_ready("mpi").await;
    fixture.pod_runs("mpi-worker-0").await;
    fixture.pod_runs("mpi-worker-1").await;
    // On a node, a deleted Pod stays until its kubelet has ended it.
    fixture.pod_is_bound("mpi-launcher", "node").await;
    fixture.pod_runs("mpi-launcher").await;
    fixture
        .row("mpi", "Running 1 1", "Successfully reconciled IPUJob")
        .await;
    let parameters = DeleteParams::default();
    fixture
        .pods()
        .delete("mpi-worker-1", &parameters)
        .await
        .unwrap();
    fixture
        .row("mpi", "Failed 0 1", "worker mpi-worker-1 ")
        .await;
    fixture.pod_ends("mpi-launcher", 0).await;
    // The watch of Pods keeps their order: the end of this Pod arrives after the events of the
    // launcher.
    fixture.pod_ends("later-worker-0", 0).await;
    fixture.row("later", "Completed 0 1", "").await;
    fixture
        .row("mpi", "Failed 0 1", "worker mpi-worker-1 ")
        .await;
    fixture.delete("later").await;
    fixture.once_gone("later").await;
    fixture.kill().await;
}

#[tokio::test]
async fn deleting_a_job_while_its_controller_is_down_reports_it_and_continues() {
    let mut fixture = JobFixture::new("down").await;
    fixture.start();
    fixture.submit(&single("web")).await;
    fixture.partition_ready(0).await;
    fixture.pod_runs("web-worker-0").await;
    let partitions: Api<IPUPartition> = Api::all(fixture.client.clone());
    let name = fixture.partitions().await[0].name_any();
    let hold = json!({"metadata": {"finalizers": ["tests.graphcore.ai/hold"]}});
    let nobody = PatchParams::default();
    partitions
        .patch(&name, &nobody, &Patch::Merge(hold))
        .await
        .unwrap();
    fixture.delete("web").await;
    fixture
        .row("web", "Running 1 1", "deleting: IPUPartition ")
        .await;
    assert!(
        fixture
            .pods()
            .get_opt("web-worker-0")
            .await
            .unwrap()
            .is_none()
    );
    let down = json!({"status": {"waiting": [
        {"controller": "pod1:8090", "reason": "does not answer"},
    ]}});
    partitions
        .patch_status(&name, &nobody, &Patch::Merge(down))
        .await
        .unwrap();
    eventually("the status names the controller", async || {
        let job = fixture.jobs().get("web").await.unwrap();
        let said = job.data["status"]["lastMessage"].to_string();
        Seen::when(said, |said| said.contains("pod1:8090: does not answer"))
    })
    .await;
    let back = json!({"metadata": {"finalizers": null}});
    partitions
        .patch(&name, &nobody, &Patch::Merge(back))
        .await
        .unwrap();
    fixture.once_gone("web").await;
    fixture.kill().await;
}

#[tokio::test]
async fn objects_of_other_owners_are_named_and_never_changed() {
    let mut fixture = JobFixture::new("strangers").await;
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": "web-worker-0"},
        "spec": {"containers": [{"name": "main", "image": "theirs:1"}]},
    }))
    .unwrap();
    let made = fixture
        .pods()
        .create(&PostParams::default(), &pod)
        .await
        .unwrap();
    let accounts: Api<ServiceAccount> = Api::namespaced(fixture.client.clone(), &fixture.namespace);
    let theirs = json!({"metadata": {"name": "mpi-launcher", "labels": {"theirs": "yes"}}});
    let theirs: ServiceAccount = serde_json::from_value(theirs).unwrap();
    accounts
        .create(&PostParams::default(), &theirs)
        .await
        .unwrap();

    fixture.start();
    fixture.submit(&single("web")).await;
    fixture.partition_ready(0).await;
    let wanted = "Pod web-worker-0 exists and belongs to no controller";
    fixture.row("web", "Pending 0 1", wanted).await;
    let found = fixture.pods().get("web-worker-0").await.unwrap();
    assert_eq!(found.uid(), made.uid());
    assert_eq!(found.owner_references().len(), 0);
    let parameters = DeleteParams::default();
    fixture
        .pods()
        .delete("web-worker-0", &parameters)
        .await
        .unwrap();
    fixture
        .row("web", "Running 1 1", "Successfully reconciled IPUJob")
        .await;
    fixture.delete("web").await;
    fixture.once_gone("web").await;

    fixture.submit(&parallel("mpi")).await;
    fixture.partition_ready(0).await;
    fixture
        .row("mpi", "Pending 0 1", "ServiceAccount mpi-launcher exists")
        .await;
    let found = accounts.get("mpi-launcher").await.unwrap();
    assert_eq!(found.labels()["theirs"], "yes");
    assert!(
        fixture
            .pods()
            .get_opt("mpi-worker-0")
            .await
            .unwrap()
            .is_none()
    );
    fixture.delete("mpi").await;
    fixture.once_gone("mpi").await;
    fixture.kill().await;
}

#[tokio::test]
async fn a_job_edited_past_the_schema_reports_it_and_delays_no_other_job() {
    let mut fixture = JobFixture::new("undecodable").await;
    define(&fixture.client, &loose(crd::ipujob())).await;
    let mut bad = single("bad");
    bad["spec"]["ipusPerJobInstance"] = json!(4);
    eventually("the loose CRD is served", async || {
        let job = serde_json::from_value(bad.clone()).unwrap();
        let made = fixture.jobs().create(&PostParams::default(), &job).await;
        Seen::once_accepted(made)
    })
    .await;
    define(&fixture.client, &crd::ipujob()).await;

    fixture.start();
    fixture.submit(&single("good")).await;
    fixture.partition_ready(0).await;
    fixture
        .row("good", "Running 1 1", "Successfully reconciled IPUJob")
        .await;
    fixture
        .row(
            "bad",
            "Failed 0 1",
            "spec.ipusPerJobInstance cannot be read",
        )
        .await;
    fixture.delete("bad").await;
    fixture.once_gone("bad").await;
    fixture.delete("good").await;
    fixture.once_gone("good").await;
    fixture.kill().await;
}

#[tokio::test]
async fn a_job_that_bypassed_the_webhooks_names_the_broken_rule_and_continues_when_fixed() {
    let mut fixture = JobFixture::new("broken").await;
    fixture.start();
    let mut job = single("three");
    job["spec"]["ipusPerJobInstance"] = json!("3");
    fixture.submit(&job).await;
    fixture
        .row("three", "Failed 0 1", "spec.ipusPerJobInstance: \"3\"")
        .await;
    assert!(fixture.partitions().await.is_empty());
    job["spec"]["ipusPerJobInstance"] = json!("2");
    fixture.submit(&job).await;
    fixture.partition_ready(0).await;
    fixture
        .row("three", "Running 1 1", "Successfully reconciled IPUJob")
        .await;
    fixture.delete("three").await;
    fixture.once_gone("three").await;
    fixture.kill().await;
}

#[tokio::test]
async fn scale_moves_jobs_without_a_launcher_and_only_those() {
    let mut fixture = JobFixture::new("scale").await;
    fixture.start();
    fixture.submit(&single("web")).await;
    fixture.submit(&parallel("mpi")).await;
    let scaled = Patch::Merge(json!({"spec": {"replicas": 2}}));
    let jobs = fixture.jobs();
    let error = jobs
        .patch_scale("mpi", &PatchParams::default(), &scaled)
        .await
        .unwrap_err();
    assert!(
        error.to_string().contains("jobInstances cannot change"),
        "{error}"
    );
    jobs.patch_scale("web", &PatchParams::default(), &scaled)
        .await
        .unwrap();
    eventually("both partitions are requested", async || {
        let mut of_web = fixture.partitions().await;
        of_web.retain(|found| found.spec.owner.name == "web");
        Seen::when(of_web, |of_web| of_web.len() == 2)
    })
    .await;
    let selector = eventually("the scale has a selector", async || {
        jobs.get_scale("web").await.unwrap().status?.selector
    })
    .await;
    assert!(selector.contains(labels::ROLE_LABEL), "{selector}");
    for name in ["web", "mpi"] {
        fixture.delete(name).await;
        fixture.once_gone(name).await;
    }
    fixture.kill().await;
}
