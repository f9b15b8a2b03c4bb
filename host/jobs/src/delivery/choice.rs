//! Pure: which node a probe runs on next, and what the probes so far mean for new Pods.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};

use ipu_runtime::clock;
use jiff::{SignedDuration, Timestamp};

use super::node::{NodeVersion, Nodes};
use crate::build::AgentDelivery;

/// Time until the next probe of a version whose node refused the image, for each probe so far: the
/// cause may have been one node, or a registry.
const RETRY: SignedDuration = SignedDuration::from_mins(1);

/// The most times [`RETRY`] between two probes.
const RETRIES_MAX: i32 = 30;

/// What a probe has shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The node executes the agent of the mounted image.
    Mounts,
    /// It does not, for this reason.
    Refuses(String),
    /// Nothing about the node, for this reason.
    NotRun(String),
}

impl Display for Outcome {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mounts => formatter.write_str("it mounts the image"),
            Self::Refuses(reason) => formatter.write_str(reason),
            Self::NotRun(reason) => write!(formatter, "the probe did not run: {reason}"),
        }
    }
}

/// The last probe of a version.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Finding {
    outcome: Outcome,
    at: Timestamp,
    /// Number of probes so far.
    probes: usize,
}

impl Finding {
    /// Time of the next probe. `None`: no other is necessary.
    fn next_probe(&self) -> Option<Timestamp> {
        let times = match self.outcome {
            Outcome::Mounts => return None,
            Outcome::Refuses(_) => i32::try_from(self.probes).unwrap_or(RETRIES_MAX),
            Outcome::NotRun(_) => 1,
        };
        Some(clock::later(self.at, RETRY * times.min(RETRIES_MAX)))
    }
}

/// What the probes of this process have shown.
#[derive(Debug, Default)]
pub(super) struct Findings(BTreeMap<NodeVersion, Finding>);

impl Findings {
    /// Records the outcome of a probe, and forgets versions that no node has any more. A node that
    /// has left or has another version meanwhile has shown nothing.
    pub(super) fn record(
        &mut self,
        node: &str,
        version: NodeVersion,
        outcome: Outcome,
        nodes: &Nodes,
        now: Timestamp,
    ) {
        if nodes
            .get(node)
            .is_some_and(|known| known.version == version)
        {
            let probes = self.0.get(&version).map_or(0, |finding| finding.probes);
            let finding = Finding {
                outcome,
                at: now,
                probes: probes + 1,
            };
            self.0.insert(version, finding);
        }
        self.0
            .retain(|version, _| nodes.values().any(|known| known.version == *version));
    }

    /// Returns the node on which to probe next: one of the version that was probed least recently.
    /// Of a version with several nodes, each probe takes another one.
    pub(super) fn due(&self, nodes: &Nodes, now: Timestamp) -> Option<(String, NodeVersion)> {
        let ready = nodes.iter().filter(|(_, node)| node.is_ready);
        let mut by_version: BTreeMap<&NodeVersion, Vec<&String>> = BTreeMap::new();
        for (name, node) in ready {
            by_version.entry(&node.version).or_default().push(name);
        }
        let is_due = |version: &NodeVersion| match self.0.get(version) {
            Some(finding) => finding.next_probe().is_some_and(|time| time <= now),
            None => true,
        };
        let due = by_version
            .into_iter()
            .filter(|(version, _)| is_due(version));
        let (version, names) =
            due.min_by_key(|(version, _)| self.0.get(version).map(|finding| finding.at))?;
        let probes = self.0.get(version).map_or(0, |finding| finding.probes);
        let name = names[probes % names.len()];
        Some((name.clone(), version.clone()))
    }

    /// Returns how the agent gets into new Pods, and why. Only what works on every node is right: a
    /// Pod may run on any of them, also on one that is not ready at the moment.
    pub(super) fn choose(&self, nodes: Option<&Nodes>) -> (AgentDelivery, String) {
        let Some(nodes) = nodes else {
            return (
                AgentDelivery::Init,
                "the nodes are not listed yet".to_owned(),
            );
        };
        let unproven = nodes.iter().find_map(|(name, node)| {
            let reason = match self.0.get(&node.version).map(|finding| &finding.outcome) {
                Some(Outcome::Mounts) => return None,
                Some(outcome) => outcome.to_string(),
                None if node.is_ready => "it was not probed yet".to_owned(),
                None => "it is not ready, and was not probed".to_owned(),
            };
            Some(format!("node {name} ({}): {reason}", node.version))
        });
        match unproven {
            Some(reason) => (AgentDelivery::Init, reason),
            None if nodes.is_empty() => (AgentDelivery::Init, "there is no Linux node".to_owned()),
            None => {
                let reason = "each version of the nodes has executed the agent of a mounted image";
                (AgentDelivery::Image, reason.to_owned())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::node::KnownNode;
    use super::super::node::tests::node;
    use super::*;

    /// A kubelet that does not know image volumes.
    const OLD: &str = "v1.34.0";

    /// Nodes by name with the versions of their kubelets.
    fn nodes(versions: &[(&str, &str)]) -> Nodes {
        let named = versions.iter();
        named
            .map(|(name, kubelet)| {
                let known = KnownNode::of(&node(kubelet, |_| {})).unwrap();
                ((*name).to_owned(), known)
            })
            .collect()
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn refused() -> Outcome {
        Outcome::Refuses("it did not start".to_owned())
    }

    /// Probes until nothing is due at a time. Returns the nodes.
    fn probe(findings: &mut Findings, nodes: &Nodes, second: i64) -> Vec<String> {
        let mut on = Vec::new();
        while let Some((name, version)) = findings.due(nodes, at(second)) {
            let is_old = version.to_string().contains(OLD);
            let outcome = if is_old { refused() } else { Outcome::Mounts };
            findings.record(&name, version, outcome, nodes, at(second));
            on.push(name);
        }
        on
    }

    #[test]
    fn the_image_is_taken_once_each_version_is_shown_on_one_node() {
        let nodes = nodes(&[("a", "v1.37.2"), ("b", "v1.37.2"), ("c", "v1.36.0")]);
        let mut findings = Findings::default();
        let (delivery, reason) = findings.choose(Some(&nodes));
        assert_eq!(delivery, AgentDelivery::Init);
        let version = "kubelet v1.37.2, containerd://2.4.2, amd64";
        assert_eq!(reason, format!("node a ({version}): it was not probed yet"));
        assert_eq!(probe(&mut findings, &nodes, 0), ["c", "a"]);
        assert_eq!(findings.choose(Some(&nodes)).0, AgentDelivery::Image);
        assert_eq!(findings.due(&nodes, at(1 << 30)), None);
    }

    #[test]
    fn one_old_node_is_enough_for_init_containers_until_it_has_left() {
        let mut findings = Findings::default();
        let new = nodes(&[("a", "v1.37.2")]);
        probe(&mut findings, &new, 0);
        assert_eq!(findings.choose(Some(&new)).0, AgentDelivery::Image);
        let mut both = nodes(&[("a", "v1.37.2"), ("b", OLD)]);
        assert_eq!(findings.choose(Some(&both)).0, AgentDelivery::Init);
        assert_eq!(probe(&mut findings, &both, 1), ["b"]);
        let (delivery, reason) = findings.choose(Some(&both));
        assert_eq!(delivery, AgentDelivery::Init);
        let version = "kubelet v1.34.0, containerd://2.4.2, amd64";
        assert_eq!(reason, format!("node b ({version}): it did not start"));
        // It comes back from a restart with the Pods that were created meanwhile.
        both.get_mut("b").unwrap().is_ready = false;
        assert_eq!(findings.choose(Some(&both)).0, AgentDelivery::Init);
        assert_eq!(findings.choose(Some(&new)).0, AgentDelivery::Image);
    }

    #[test]
    fn a_node_that_is_not_ready_is_not_probed_and_not_forgotten() {
        let mut nodes = nodes(&[("a", "v1.37.2")]);
        nodes.get_mut("a").unwrap().is_ready = false;
        let mut findings = Findings::default();
        assert_eq!(findings.due(&nodes, at(0)), None);
        let (delivery, reason) = findings.choose(Some(&nodes));
        assert_eq!(delivery, AgentDelivery::Init);
        assert!(
            reason.ends_with("it is not ready, and was not probed"),
            "{reason}"
        );
        let version = nodes["a"].version.clone();
        findings.record("a", version, Outcome::Mounts, &nodes, at(0));
        assert_eq!(findings.choose(Some(&nodes)).0, AgentDelivery::Image);
    }

    #[test]
    fn a_refused_version_is_probed_again_later_on_another_node() {
        let nodes = nodes(&[("a", OLD), ("b", OLD)]);
        let mut findings = Findings::default();
        let mut probed = |second| probe(&mut findings, &nodes, second);
        assert_eq!(probed(0), ["a"]);
        assert_eq!(probed(59), [""; 0]);
        assert_eq!(probed(60), ["b"]);
        assert_eq!(probed(179), [""; 0]);
        assert_eq!(probed(180), ["a"]);
    }

    #[test]
    fn a_probe_that_did_not_run_does_not_delay_the_next_ones_more_and_more() {
        let nodes = nodes(&[("a", OLD)]);
        let mut findings = Findings::default();
        for second in [0, 60, 120, 180] {
            let (name, version) = findings.due(&nodes, at(second)).unwrap();
            let outcome = Outcome::NotRun("quota".to_owned());
            findings.record(&name, version, outcome, &nodes, at(second));
            let (_, reason) = findings.choose(Some(&nodes));
            assert!(reason.ends_with("the probe did not run: quota"), "{reason}");
        }
    }

    #[test]
    fn no_version_starves_behind_another() {
        let nodes = nodes(&[("a", OLD), ("b", "v1.34.1")]);
        let mut findings = Findings::default();
        let mut next = |second| {
            let (name, version) = findings.due(&nodes, at(second)).unwrap();
            findings.record(&name, version, refused(), &nodes, at(second));
            name
        };
        assert_eq!(
            [0, 1, 600, 601, 1200].map(&mut next),
            ["a", "b", "a", "b", "a"]
        );
    }

    #[test]
    fn a_node_that_was_upgraded_during_its_probe_has_shown_nothing() {
        let (before, after) = (
            nodes(&[("a", OLD), ("b", OLD)]),
            nodes(&[("a", "v1.35.0"), ("b", OLD)]),
        );
        let mut findings = Findings::default();
        let (name, version) = findings.due(&before, at(0)).unwrap();
        findings.record(&name, version, Outcome::Mounts, &after, at(1));
        assert!(findings.0.is_empty());
    }

    #[test]
    fn without_nodes_nothing_is_known() {
        let findings = Findings::default();
        for (nodes, expected) in [
            (None, "the nodes are not listed yet"),
            (Some(&Nodes::new()), "there is no Linux node"),
        ] {
            let (delivery, reason) = findings.choose(nodes);
            assert_eq!((delivery, &*reason), (AgentDelivery::Init, expected));
        }
    }

    #[test]
    fn versions_without_nodes_are_forgotten() {
        let mut findings = Findings::default();
        let old = nodes(&[("a", "v1.36.0")]);
        probe(&mut findings, &old, 0);
        probe(&mut findings, &nodes(&[("a", "v1.37.2")]), 1);
        assert_eq!(findings.choose(Some(&old)).0, AgentDelivery::Init);
    }
}
