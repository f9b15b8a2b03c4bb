//! NetworkPolicies on the nodes, as a policy-capable network enforces them: rules of nftables in
//! the nodes' networks.
//!
//! The kernel of the tests has no expression `queue` of nftables (`CONFIG_NFT_QUEUE`), which
//! kube-network-policies needs. So the rules are written here, for what the policies of the chart
//! contain. A connection from the node itself passes none of them, and Kubernetes allows it too.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use cluster::command;
use cluster::plan::{NODES, Node};
use cluster::process::{Daemons, Process};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::networking::v1::{NetworkPolicy, NetworkPolicyPeer, NetworkPolicyPort};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::api::{Api, ListParams};
use kube::core::{Selector, SelectorExt};
use kube::{Resource, ResourceExt};
use libtest_mimic::Failed;

use crate::fixture::Fixture;

/// The table of the rules.
const TABLE: &str = "inet network-policies";

/// A direction of connections, from the Pods that a policy selects or to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Egress,
    Ingress,
}

/// What the policies refer to.
struct Cluster {
    policies: Vec<NetworkPolicy>,
    pods: Vec<Pod>,
    namespaces: Vec<Namespace>,
}

/// Enforces the present policies for the present Pods on all nodes.
pub(crate) async fn enforce(fixture: &Fixture) -> Result<(), Failed> {
    let client = &fixture.operated.client;
    let cluster = Cluster {
        policies: list(Api::all(client.clone())).await?,
        pods: list(Api::all(client.clone())).await?,
        namespaces: list(Api::all(client.clone())).await?,
    };
    let file = fixture.settings.run.join("network-policies.nft");
    fs::write(&file, cluster.rules()?)?;
    for node in NODES {
        // Without it, no rule sees a connection between two Pods of a node.
        let bridged = "echo 1 > /proc/sys/net/bridge/bridge-nf-call-iptables";
        command::run(within(fixture, node)?.args(["sh", "-c", bridged]))?;
        nft(fixture, node, &["--file", &file.to_string_lossy()])?;
    }
    Ok(())
}

/// Ends the enforcement.
pub(crate) fn end(fixture: &Fixture) -> Result<(), Failed> {
    for node in NODES {
        nft(fixture, node, &["add", "table", TABLE])?;
        nft(fixture, node, &["delete", "table", TABLE])?;
    }
    Ok(())
}

async fn list<K>(api: Api<K>) -> Result<Vec<K>, kube::Error>
where
    K: Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    Ok(api.list(&ListParams::default()).await?.items)
}

/// A command in the network of a node.
fn within(fixture: &Fixture, node: Node) -> Result<Command, Failed> {
    let unshare = Daemons::of(&fixture.settings.run).alive(node.name);
    let init = unshare.and_then(Process::first_child);
    let init = init.ok_or("the node does not run")?;
    let mut enter = Command::new("nsenter");
    enter.arg(format!("--net=/proc/{}/ns/net", init.pid));
    enter.arg("--").envs(fixture.tools.debian().env());
    Ok(enter)
}

fn nft(fixture: &Fixture, node: Node, arguments: &[&str]) -> Result<(), Failed> {
    let nft: PathBuf = fixture.tools.debian().path("usr/sbin/nft");
    Ok(command::run(
        within(fixture, node)?.arg(nft).args(arguments),
    )?)
}

impl Cluster {
    /// The rules of all Pods. A packet passes both chains, one for its source and one for its
    /// destination.
    fn rules(&self) -> Result<String, Failed> {
        let chain = |(priority, direction)| {
            let rules = self.chain(direction)?.join("\n    ");
            Ok::<_, Failed>(format!(
                "  chain {direction:?} {{\n    type filter hook forward priority {priority};\n    {rules}\n  }}\n"
            ))
        };
        let chains = [(10, Direction::Egress), (11, Direction::Ingress)];
        let chains = chains
            .map(chain)
            .into_iter()
            .collect::<Result<String, _>>()?;
        Ok(format!(
            "add table {TABLE}\ndelete table {TABLE}\ntable {TABLE} {{\n{chains}}}\n"
        ))
    }

    fn chain(&self, direction: Direction) -> Result<Vec<String>, Failed> {
        let mut rules = vec!["ct state established,related accept".to_owned()];
        let (own, other) = match direction {
            Direction::Egress => ("saddr", "daddr"),
            Direction::Ingress => ("daddr", "saddr"),
        };
        for pod in &self.pods {
            let Some(address) = address(pod) else {
                continue;
            };
            let policies = self.policies_of(pod, direction)?;
            if policies.is_empty() {
                continue;
            }
            for (peers, ports) in policies.into_iter().flatten() {
                for peer in self.addresses(pod, peers.as_deref())? {
                    let peer = peer.map_or_else(String::new, |peer| format!(" ip {other} {peer}"));
                    for port in of_ports(ports.as_deref()) {
                        rules.push(format!("ip {own} {address}{peer}{port} accept"));
                    }
                }
            }
            rules.push(format!("ip {own} {address} reject"));
        }
        Ok(rules)
    }

    /// The rules of each policy that selects a Pod for a direction.
    fn policies_of(&self, pod: &Pod, direction: Direction) -> Result<Vec<Vec<Allowed>>, Failed> {
        let mut found = Vec::new();
        for policy in &self.policies {
            let Some(spec) = &policy.spec else {
                continue;
            };
            let types = spec.policy_types.iter().flatten();
            let is_for = types
                .into_iter()
                .any(|listed| *listed == format!("{direction:?}"));
            let is_near = policy.namespace() == pod.namespace();
            if !is_for || !is_near || !selects(spec.pod_selector.as_ref(), pod)? {
                continue;
            }
            found.push(match direction {
                Direction::Egress => {
                    let rules = spec.egress.clone().unwrap_or_default().into_iter();
                    rules.map(|rule| (rule.to, rule.ports)).collect()
                }
                Direction::Ingress => {
                    let rules = spec.ingress.clone().unwrap_or_default().into_iter();
                    rules.map(|rule| (rule.from, rule.ports)).collect()
                }
            });
        }
        Ok(found)
    }

    /// The addresses of the peers of a rule. `None`: any.
    fn addresses(
        &self,
        pod: &Pod,
        peers: Option<&[NetworkPolicyPeer]>,
    ) -> Result<Vec<Option<String>>, Failed> {
        let Some(peers) = peers.filter(|peers| !peers.is_empty()) else {
            return Ok(vec![None]);
        };
        let mut found = Vec::new();
        for peer in peers {
            if let Some(block) = &peer.ip_block {
                found.push(Some(block.cidr.clone()));
                continue;
            }
            for other in &self.pods {
                let is_near = match &peer.namespace_selector {
                    Some(selector) => {
                        let mut namespaces = self.namespaces.iter();
                        let own =
                            namespaces.find(|found| Some(found.name_any()) == other.namespace());
                        own.map_or(Ok(false), |own| selects(Some(selector), own))?
                    }
                    None => other.namespace() == pod.namespace(),
                };
                let is_meant = is_near && selects(peer.pod_selector.as_ref(), other)?;
                found.extend(address(other).filter(|_| is_meant).map(Some));
            }
        }
        Ok(found)
    }
}

/// The peers and the ports of a rule.
type Allowed = (
    Option<Vec<NetworkPolicyPeer>>,
    Option<Vec<NetworkPolicyPort>>,
);

/// The address of a Pod with a network of its own.
fn address(pod: &Pod) -> Option<String> {
    let is_of_node = pod.spec.as_ref()?.host_network.unwrap_or_default();
    let address = pod.status.as_ref()?.pod_ip.clone();
    address.filter(|_| !is_of_node)
}

/// The conditions of a rule for its ports.
fn of_ports(ports: Option<&[NetworkPolicyPort]>) -> Vec<String> {
    let Some(ports) = ports.filter(|ports| !ports.is_empty()) else {
        return vec![String::new()];
    };
    let conditions = ports.iter().map(|port| {
        let protocol = port.protocol.as_deref().unwrap_or("TCP").to_lowercase();
        match &port.port {
            Some(IntOrString::Int(number)) => format!(" {protocol} dport {number}"),
            Some(IntOrString::String(name)) => format!(" {protocol} dport {name}"),
            None => format!(" meta l4proto {protocol}"),
        }
    });
    conditions.collect()
}

/// Whether a selector selects an object. A missing one selects all.
fn selects(selector: Option<&LabelSelector>, object: &impl ResourceExt) -> Result<bool, Failed> {
    let Some(selector) = selector else {
        return Ok(true);
    };
    let selector = Selector::try_from(selector.clone())?;
    Ok(selector.matches(object.labels()))
}
