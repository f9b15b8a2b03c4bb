//! Jobs that are hard to tell apart, that come back under the same name, that are deleted at an awkward
//! moment, or whose rights somebody removes.

use std::fmt::Debug;

use ipu_api::naming;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use kube::{Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::json;
use tests::wait::{Seen, eventually};

use crate::job::{parallel, single};
use crate::stage::Stage;

#[tokio::test]
async fn jobs_whose_names_differ_after_the_63rd_character_have_each_their_own() {
    let mut stage = Stage::new("alike").await;
    stage.start();
    let jobs = ["a", "b"].map(|end| format!("{}-{end}", "n".repeat(70)));
    for job in &jobs {
        stage.submit(&single(job)).await;
    }
    let partitions = eventually("both partitions are asked for", async || {
        Seen::when(stage.partitions().await, |found| found.len() == 2)
    });
    let mut owners: Vec<_> = partitions.await;
    owners.sort_by(|one, other| one.spec.owner.name.cmp(&other.spec.owner.name));
    let owners = owners.into_iter().map(|found| found.spec.owner.name);
    assert_eq!(owners.collect::<Vec<_>>(), jobs);
    stage.delete(&jobs[0]).await;
    stage.gone(&jobs[0]).await;
    stage.partition_ready(0).await;
    let pod = stage.pod_exists(&naming::worker(&jobs[1], 0)).await;
    assert_eq!(pod.owner_references()[0].name, jobs[1]);
    stage.pod_runs(&naming::worker(&jobs[1], 0)).await;
    let message = "Successfully reconciled IPUJob";
    stage.row(&jobs[1], "Running 1 1", message).await;
    stage.delete(&jobs[1]).await;
    stage.gone(&jobs[1]).await;
    stage.kill().await;
}

#[tokio::test]
async fn a_job_made_again_at_once_waits_for_what_the_earlier_one_left() {
    let mut stage = Stage::new("anew").await;
    stage.start();
    stage.submit(&parallel("mpi")).await;
    stage.partition_ready(0).await;
    stage.pod_exists("mpi-worker-0").await;
    stage.delete("mpi").await;
    stage.gone("mpi").await;

    // No garbage collector runs here: what belonged to the first job is still there.
    stage.submit(&parallel("mpi")).await;
    stage.partition_ready(0).await;
    let message = "waiting for an earlier ServiceAccount mpi-launcher to be gone";
    stage.row("mpi", "Pending 0 1", message).await;
    let pod = stage.pods().get_opt("mpi-worker-0").await.unwrap();
    assert!(
        pod.is_none(),
        "its launcher would have the earlier job's rights"
    );
    remove::<ServiceAccount>(&stage, "mpi-launcher").await;
    remove::<Role>(&stage, "mpi-launcher").await;
    remove::<RoleBinding>(&stage, "mpi-launcher").await;

    let second = stage.jobs().get("mpi").await.unwrap().uid();
    let pod = stage.pod_exists("mpi-worker-0").await;
    assert_eq!(Some(&pod.owner_references()[0].uid), second.as_ref());
    stage.delete("mpi").await;
    stage.gone("mpi").await;
    stage.kill().await;
}

#[tokio::test]
async fn a_job_can_be_deleted_while_its_partition_forms_while_it_starts_again_and_while_it_rests() {
    let mut stage = Stage::new("awkward").await;
    stage.start();
    stage.submit(&single("forms")).await;
    eventually("the partition is asked for", async || {
        Seen::when(stage.partitions().await, |found| found.len() == 1)
    })
    .await;
    stage.delete("forms").await;
    stage.gone("forms").await;

    let mut restarts = single("restarts");
    restarts["spec"]["restartPolicy"] = json!({"type": "OnFailure"});
    stage.submit(&restarts).await;
    stage.partition_ready(0).await;
    stage.pod_runs("restarts-worker-0").await;
    stage.pod_ends("restarts-worker-0", 1).await;
    stage
        .row("restarts", "Pending 0 1", "restarting, not before ")
        .await;
    stage.delete("restarts").await;
    stage.gone("restarts").await;

    stage.submit(&single("rests")).await;
    stage.partition_ready(0).await;
    stage.pod_runs("rests-worker-0").await;
    let suspend = Patch::Merge(json!({"spec": {"suspend": true}}));
    let user = PatchParams::default();
    stage.jobs().patch("rests", &user, &suspend).await.unwrap();
    stage.row("rests", "Suspended 0 1", "suspended: ").await;
    stage.delete("rests").await;
    stage.gone("rests").await;

    assert!(stage.partitions().await.is_empty());
    let pods = stage.pods().list(&Default::default()).await.unwrap();
    assert!(pods.items.is_empty(), "{pods:?}");
    stage.kill().await;
}

#[tokio::test]
async fn rights_that_somebody_removes_under_a_job_come_back_at_once() {
    let mut stage = Stage::new("removed").await;
    stage.start();
    stage.submit(&parallel("mpi")).await;
    stage.partition_ready(0).await;
    stage.pod_exists("mpi-worker-1").await;
    // Its launcher has yet to use them.
    come_back_once_removed(&stage).await;
    for pod in ["mpi-worker-0", "mpi-worker-1", "mpi-launcher"] {
        stage.pod_runs(pod).await;
    }
    let message = "Successfully reconciled IPUJob";
    stage.row("mpi", "Running 1 1", message).await;
    come_back_once_removed(&stage).await;
    stage.row("mpi", "Running 1 1", message).await;
    stage.delete("mpi").await;
    stage.gone("mpi").await;
    stage.kill().await;
}

async fn come_back_once_removed(stage: &Stage) {
    let accounts = remove::<ServiceAccount>(stage, "mpi-launcher").await;
    let roles = remove::<Role>(stage, "mpi-launcher").await;
    eventually("both are back", async || {
        let account = accounts.get_opt("mpi-launcher").await.unwrap()?;
        let role = roles.get_opt("mpi-launcher").await.unwrap()?;
        Some((account, role))
    })
    .await;
}

/// Somebody removes an object of a job. Answers where it may come back.
async fn remove<K>(stage: &Stage, name: &str) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned,
{
    let objects: Api<K> = Api::namespaced(stage.client.clone(), &stage.namespace);
    objects
        .delete(name, &DeleteParams::default())
        .await
        .unwrap();
    objects
}
