//! Faults of a node, each made where a real one is: in its files, its network, its Node or the
//! cluster. `kubectl ipu doctor` names each of them, and jobs avoid the node until it is repaired.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use ipu_node::facts::Amount;
use ipu_node::options::NodeOptions;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use tests::debug_operator;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::{LABEL, PORT, Release, label, options, write};

/// Resource of RDMA devices that the node must advertise.
const RESOURCE: &str = "rdma/rdma_shared_device_a";

/// Address to which the kernel has no route for TCP, whatever the routes of the machine are: a
/// group's.
const WITHOUT_ROUTE: &str = "224.0.0.1";

/// Where a fault is.
enum Place {
    /// A file of the node, and its content with the fault. `None`: it is gone.
    File(&'static str, Option<&'static str>),
    /// The host of the V-IPU controller.
    Controller(&'static str),
    /// The label of the node.
    Label(&'static str),
    /// The resource that the node advertises.
    Resource,
    /// The NetworkAttachmentDefinition.
    Network,
}

/// A fault, the reason of the condition, and the words of `kubectl ipu doctor`.
type Fault = (Place, &'static str, [&'static str; 2]);

fn faults() -> [Fault; 8] {
    [
        (
            Place::Controller(WITHOUT_ROUTE),
            "ControllerUnreachable",
            ["controller-connection", "there is no route to"],
        ),
        (
            Place::File("sys/class/infiniband/mlx5_0", None),
            "RDMADeviceMissing",
            ["rdma-device", "RDMA device"],
        ),
        (
            Place::File(PORT, Some("1: DOWN\n")),
            "RDMALinkDown",
            ["rdma-link", "mlx5_0 port 1 is DOWN"],
        ),
        (
            Place::File(
                "proc/self/limits",
                Some("Max locked memory 65536 65536 bytes\n"),
            ),
            "MemlockTooLow",
            ["memlock", "locked memory"],
        ),
        (
            Place::File("cni/00-multus.conf", None),
            "MultusMissing",
            ["multus", "Multus"],
        ),
        (
            Place::Network,
            "NetworkMissing",
            ["network", "default/rdma-net"],
        ),
        (
            Place::Resource,
            "RDMAResourceMissing",
            ["rdma-resource", RESOURCE],
        ),
        (
            Place::Label("pod9"),
            "NoControllerLabel",
            ["controller-label", "ipunode=pod1"],
        ),
    ]
}

/// The node in its folder, and the port of its V-IPU controller.
struct Machine<'a> {
    release: &'a Release,
    folder: &'a Path,
    port: u16,
}

impl Machine<'_> {
    /// Makes everything as it should be.
    async fn repair(&self) {
        options(self.folder, self.port);
        let limits = "Max locked memory unlimited unlimited bytes\n";
        write(&self.folder.join("proc/self/limits"), limits);
        self.set_label("pod1").await;
        self.advertise(json!("1000")).await;
    }

    async fn make(&self, place: &Place) {
        match place {
            Place::File(path, Some(content)) => write(&self.folder.join(path), content),
            Place::File(path, None) => {
                let path = self.folder.join(path);
                let removed = if path.is_dir() {
                    fs::remove_dir_all(path)
                } else {
                    fs::remove_file(path)
                };
                removed.unwrap();
            }
            Place::Controller(host) => {
                let list = format!("{host}:{}:{LABEL}=pod1\n", self.port);
                write(&self.folder.join("controllers.yaml"), &list);
            }
            Place::Label(value) => self.set_label(value).await,
            Place::Resource => self.advertise(Value::Null).await,
            Place::Network => {
                let network = "network-attachment-definitions.k8s.cni.cncf.io/rdma-net";
                let delete = ["delete", network, "--namespace=default"];
                self.release.admin.kubectl(&delete).unwrap();
            }
        }
    }

    async fn set_label(&self, value: &str) {
        let patch = json!({"metadata": {"labels": {LABEL: value}}});
        let (params, patch) = (PatchParams::default(), Patch::Merge(&patch));
        let nodes = self.release.nodes();
        nodes.patch("node-a", &params, &patch).await.unwrap();
    }

    async fn advertise(&self, number: Value) {
        let resources = json!({RESOURCE: number});
        let patch = json!({"status": {"capacity": resources, "allocatable": resources}});
        let (params, patch) = (PatchParams::default(), Patch::Merge(&patch));
        let nodes = self.release.nodes();
        nodes.patch_status("node-a", &params, &patch).await.unwrap();
    }

    /// The exit status and the output of `kubectl ipu doctor`.
    fn doctor(&self) -> (Option<i32>, String) {
        let mut doctor = Command::new(debug_operator::plugin().unwrap());
        doctor.args(["doctor", "node-a"]);
        doctor.env("KUBECONFIG", &self.release.admin.kubeconfig);
        let output = doctor.output().unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stdout).unwrap(),
        )
    }
}

fn required(folder: &Path, port: u16) -> NodeOptions {
    let mut options = options(folder, port);
    options.proc_dir = folder.join("proc");
    options.requirements.memlock = Some(Amount::Unlimited);
    RESOURCE.clone_into(&mut options.requirements.rdma_resource);
    options
}

#[tokio::test]
async fn each_of_eight_faults_is_named_and_keeps_jobs_away() {
    let release = Release::new("node-faults").await;
    let folder = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let controller = tokio::spawn(async move { while listener.accept().await.is_ok() {} });
    let machine = Machine {
        release: &release,
        folder: folder.path(),
        port,
    };
    machine.repair().await;
    release.create_network().await;
    let client = release.with_token(Some("node-a")).await;
    let (options, stop) = (required(folder.path(), port), CancellationToken::new());
    let stopped = stop.clone();
    let running = tokio::spawn(async move {
        ipu_node::run(client, &options, Duration::from_millis(20), &stopped).await;
    });
    for (place, reason, [check, words]) in faults() {
        release.condition("ChecksPassed").await;
        machine.make(&place).await;
        let node = release.condition(reason).await;
        assert_eq!(label(&node), Some("false"), "{reason}");
        let (status, text) = machine.doctor();
        assert_eq!(status, Some(1), "{reason}: {text}");
        let is_named = |line: &str| {
            let line = line.trim_start();
            line.starts_with("failed") && line.contains(check) && line.contains(words)
        };
        assert!(text.lines().any(is_named), "{reason}: {text}");
        machine.repair().await;
        if matches!(place, Place::Network) {
            release.create_only_network().unwrap();
        }
    }
    let node = release.condition("ChecksPassed").await;
    assert_eq!(label(&node), Some("true"));
    assert_eq!(machine.doctor().0, Some(0));
    stop.cancel();
    running.await.unwrap();
    controller.abort();
}
