//! Pure: what decides whether a node mounts images, of the nodes on which Pods of jobs may run.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};

use ipu_text::sanitize;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;

/// Most bytes of a version, which a kubelet may choose freely.
const VERSION_MAX: usize = 64;

/// Labels of nodes without a kubelet of their own, which take only the Pods that are made for them.
const VIRTUAL: [(&str, &str); 2] = [
    ("eks.amazonaws.com/compute-type", "fargate"),
    ("type", "virtual-kubelet"),
];

/// The versions that decide whether a node mounts images.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct NodeVersion {
    kubelet: String,
    runtime: String,
    architecture: String,
}

impl Display for NodeVersion {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let Self {
            kubelet,
            runtime,
            architecture,
        } = self;
        write!(formatter, "kubelet {kubelet}, {runtime}, {architecture}")
    }
}

/// A node on which Pods of jobs may run, now or later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KnownNode {
    /// Its versions.
    pub(super) version: NodeVersion,
    /// Whether a probe can run there now.
    pub(super) is_ready: bool,
}

/// The nodes by name.
pub(super) type Nodes = BTreeMap<String, KnownNode>;

impl KnownNode {
    /// `None`: no Pod of a job runs there.
    pub(super) fn of(node: &Node) -> Option<Self> {
        let status = node.status.as_ref()?;
        let info = status.node_info.as_ref()?;
        let labels = node.labels();
        let is = |(key, value): &(&str, &str)| labels.get(*key).is_some_and(|own| own == value);
        if info.operating_system != "linux" || VIRTUAL.iter().any(is) {
            return None;
        }
        let mut conditions = status.conditions.iter().flatten();
        let clean = |text: &str| sanitize(text, VERSION_MAX);
        Some(Self {
            version: NodeVersion {
                kubelet: clean(&info.kubelet_version),
                runtime: clean(&info.container_runtime_version),
                architecture: clean(&info.architecture),
            },
            is_ready: conditions
                .any(|condition| condition.type_ == "Ready" && condition.status == "True"),
        })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// A ready node with Linux, whose kubelet has this version.
    pub(in super::super) fn node(kubelet: &str, change: impl FnOnce(&mut Value)) -> Node {
        let mut node = json!({
            "metadata": {"name": "any", "labels": {"type": "large"}},
            "status": {
                "conditions": [{"type": "Ready", "status": "True"}],
                "nodeInfo": {
                    "architecture": "amd64", "bootID": "", "kernelVersion": "",
                    "containerRuntimeVersion": "containerd://2.4.2", "kubeProxyVersion": "",
                    "kubeletVersion": kubelet, "machineID": "", "operatingSystem": "linux",
                    "osImage": "", "systemUUID": "",
                },
            },
        });
        change(&mut node);
        serde_json::from_value(node).unwrap()
    }

    #[test]
    fn nodes_on_which_no_job_runs_do_not_count() {
        let known = |change: fn(&mut Value)| KnownNode::of(&node("v1.37.2", change));
        assert!(known(|_| {}).unwrap().is_ready);
        let lost = known(|node| node["status"]["conditions"][0]["status"] = json!("Unknown"));
        assert!(!lost.unwrap().is_ready);
        let foreign: [fn(&mut Value); 4] = [
            |node| node["status"]["nodeInfo"]["operatingSystem"] = json!("windows"),
            |node| node["metadata"]["labels"] = json!({"type": "virtual-kubelet"}),
            |node| {
                node["metadata"]["labels"] = json!({"eks.amazonaws.com/compute-type": "fargate"});
            },
            |node| node["status"] = json!({}),
        ];
        assert!(foreign.into_iter().all(|change| known(change).is_none()));
    }

    #[test]
    fn a_kubelet_cannot_write_lines_into_the_log() {
        let hostile = format!("v1\nline {}", "x".repeat(1 << 16));
        let shown = KnownNode::of(&node(&hostile, |_| {}))
            .unwrap()
            .version
            .to_string();
        assert!(shown.len() < 200 && !shown.contains('\n'), "{shown}");
    }
}
