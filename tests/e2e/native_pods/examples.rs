//! The manifests of `examples/native`, with the image of the run instead of Graphcore's.

use std::fs;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams};
use libtest_mimic::Failed;
use serde_json::{Value, json};

use super::{create, delete, is_running, once, partition, phase};
use crate::failing_pods::IMAGE;
use crate::fixture::Fixture;

/// The resource of Graphcore's nodes that the nodes of the run do not have.
const RDMA: &str = "rdma/rdma_shared_device_a";

/// The program that replaces the training.
const PRINTS: &str = "echo $IPUOF_VIPU_API_PARTITION_ID as $(id -u)";

/// Runs all four: as root, then as a normal user.
pub(crate) fn examples_run(fixture: &Fixture) -> Result<(), Failed> {
    fixture.block_on(async {
        advertise_rdma(fixture, &json!("4")).await?;
        for (user, suffix) in [(0, ""), (1000, "-normal-user")] {
            let (training, inference) = (
                format!("training{suffix}.yaml"),
                format!("inference{suffix}.yaml"),
            );
            futures::try_join!(
                trains(fixture, &training, user),
                serves(fixture, &inference, user),
            )?;
        }
        advertise_rdma(fixture, &json!(null)).await?;
        fixture.clear().await
    })
}

/// A Job that completes with a partition, as this user.
async fn trains(fixture: &Fixture, file: &str, user: u32) -> Result<(), Failed> {
    let mut job = manifest(fixture, file)?;
    let container = &mut job["spec"]["template"]["spec"]["containers"][0];
    container["args"] = json!(["-c", PRINTS]);
    create::<Job>(fixture, job).await?;
    let label = "batch.kubernetes.io/job-name=simple-training";
    let succeeded = |pods: &[Pod]| pods.len() == 1 && phase(&pods[0]) == Some("Succeeded");
    let pods = once(fixture, label, "the training to succeed", succeeded).await?;
    let log = fixture.kubectl(&["logs", &pods[0].name_any()]).await?;
    let expected = format!("{} as {user}", partition(&pods[0])?);
    assert_eq!(log.trim(), expected, "{file}");
    delete(fixture, "job.batch/simple-training").await
}

/// A Deployment whose Pod runs with a partition, as this user.
async fn serves(fixture: &Fixture, file: &str, user: u32) -> Result<(), Failed> {
    create::<Deployment>(fixture, manifest(fixture, file)?).await?;
    let runs = |pods: &[Pod]| pods.len() == 1 && is_running(&pods[0]);
    let pods = once(fixture, "app=simple-inference", "it to run", runs).await?;
    let name = pods[0].name_any();
    let prints = ["exec", &name, "--", "sh", "-c", PRINTS];
    let expected = format!("{} as {user}", partition(&pods[0])?);
    assert_eq!(fixture.kubectl(&prints).await?.trim(), expected, "{file}");
    delete(fixture, "deployment/simple-inference").await
}

/// Returns a manifest of the folder, changed so that the run can start it.
fn manifest(fixture: &Fixture, file: &str) -> Result<Value, Failed> {
    let folder = fixture.operated.repository.join("examples/native");
    let text = fs::read_to_string(folder.join(file))?;
    let mut object: Value = serde_saphyr::from_str(&text)?;
    let pod = &mut object["spec"]["template"]["spec"];
    // As the first process of its container, `sleep` ignores the signal to end.
    pod["terminationGracePeriodSeconds"] = json!(1);
    let container = &mut pod["containers"][0];
    container["image"] = json!(IMAGE);
    container["imagePullPolicy"] = json!("IfNotPresent");
    if let Some(fields) = container.as_object_mut() {
        fields.remove("workingDir");
    }
    Ok(object)
}

/// Lets all nodes advertise this number of RDMA devices, as a device plugin does.
async fn advertise_rdma(fixture: &Fixture, devices: &Value) -> Result<(), Failed> {
    let nodes: Api<Node> = Api::all(fixture.operated.client.clone());
    let status = json!({"capacity": {RDMA: devices}, "allocatable": {RDMA: devices}});
    let patch = Patch::Merge(json!({"status": status}));
    for controller in &fixture.operated.controllers {
        let params = PatchParams::default();
        nodes
            .patch_status(&controller.node, &params, &patch)
            .await?;
    }
    Ok(())
}
