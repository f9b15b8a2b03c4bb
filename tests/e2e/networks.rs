//! The network preset on two bare nodes: Multus, whereabouts and MACVLAN make the second interface
//! of workers, a device plugin advertises RDMA devices, and `ipu-node` keeps jobs away from a node
//! until it can use IPUs.
//!
//! The kernel of the tests has no RDMA, and no soft-RoCE either. So the RDMA devices are files of
//! the node that `ipu-node` reads instead of those in `/sys`, and MPI exchanges its messages over
//! the interface by TCP. All else is real.

mod cni;
mod device_plugin;
mod faults;
mod jobs;
mod machine;

use std::fs;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::path::PathBuf;

use cluster::plan::NODES;
use cluster::wait::{Seen, until};
use futures::FutureExt;
use harness::demo::KubectlError;
use ipu_api::labels::{IPU_READY_CONDITION, IPU_READY_LABEL, NODE_CHECKS_ANNOTATION};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams};
use libtest_mimic::Failed;
use serde_json::json;
use tests::documents::Typed;

use self::cni::Plugins;
use self::device_plugin::DevicePlugin;
use self::jobs::Spread;
use self::machine::Machine;
use crate::fixture::{Fixture, PATIENCE};
use crate::host_network::changed;

/// The page whose values the release gets.
const PAGE: Typed = Typed {
    document: "charts/ipu-operator/docs/networks-preset",
    marks: &["yaml"],
};

/// The resource of the values.
const RESOURCE: &str = "rdma/rdma_shared_device_a";

/// The values beside those of the page: all checks of nodes, often. `ipu-node` finds its RDMA
/// devices in a folder of the node that its Pod mounts anyway.
const CHECKS: [&str; 7] = [
    "ipuNode.enabled=true",
    "ipuNode.intervalSeconds=5",
    "ipuNode.memlock=64Ki",
    "ipuNode.rdma.resource=rdma/rdma_shared_device_a",
    "ipuNode.networkAttachmentDefinitions={ipu-operator/rdma-net}",
    "ipuNode.extraEnv[0].name=IPU_OPERATOR_SYS_DIR",
    "ipuNode.extraEnv[0].value=/host/cni/sys",
];

/// The label of the V-IPU controller that both nodes have during the trial.
const LABEL: &str = "ipunode=pod1";

/// Two jobs wait until nodes pass their checks, and then exchange messages over the network.
/// `kubectl ipu doctor` names each fault of a node, and a job avoids the node.
pub(crate) fn preset_connects_workers(fixture: &Fixture) -> Result<(), Failed> {
    fixture.block_on(async {
        let machines = NODES.map(|node| Machine::of(fixture, node));
        let [first, second] = machines;
        let machines = [first?, second?];
        let plugins = Plugins::built(fixture)?;
        let ran = AssertUnwindSafe(run(fixture, &machines, &plugins)).catch_unwind();
        let ran = ran.await;
        // The following trials expect nodes with one network, and the first values.
        restore(fixture, &machines, &plugins).await?;
        ran.unwrap_or_else(|panic| resume_unwind(panic))
    })
}

async fn run(fixture: &Fixture, machines: &[Machine; 2], plugins: &Plugins) -> Result<(), Failed> {
    let [first, second] = machines;
    Machine::lay_cable(first, second)?;
    let label = ["label", "node", second.name, LABEL, "--overwrite"];
    fixture.kubectl(&label).await?;
    plugins.install(fixture, machines).await?;
    let _of_first = DevicePlugin::start(&first.device_plugins()).await?;
    let of_second = DevicePlugin::start(&second.device_plugins()).await?;
    let values = page_values(fixture)?;
    changed(fixture, || {
        fixture.release.upgrade_with(&[&values], &CHECKS)
    })
    .await?;
    for machine in machines {
        faults::once_failed(fixture, machine.name, &[faults::NO_DEVICE]).await?;
    }
    let names = ["one", "two"];
    for name in names {
        fixture
            .create(&jobs::job(fixture, name, Spread::OnBoth)?)
            .await?;
    }
    once_no_node_serves(fixture, names[0]).await?;
    for machine in machines {
        machine.add_rdma_device()?;
    }
    jobs::exchange(fixture, &names, &[first.name, second.name]).await?;
    faults::are_named(fixture, second, of_second, first).await
}

/// Waits until a job says that it gets no node. Placement learns of failed checks by its own watch:
/// until then it assigns IPUs, and kube-scheduler keeps the Pods waiting.
async fn once_no_node_serves(fixture: &Fixture, job: &str) -> Result<(), Failed> {
    let waits = [
        "of 2 with the required labels: 2 failed the check of ipu-node",
        "2 node(s) didn't match Pod's node affinity/selector",
    ];
    let what = format!("the job {job} to find no node");
    until(what, PATIENCE, async || {
        let said = fixture.kubectl(&["describe", "ipujob", job]).await?;
        let is_waiting = |said: &String| waits.iter().any(|text| said.contains(text));
        Ok::<_, KubectlError>(Seen::when(said, is_waiting))
    })
    .await?;
    Ok(())
}

/// The values of the page, in a file.
fn page_values(fixture: &Fixture) -> Result<PathBuf, Failed> {
    let page = fixture.operated.repository.join(PAGE.document);
    let page = fs::read_to_string(page.with_extension("md"))?;
    let blocks = PAGE.blocks(&page);
    let values = blocks.first().ok_or("the page has no values")?;
    let file = fixture.settings.run.join("network-values.yaml");
    fs::write(&file, values.commands)?;
    Ok(file)
}

async fn restore(
    fixture: &Fixture,
    machines: &[Machine; 2],
    plugins: &Plugins,
) -> Result<(), Failed> {
    let delete = ["delete", "ipujobs", "--all", "--timeout=120s"];
    fixture.kubectl(&delete).await?;
    // New Pods do without Multus before its program goes, also those of the operator.
    for machine in machines {
        cni::remove_multus(machine)?;
    }
    changed(fixture, || fixture.release.install()).await?;
    let nodes: Api<Node> = Api::all(fixture.operated.client.clone());
    for (machine, node) in machines.iter().zip(NODES) {
        let label = ["label", "node", node.name, node.labels, "--overwrite"];
        fixture.kubectl(&label).await?;
        let metadata = json!({"metadata": {
            "labels": {IPU_READY_LABEL: null},
            "annotations": {NODE_CHECKS_ANNOTATION: null},
        }});
        let params = PatchParams::default();
        nodes
            .patch(node.name, &params, &Patch::Merge(metadata))
            .await?;
        let condition = json!({"type": IPU_READY_CONDITION, "$patch": "delete"});
        let status = Patch::Strategic(json!({"status": {"conditions": [condition]}}));
        nodes.patch_status(node.name, &params, &status).await?;
        machine.restore()?;
    }
    plugins.remove(fixture).await?;
    fixture.clear().await
}
