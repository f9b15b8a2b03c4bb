//! Pure: what was read of a node.

use std::collections::{BTreeMap, BTreeSet};

use ipu_api::ipupartition::ControllerRef;
use k8s_openapi::api::core::v1::Node;

/// A fact, or why it could not be read.
pub type Fact<T> = Result<T, String>;

/// Everything that checks look at.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The Node.
    pub node: Fact<NodeFacts>,
    /// The admin's list of V-IPU controllers.
    pub controllers: Fact<Vec<ControllerRef>>,
    /// The result of a TCP connection to each controller of the node's label, by its name.
    pub connections: BTreeMap<String, Connection>,
    /// Whether each required NetworkAttachmentDefinition exists, by `namespace/name`.
    pub networks: BTreeMap<String, Fact<bool>>,
    /// What the files of the node contain.
    pub files: FileFacts,
}

/// The fields of a Node that checks look at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeFacts {
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its allocatable resources.
    pub allocatable: BTreeMap<String, String>,
}

/// What the files of a node contain, or its containers get.
#[derive(Clone, Debug)]
pub struct FileFacts {
    /// The RDMA devices.
    pub rdma: Fact<Vec<RdmaDevice>>,
    /// The limit of locked memory of a container.
    pub memlock: Fact<Amount>,
    /// The number of huge pages of the default size.
    pub huge_pages: Fact<u64>,
    /// The size of `/dev/shm` of a container, in bytes.
    pub shared_memory: Fact<u64>,
    /// The loaded and built-in kernel modules.
    pub modules: Fact<BTreeSet<String>>,
    /// The names of the files with the configuration of the container network.
    pub cni: Fact<Vec<String>>,
}

/// An RDMA device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RdmaDevice {
    /// Its name, such as `mlx5_0`.
    pub name: String,
    /// Its NUMA node, if the machine has several.
    pub numa_node: Option<u32>,
    /// Its network interfaces.
    pub interfaces: Vec<String>,
    /// Its ports: the number and the state of each, such as `ACTIVE`.
    pub ports: Vec<(String, String)>,
}

/// A number of bytes, or no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Amount {
    /// This number of bytes.
    Bytes(u64),
    /// No limit.
    Unlimited,
}

/// The result of a TCP connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Connection {
    /// It was established.
    Established,
    /// There is no route to the host.
    NoRoute,
    /// The host refused it.
    Refused,
    /// Nothing answered within this number of seconds.
    NoAnswer(u64),
    /// The name of the host has no address.
    NoAddress,
    /// Another error of the operating system.
    Error(String),
}

impl NodeFacts {
    /// Those of a Node.
    pub fn of(node: &Node) -> Self {
        let status = node.status.as_ref();
        let allocatable = status.and_then(|status| status.allocatable.as_ref());
        let allocatable = allocatable.into_iter().flatten();
        Self {
            labels: node.metadata.labels.clone().unwrap_or_default(),
            allocatable: allocatable
                .map(|(name, quantity)| (name.clone(), quantity.0.clone()))
                .collect(),
        }
    }
}

/// The controllers whose label a node has.
pub fn controllers_of<'a>(
    all: &'a [ControllerRef],
    labels: &BTreeMap<String, String>,
) -> Vec<&'a ControllerRef> {
    let is_labelled = |controller: &&ControllerRef| {
        labels.get(&controller.label_key) == Some(&controller.label_value)
    };
    all.iter().filter(is_labelled).collect()
}
