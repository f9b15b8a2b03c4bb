//! The namespace of a trial that runs beside others: its objects, and the V-IPU partitions of its
//! owners, are the only ones that the trial changes and counts.

use std::path::PathBuf;

use cluster::kubeconfig;
use cluster::plan;
use cluster::settings::Settings;
use cluster::wait::{Seen, until};
use harness::demo::{CleanupError, Controller, partitions_of};
use ipu_api::ipujob::IPUJob;
use ipu_api::labels;
use k8s_openapi::api::core::v1::{Namespace, Pod, ServiceAccount};
use kube::Api;
use kube::api::{ListParams, PostParams};
use libtest_mimic::Failed;
use serde_json::json;

use crate::fixture::{Fixture, PATIENCE};

/// Writes a kubeconfig of the cluster's administrator in this namespace.
pub(crate) fn kubeconfig(settings: &Settings, namespace: &str) -> Result<PathBuf, Failed> {
    let path = plan::kubeconfig(&settings.run, namespace);
    let of_admin = plan::kubeconfig(&settings.run, "admin");
    kubeconfig::write_in(&of_admin, &path, namespace)?;
    Ok(path)
}

/// Creates the namespace, and waits until it accepts Pods.
pub(crate) async fn create(fixture: &Fixture) -> Result<(), Failed> {
    let client = &fixture.operated.client;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace = json!({"metadata": {"name": fixture.namespace}});
    let namespace = serde_json::from_value(namespace)?;
    let parameters = PostParams::default();
    namespaces.create(&parameters, &namespace).await?;
    let accounts: Api<ServiceAccount> = Api::default_namespaced(client.clone());
    let what = format!("{} to have a ServiceAccount", fixture.namespace);
    until(what, PATIENCE, async || {
        Ok::<_, kube::Error>(Seen::from(accounts.get_opt("default").await?))
    })
    .await?;
    Ok(())
}

/// Deletes the namespace. Nobody waits for its end.
pub(crate) async fn delete(fixture: &Fixture) -> Result<(), Failed> {
    let delete = ["delete", "namespace", &fixture.namespace, "--wait=false"];
    fixture.kubectl(&delete).await?;
    Ok(())
}

/// Waits until no IPUJob, Pod of a job, IPUPartition and V-IPU partition of the namespace is left.
pub(crate) async fn nothing_left(fixture: &Fixture) -> Result<(), Failed> {
    let client = &fixture.operated.client;
    let jobs: Api<IPUJob> = Api::default_namespaced(client.clone());
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let of_jobs = ListParams::default().labels(labels::JOB_UID_LABEL);
    let what = format!("{} to have no object of a job", fixture.namespace);
    until(what, PATIENCE, async || {
        let jobs = jobs.list(&ListParams::default()).await?.items.len();
        let pods = pods.list(&of_jobs).await?.items.len();
        let partitions = fixture.partitions().await?.len();
        let left = [
            ("IPUJobs", jobs),
            ("Pods", pods),
            ("IPUPartitions", partitions),
        ];
        Ok::<_, kube::Error>(Seen::when(left, |left| {
            left.iter().all(|(_, count)| *count == 0)
        }))
    })
    .await?;
    for controller in &fixture.operated.controllers {
        no_partition_left(fixture, controller).await?;
    }
    Ok(())
}

/// Waits until a V-IPU controller lists no partition that the operator has created for this
/// namespace.
async fn no_partition_left(fixture: &Fixture, controller: &Controller) -> Result<(), Failed> {
    let of_namespace = fixture.lab.partition_ids.of(&fixture.namespace);
    assert!(!of_namespace.is_empty(), "no partition was recorded");
    let name = &controller.name;
    let what = format!("{name} to list no partition of {}", fixture.namespace);
    until(what, PATIENCE, async || {
        let mut left = partitions_of(controller).await?;
        left.retain(|id| of_namespace.contains(id));
        Ok::<_, CleanupError>(Seen::when(left, Vec::is_empty))
    })
    .await?;
    Ok(())
}
