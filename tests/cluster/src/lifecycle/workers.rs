//! Starts the nodes in their own namespaces, and waits for their stages.

use std::path::Path;

use k8s_openapi::api::core::v1::Node as NodeObject;
use kube::{Api, Client};

use super::{ClusterError, is_ready, wait_until};
use crate::{
    files::{At, FileError, make_dir, read, remove, write, write_json},
    network::{self, Ip, NetworkError},
    node::{NodeSpec, Stage},
    plan::{MOUNT_POINTS, NODES, Node, kubeconfig, pki},
    process::{Daemon, Daemons, Process},
    settings::Settings,
    tools::Tools,
};

/// Starts a node and makes its veth pair. The node continues by itself until it is ready.
pub(super) async fn start(
    node: Node,
    settings: &Settings,
    tools: &Tools,
    ip: &Ip,
) -> Result<(), ClusterError> {
    make_mount_points(&settings.run)?;
    let spec = spec(node, settings, tools);
    make_dir(&spec.dir)?;
    let path = spec.dir.join("spec.json");
    write_json(&path, &spec)?;
    let program = spec.dir.join("harness");
    copy_of_this_program(&program)?;
    let namespaces = [
        "--net",
        "--mount",
        "--uts",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
        "--propagation=private",
    ];
    let program = [program.display().to_string(), "node".to_owned()];
    let mut args = namespaces.map(str::to_owned).to_vec();
    args.extend(program);
    args.push(path.display().to_string());
    let daemons = Daemons::of(&settings.run);
    let unshare = daemons.start(&Daemon::new(node.name, Path::new("unshare"), args))?;
    let init = first_process(&daemons, node, unshare).await?;
    Ok(network::connect(ip, node, init).map_err(NetworkError::from)?)
}

/// The node's first process is this program, in the version that runs now: cargo may have replaced
/// its file.
fn copy_of_this_program(to: &Path) -> Result<(), FileError> {
    remove(to)?;
    let this = Path::new("/proc/self/exe");
    std::fs::copy(this, to).at("copy to", to).map(drop)
}

/// Waits until containerd runs on every node.
pub(super) async fn wait_for_containerd(settings: &Settings) -> Result<(), ClusterError> {
    let daemons = Daemons::of(&settings.run);
    for node in NODES {
        let what = format!("{}: containerd did not start", node.name);
        let dir = node.dir(&settings.run);
        wait_until(&what, &daemons, node.name, async || {
            NodeSpec::stage(&dir).is_some()
        })
        .await?;
    }
    Ok(())
}

/// Waits until every node is ready to run Pods.
pub(super) async fn ready(settings: &Settings, client: &Client) -> Result<(), ClusterError> {
    let daemons = Daemons::of(&settings.run);
    let nodes: Api<NodeObject> = Api::all(client.clone());
    for node in NODES {
        let what = format!("{} was not Ready", node.name);
        let dir = node.dir(&settings.run);
        wait_until(&what, &daemons, node.name, async || {
            NodeSpec::stage(&dir) == Some(Stage::Ready)
                && nodes.get(node.name).await.is_ok_and(|node| is_ready(&node))
        })
        .await?;
    }
    Ok(())
}

/// The record of the folders that were made on the machine as mount points of nodes. `down` reads
/// it.
pub(super) fn made_mount_points(run: &Path) -> Vec<String> {
    let text = read(&run.join("made")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// Makes the folders that nodes use as mount points. Each is recorded before it is made.
fn make_mount_points(run: &Path) -> Result<(), FileError> {
    let mut made = made_mount_points(run);
    for (path, _) in MOUNT_POINTS {
        if !Path::new(path).exists() {
            made.push(path.to_owned());
            write(&run.join("made"), made.join("\n"))?;
            make_dir(Path::new(path))?;
        }
    }
    Ok(())
}

fn spec(node: Node, settings: &Settings, tools: &Tools) -> NodeSpec {
    let run = &settings.run;
    let others = NODES.into_iter().filter(|other| *other != node);
    NodeSpec {
        name: node.name.to_owned(),
        ip: node.ip(),
        pod_range: node.pod_range(),
        routes: others.map(Node::route).collect(),
        labels: node.labels.to_owned(),
        dir: node.dir(run),
        logs: settings.logs(),
        pki: pki(run),
        kubelet_kubeconfig: kubeconfig(run, node.name),
        proxy_kubeconfig: kubeconfig(run, "kube-proxy"),
        containerd: tools.program("containerd").to_owned(),
        kubelet: tools.kubelet().to_owned(),
        kube_proxy: tools.program("kube-proxy").to_owned(),
        cni: tools
            .program("bridge")
            .parent()
            .unwrap_or(Path::new("/"))
            .to_owned(),
        debian: tools.debian().path(""),
    }
}

/// The first process in the node's namespaces, once `unshare` has made them.
async fn first_process(
    daemons: &Daemons,
    node: Node,
    unshare: Process,
) -> Result<Process, ClusterError> {
    let what = format!("{}: the namespaces were not made", node.name);
    let mut found = None;
    wait_until(&what, daemons, node.name, async || {
        found = unshare.first_child();
        found.is_some()
    })
    .await?;
    Ok(found.expect("the wait ended because it was found"))
}
