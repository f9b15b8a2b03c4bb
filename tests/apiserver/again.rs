//! Jobs with almost the same name, jobs that are created again under their name, jobs that are
//! deleted during a transition, and jobs that lose their rights.

use std::fmt::Debug;

use cluster::wait::{Seen, eventually};
use ipu_api::naming;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use kube::{Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::job::{parallel, single};
use crate::job_fixture::JobFixture;

#[tokio::test]
async fn each_of_two_jobs_whose_names_differ_after_the_63rd_character_has_its_own_objects() {
    let mut fixture = JobFixture::new("alike").await;
    fixture.start();
    let jobs = ["a", "b"].map(|end| format!("{}-{end}", "n".repeat(70)));
    for job in &jobs {
        fixture.submit(&single(job)).await;
    }
    let partitions = eventually("both partitions are requested", async || {
        Seen::when(fixture.partitions().await, |found| found.len() == 2)
    });
    let mut owners: Vec<_> = partitions.await;
    owners.sort_by(|one, other| one.spec.owner.name.cmp(&other.spec.owner.name));
    let owners = owners.into_iter().map(|found| found.spec.owner.name);
    assert_eq!(owners.collect::<Vec<_>>(), jobs);
    fixture.delete(&jobs[0]).await;
    fixture.once_gone(&jobs[0]).await;
    fixture.partition_ready(0).await;
    let pod = fixture.pod_exists(&naming::worker(&jobs[1], 0)).await;
    assert_eq!(pod.owner_references()[0].name, jobs[1]);
    fixture.pod_runs(&naming::worker(&jobs[1], 0)).await;
    let message = "Successfully reconciled IPUJob";
    fixture.row(&jobs[1], "Running 1 1", message).await;
    fixture.delete(&jobs[1]).await;
    fixture.once_gone(&jobs[1]).await;
    fixture.kill().await;
}

#[tokio::test]
async fn a_job_that_is_created_again_at_once_waits_for_the_objects_of_the_earlier_one() {
    let mut fixture = JobFixture::new("anew").await;
    fixture.start();
    fixture.submit(&parallel("mpi")).await;
    fixture.partition_ready(0).await;
    let roles: Api<Role> = Api::namespaced(fixture.client.clone(), &fixture.namespace);
    eventually("its launcher has rights", async || {
        roles.get_opt("mpi-launcher").await.unwrap()
    })
    .await;
    fixture.delete("mpi").await;
    fixture.once_gone("mpi").await;

    // No garbage collector runs here: the objects of the first job still exist.
    fixture.submit(&parallel("mpi")).await;
    fixture.partition_ready(0).await;
    let message = "waiting for an earlier ServiceAccount mpi-launcher to be gone";
    fixture.row("mpi", "Pending 0 1", message).await;
    let pod = fixture.pods().get_opt("mpi-worker-0").await.unwrap();
    assert!(
        pod.is_none(),
        "its launcher would have the earlier job's rights"
    );
    remove::<ServiceAccount>(&fixture, "mpi-launcher").await;
    remove::<Role>(&fixture, "mpi-launcher").await;
    remove::<RoleBinding>(&fixture, "mpi-launcher").await;

    let second = fixture.jobs().get("mpi").await.unwrap().uid();
    let pod = fixture.pod_exists("mpi-worker-0").await;
    assert_eq!(Some(&pod.owner_references()[0].uid), second.as_ref());
    fixture.delete("mpi").await;
    fixture.once_gone("mpi").await;
    fixture.kill().await;
}

#[tokio::test]
async fn a_job_can_be_deleted_while_it_starts_restarts_and_is_suspended() {
    let mut fixture = JobFixture::new("awkward").await;
    fixture.start();
    fixture.submit(&single("forms")).await;
    eventually("the partition is requested", async || {
        Seen::when(fixture.partitions().await, |found| found.len() == 1)
    })
    .await;
    fixture.delete("forms").await;
    fixture.once_gone("forms").await;

    let mut restarts = single("restarts");
    restarts["spec"]["restartPolicy"] = json!({"type": "OnFailure"});
    fixture.submit(&restarts).await;
    fixture.partition_ready(0).await;
    fixture.pod_runs("restarts-worker-0").await;
    fixture.pod_ends("restarts-worker-0", 1).await;
    fixture
        .row("restarts", "Pending 0 1", "restarting, not before ")
        .await;
    fixture.delete("restarts").await;
    fixture.once_gone("restarts").await;

    fixture.submit(&single("pauses")).await;
    fixture.partition_ready(0).await;
    fixture.pod_runs("pauses-worker-0").await;
    let suspend = Patch::Merge(json!({"spec": {"suspend": true}}));
    let user = PatchParams::default();
    fixture
        .jobs()
        .patch("pauses", &user, &suspend)
        .await
        .unwrap();
    fixture.row("pauses", "Suspended 0 1", "suspended: ").await;
    fixture.delete("pauses").await;
    fixture.once_gone("pauses").await;

    assert!(fixture.partitions().await.is_empty());
    let pods = fixture.pods().list(&Default::default()).await.unwrap();
    assert!(pods.items.is_empty(), "{pods:?}");
    fixture.kill().await;
}

#[tokio::test]
async fn removed_rights_of_a_job_are_created_again_at_once() {
    let mut fixture = JobFixture::new("removed").await;
    fixture.start();
    fixture.submit(&parallel("mpi")).await;
    fixture.partition_ready(0).await;
    fixture.pod_exists("mpi-worker-1").await;
    // Its launcher has not used them yet.
    come_back_once_removed(&fixture).await;
    for pod in ["mpi-worker-0", "mpi-worker-1", "mpi-launcher"] {
        fixture.pod_runs(pod).await;
    }
    let message = "Successfully reconciled IPUJob";
    fixture.row("mpi", "Running 1 1", message).await;
    come_back_once_removed(&fixture).await;
    fixture.row("mpi", "Running 1 1", message).await;
    fixture.delete("mpi").await;
    fixture.once_gone("mpi").await;
    fixture.kill().await;
}

async fn come_back_once_removed(fixture: &JobFixture) {
    let accounts = remove::<ServiceAccount>(fixture, "mpi-launcher").await;
    let roles = remove::<Role>(fixture, "mpi-launcher").await;
    eventually("both are back", async || {
        let account = accounts.get_opt("mpi-launcher").await.unwrap()?;
        let role = roles.get_opt("mpi-launcher").await.unwrap()?;
        Some((account, role))
    })
    .await;
}

/// Deletes an object of a job once it exists: the operator creates Pods and rights at the same
/// time. Returns the API in which it is created again.
async fn remove<K>(fixture: &JobFixture, name: &str) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned,
{
    let objects: Api<K> = Api::namespaced(fixture.client.clone(), &fixture.namespace);
    eventually(&format!("{name} exists"), async || {
        objects.get_opt(name).await.unwrap()
    })
    .await;
    objects
        .delete(name, &DeleteParams::default())
        .await
        .unwrap();
    objects
}
