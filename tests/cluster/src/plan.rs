//! Pure: names, addresses and folders of the cluster. They are fixed, so that the remains of a
//! killed run are found by their names.

use std::path::{Path, PathBuf};

/// Bridge on the machine that joins the nodes.
pub const BRIDGE: &str = "ipu-cluster0";
/// The machine's address on the bridge: Pods reach servers of the machine here.
pub const HOST_IP: &str = "10.99.0.1";
/// Range of the bridge.
pub const NODE_RANGE: &str = "10.99.0.0/24";
/// Range of Service addresses.
pub const SERVICE_RANGE: &str = "10.96.0.0/16";
/// Range of all Pod addresses.
pub const POD_RANGE: &str = "10.88.0.0/16";
/// Address of the Service `kubernetes`.
pub const API_SERVICE_IP: &str = "10.96.0.1";
/// Address of the cluster's name server.
pub const DNS_IP: &str = "10.96.0.10";
/// Port of the API server on [`HOST_IP`].
pub const API_PORT: u16 = 6443;
/// Name of the folder in each cgroup hierarchy that holds all containers.
pub const CGROUP: &str = "ipu-operator-harness";

/// Folder of a node's files with the configuration of its container network, which the node has at
/// `/etc/cni/net.d`.
pub const CNI_CONFIG: &str = "etc-cni/net.d";
/// Folder of a node's files with CNI plug-ins beside those of every node. It is empty until
/// somebody installs one.
pub const CNI_PLUGINS: &str = "cni-plugins";

/// Folders of the machine on which nodes mount their own. A missing one is made and recorded, and
/// `down` removes it.
pub const MOUNT_POINTS: [(&str, &str); 5] = [
    ("/etc/cni", "etc-cni"),
    ("/var/lib/kubelet", "kubelet"),
    ("/var/lib/cni", "cni-results"),
    ("/var/log/pods", "pod-logs"),
    ("/var/log/containers", "container-logs"),
];

/// A node of the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Node {
    /// Number, from 1.
    pub number: u8,
    /// Name of the Node object.
    pub name: &'static str,
    /// Labels of the Node object, as the kubelet takes them.
    pub labels: &'static str,
}

/// The nodes. Each has the label of its V-IPU controller.
pub const NODES: [Node; 2] = [
    Node {
        number: 1,
        name: "node1",
        labels: "ipunode=pod1",
    },
    Node {
        number: 2,
        name: "node2",
        labels: "ipunode=pod2",
    },
];

impl Node {
    /// Address on the bridge.
    pub fn ip(self) -> String {
        format!("10.99.0.{}", self.number + 1)
    }

    /// Range of the addresses of its Pods.
    pub fn pod_range(self) -> String {
        format!("10.88.{}.0/24", self.number)
    }

    /// The machine's end of the veth pair of the node.
    pub fn cable(self) -> String {
        format!("ipu-{}", self.name)
    }

    /// The folder of the node's files.
    pub fn dir(self, run: &Path) -> PathBuf {
        run.join(self.name)
    }

    /// The socket of its containerd.
    pub fn containerd(self, run: &Path) -> PathBuf {
        self.dir(run).join("containerd.sock")
    }

    /// The route to the node's Pods: range and gateway.
    pub fn route(self) -> (String, String) {
        (self.pod_range(), self.ip())
    }
}

/// Folder of the cluster's certificates.
pub fn pki(run: &Path) -> PathBuf {
    run.join("pki")
}

/// Folder of the programs for a user of the cluster.
pub fn bin(run: &Path) -> PathBuf {
    run.join("bin")
}

/// The kubeconfig of this user of the cluster.
pub fn kubeconfig(run: &Path, user: &str) -> PathBuf {
    run.join(format!("{user}.kubeconfig"))
}

/// URL of the API server.
pub fn server() -> String {
    format!("https://{HOST_IP}:{API_PORT}")
}
