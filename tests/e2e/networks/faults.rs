//! Faults of a node, each made where a real one is. `kubectl ipu doctor` names each of them, and
//! jobs avoid the node.

use std::net::IpAddr;
use std::process::Command;

use cluster::plan::bin;
use cluster::wait::{Seen, until};
use harness::operator::NAMESPACE;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use libtest_mimic::Failed;

use super::device_plugin::DevicePlugin;
use super::jobs::Spread;
use super::machine::{Cut, Machine};
use super::{LABEL, RESOURCE, cni, jobs};
use crate::fixture::{Fixture, PATIENCE};

/// A check, and words of its line.
type Fault = [&'static str; 2];

/// The node has no RDMA device.
pub(super) const NO_DEVICE: Fault = ["rdma-device", "has no RDMA device"];

/// Six faults that one node can have at the same time.
const SIX: [Fault; 6] = [
    [
        "controller-connection",
        "there is no route to pod1.vipu:8090",
    ],
    ["rdma-link", "mlx5_0 port 1 is DOWN"],
    ["rdma-resource", RESOURCE],
    ["multus", "no configuration of Multus"],
    [
        "network",
        "no NetworkAttachmentDefinition ipu-operator/rdma-net",
    ],
    ["memlock", "is 16Ki, less than 64Ki"],
];

/// The other two, without which the link and the connection are not checked.
const TWO: [Fault; 2] = [NO_DEVICE, ["controller-label", "the node has ipunode=pod9"]];

/// The network of the preset, as kubectl names it.
const NETWORK: &str = "network-attachment-definitions.k8s.cni.cncf.io/rdma-net";

/// Makes eight faults on a node, which has this device plugin. A job that would run on both nodes
/// runs on the other one.
pub(super) async fn are_named(
    fixture: &Fixture,
    machine: &Machine,
    plugin: DevicePlugin,
    other: &Machine,
) -> Result<(), Failed> {
    let memlock = machine.set_memlock("16384")?;
    let pod = replace_checker(fixture, machine.name).await?;
    let controller = fixture.controllers().0.reached_at.ip();
    machine.cut(Cut::Add, pod, controller)?;
    machine.set_link("1: DOWN\n")?;
    drop(plugin);
    cni::remove_multus(machine)?;
    let network = take_away_network(fixture).await?;
    once_failed(fixture, machine.name, &SIX).await?;

    machine.cut(Cut::End, pod, controller)?;
    machine.set_memlock(&memlock)?;
    cni::add_multus(machine)?;
    fixture.operated.kubectl.apply(network.path()).await?;
    machine.remove_rdma_device()?;
    let wrong = ["label", "node", machine.name, "ipunode=pod9", "--overwrite"];
    fixture.kubectl(&wrong).await?;
    once_failed(fixture, machine.name, &TWO).await?;

    let right = ["label", "node", machine.name, LABEL, "--overwrite"];
    fixture.kubectl(&right).await?;
    once_doctor(fixture, other.name, "its checks to pass", |code, _| {
        code == 0
    })
    .await?;
    let job = jobs::job(fixture, "avoids", Spread::OnFitting)?;
    fixture.create(&job).await?;
    jobs::exchange(fixture, &["avoids"], &[other.name]).await
}

/// Waits until `kubectl ipu doctor` names these faults of a node.
pub(super) async fn once_failed(
    fixture: &Fixture,
    node: &str,
    faults: &[Fault],
) -> Result<(), Failed> {
    let what = format!("these to be named: {faults:?}");
    once_doctor(fixture, node, &what, |code, said| {
        let is_named = |[check, words]: &Fault| {
            let mut lines = said.lines().map(str::trim_start);
            lines.any(|line| {
                line.starts_with("failed") && line.contains(check) && line.contains(words)
            })
        };
        code == 1 && faults.iter().all(is_named)
    })
    .await
}

/// Waits until the exit status and the output of `kubectl ipu doctor` are as expected.
async fn once_doctor(
    fixture: &Fixture,
    node: &str,
    what: &str,
    is_expected: impl Fn(i32, &str) -> bool,
) -> Result<(), Failed> {
    until(format!("{node}: {what}"), PATIENCE, async || {
        let mut doctor = Command::new(bin(&fixture.settings.run).join("kubectl-ipu"));
        doctor.args(["doctor", node]);
        doctor.env("KUBECONFIG", &fixture.operated.kubectl.kubeconfig);
        let output = doctor.output()?;
        let code = output.status.code().unwrap_or_default();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        Ok::<_, std::io::Error>(Seen::when((code, said), |(code, said)| {
            is_expected(*code, said)
        }))
    })
    .await?;
    Ok(())
}

/// Deletes the Pod of `ipu-node` on a node. Returns the address of the next one.
async fn replace_checker(fixture: &Fixture, node: &str) -> Result<IpAddr, Failed> {
    let pods: Api<Pod> = Api::namespaced(fixture.operated.client.clone(), NAMESPACE);
    let of_node = ListParams::default()
        .labels("app.kubernetes.io/component=node")
        .fields(&format!("spec.nodeName={node}"));
    let before: Vec<_> = pods
        .list(&of_node)
        .await?
        .iter()
        .map(ResourceExt::uid)
        .collect();
    let selector = "--selector=app.kubernetes.io/component=node";
    let field = format!("--field-selector=spec.nodeName={node}");
    let delete = ["delete", "pods", "--namespace", NAMESPACE, selector, &field];
    fixture.kubectl(&delete).await?;
    let what = format!("a new Pod of ipu-node to run on {node}");
    let address = until(what, PATIENCE, async || {
        let found = pods.list(&of_node).await?;
        let mut new = found.iter().filter(|pod| !before.contains(&pod.uid()));
        let address = new.find_map(|pod| pod.status.as_ref()?.pod_ip.clone());
        Ok::<_, kube::Error>(Seen::from(address))
    });
    Ok(address.await?.parse()?)
}

/// Deletes the network of the preset. Returns a file with it.
async fn take_away_network(fixture: &Fixture) -> Result<tempfile::NamedTempFile, Failed> {
    let namespace = ["--namespace", NAMESPACE];
    let get = ["get", NETWORK, "--output=json"];
    let object = fixture.kubectl(&[&namespace[..], &get].concat()).await?;
    let mut object: serde_json::Value = serde_json::from_str(&object)?;
    for field in ["uid", "resourceVersion"] {
        object["metadata"][field].take();
    }
    let file = tempfile::NamedTempFile::with_suffix(".json")?;
    std::fs::write(file.path(), object.to_string())?;
    let delete = ["delete", NETWORK];
    fixture.kubectl(&[&namespace[..], &delete].concat()).await?;
    Ok(file)
}
