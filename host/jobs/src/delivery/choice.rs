//! Pure: which nodes a probe must show to mount the agent's image, and what follows for new Pods.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};

use ipu_runtime::clock;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;

use crate::build::AgentDelivery;

/// Time after which a version whose probe has failed is probed again, for each probe so far: the
/// cause may have been one node, or a registry.
const RETRY: SignedDuration = SignedDuration::from_mins(1);

/// The most times [`RETRY`] between two probes.
const RETRIES_MAX: i32 = 30;

/// What decides whether a node mounts images.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct NodeVersion {
    kubelet: String,
    runtime: String,
    architecture: String,
}

impl NodeVersion {
    /// Returns the version of a node on which Pods of jobs can run: a ready one with Linux.
    pub(super) fn of(node: &Node) -> Option<Self> {
        let status = node.status.as_ref()?;
        let info = status.node_info.as_ref()?;
        let mut conditions = status.conditions.iter().flatten();
        let is_ready = conditions.any(|one| one.type_ == "Ready" && one.status == "True");
        (is_ready && info.operating_system == "linux").then(|| Self {
            kubelet: info.kubelet_version.clone(),
            runtime: info.container_runtime_version.clone(),
            architecture: info.architecture.clone(),
        })
    }
}

impl Display for NodeVersion {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let Self {
            kubelet,
            runtime,
            architecture,
        } = self;
        write!(
            formatter,
            "kubelet {kubelet} with {runtime} on {architecture}"
        )
    }
}

/// The versions of nodes, by name of the node.
pub(super) type Nodes = BTreeMap<String, NodeVersion>;

/// The last probe of a version.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Finding {
    /// The reason of its failure.
    failure: Option<String>,
    at: Timestamp,
    /// Number of probes so far.
    probes: usize,
}

impl Finding {
    /// When a probe that failed is made again.
    fn again(&self) -> Timestamp {
        let times = i32::try_from(self.probes).unwrap_or(RETRIES_MAX);
        clock::later(self.at, RETRY * times.min(RETRIES_MAX))
    }
}

/// What the probes of this process have shown.
#[derive(Debug, Default)]
pub(super) struct Findings(BTreeMap<NodeVersion, Finding>);

impl Findings {
    /// Records the end of a probe, and forgets versions that no node has any more.
    pub(super) fn record(
        &mut self,
        version: NodeVersion,
        result: Result<(), String>,
        nodes: &Nodes,
        now: Timestamp,
    ) {
        let probes = self.0.get(&version).map_or(0, |finding| finding.probes);
        let finding = Finding {
            failure: result.err(),
            at: now,
            probes: probes + 1,
        };
        self.0.insert(version, finding);
        self.0
            .retain(|known, _| nodes.values().any(|version| version == known));
    }

    /// Returns the node on which to probe next. Of a version with several nodes, each probe takes
    /// another one.
    pub(super) fn due(&self, nodes: &Nodes, now: Timestamp) -> Option<(String, NodeVersion)> {
        let due = nodes.values().find(|version| match self.0.get(version) {
            Some(finding) => finding.failure.is_some() && now >= finding.again(),
            None => true,
        })?;
        let probes = self.0.get(due).map_or(0, |finding| finding.probes);
        let names = nodes.iter().filter(|(_, version)| *version == due);
        let names: Vec<_> = names.map(|(name, _)| name).collect();
        let name = names.get(probes % names.len().max(1))?;
        Some(((*name).clone(), due.clone()))
    }

    /// Returns how the agent gets into new Pods, and why. Only what works on every node is right: a
    /// Pod may run on any of them.
    pub(super) fn choose(&self, nodes: &Nodes) -> (AgentDelivery, String) {
        let unproven = nodes.iter().find_map(|(name, version)| {
            let finding = self.0.get(version);
            let reason = match finding.map(|finding| &finding.failure) {
                Some(None) => return None,
                Some(Some(failure)) => failure,
                None => "it was not probed yet",
            };
            Some(format!("node {name} ({version}): {reason}"))
        });
        match unproven {
            Some(reason) => (AgentDelivery::Init, reason),
            None if nodes.is_empty() => (AgentDelivery::Init, "no node is ready".to_owned()),
            None => {
                let reason = "each version of the nodes has executed the agent of a mounted image";
                (AgentDelivery::Image, reason.to_owned())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(kubelet: &str, system: &str, ready: &str) -> Node {
        let node = json!({"metadata": {"name": "any"}, "status": {
            "conditions": [{"type": "Ready", "status": ready}],
            "nodeInfo": {
                "architecture": "amd64", "bootID": "", "containerRuntimeVersion": "containerd://2.4.2",
                "kernelVersion": "", "kubeProxyVersion": "", "kubeletVersion": kubelet,
                "machineID": "", "operatingSystem": system, "osImage": "", "systemUUID": "",
            },
        }});
        serde_json::from_value(node).unwrap()
    }

    fn nodes(versions: &[(&str, &str)]) -> Nodes {
        let version = |kubelet| NodeVersion::of(&node(kubelet, "linux", "True")).unwrap();
        let named = versions.iter();
        named
            .map(|(name, kubelet)| ((*name).to_owned(), version(kubelet)))
            .collect()
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    /// Probes until nothing is due at a time; the versions of `old` fail.
    fn probed(findings: &mut Findings, nodes: &Nodes, old: &str, now: Timestamp) -> Vec<String> {
        let mut on = Vec::new();
        while let Some((name, version)) = findings.due(nodes, now) {
            let failed = (version.kubelet == old).then(|| "it did not start".to_owned());
            findings.record(version, failed.map_or(Ok(()), Err), nodes, now);
            on.push(name);
        }
        on
    }

    #[test]
    fn only_ready_nodes_with_linux_count() {
        assert!(NodeVersion::of(&node("v1.37.2", "linux", "True")).is_some());
        assert_eq!(NodeVersion::of(&node("v1.37.2", "linux", "Unknown")), None);
        assert_eq!(NodeVersion::of(&node("v1.37.2", "windows", "True")), None);
        assert_eq!(NodeVersion::of(&Node::default()), None);
    }

    #[test]
    fn the_image_is_taken_once_each_version_is_shown_on_one_node() {
        let nodes = nodes(&[("a", "v1.37.2"), ("b", "v1.37.2"), ("c", "v1.36.0")]);
        let mut findings = Findings::default();
        let (delivery, reason) = findings.choose(&nodes);
        assert_eq!(delivery, AgentDelivery::Init);
        let version = "kubelet v1.37.2 with containerd://2.4.2 on amd64";
        assert_eq!(reason, format!("node a ({version}): it was not probed yet"));
        assert_eq!(probed(&mut findings, &nodes, "", at(0)), ["a", "c"]);
        assert_eq!(findings.choose(&nodes).0, AgentDelivery::Image);
        assert_eq!(findings.due(&nodes, at(1 << 30)), None);
    }

    #[test]
    fn one_old_node_is_enough_for_init_containers_until_it_has_left() {
        let mut findings = Findings::default();
        let new = nodes(&[("a", "v1.37.2")]);
        probed(&mut findings, &new, "v1.34.0", at(0));
        assert_eq!(findings.choose(&new).0, AgentDelivery::Image);
        let both = nodes(&[("a", "v1.37.2"), ("b", "v1.34.0")]);
        assert_eq!(findings.choose(&both).0, AgentDelivery::Init);
        assert_eq!(probed(&mut findings, &both, "v1.34.0", at(1)), ["b"]);
        let (delivery, reason) = findings.choose(&both);
        assert_eq!(delivery, AgentDelivery::Init);
        let version = "kubelet v1.34.0 with containerd://2.4.2 on amd64";
        assert_eq!(reason, format!("node b ({version}): it did not start"));
        assert_eq!(findings.choose(&new).0, AgentDelivery::Image);
    }

    #[test]
    fn a_failed_version_is_probed_again_later_on_another_node() {
        let nodes = nodes(&[("a", "v1.34.0"), ("b", "v1.34.0")]);
        let mut findings = Findings::default();
        let mut probe = |second| probed(&mut findings, &nodes, "v1.34.0", at(second));
        assert_eq!(probe(0), ["a"]);
        assert_eq!(probe(59), [""; 0]);
        assert_eq!(probe(60), ["b"]);
        assert_eq!(probe(179), [""; 0]);
        assert_eq!(probe(180), ["a"]);
    }

    #[test]
    fn without_ready_nodes_nothing_is_known() {
        let (delivery, reason) = Findings::default().choose(&Nodes::new());
        assert_eq!(
            (delivery, &*reason),
            (AgentDelivery::Init, "no node is ready")
        );
    }

    #[test]
    fn versions_without_nodes_are_forgotten() {
        let mut findings = Findings::default();
        let old = nodes(&[("a", "v1.36.0")]);
        probed(&mut findings, &old, "", at(0));
        let new = nodes(&[("a", "v1.37.2")]);
        probed(&mut findings, &new, "", at(1));
        assert_eq!(findings.choose(&old).0, AgentDelivery::Init);
    }
}
