//! A run with two releases in one cluster, each with controllers of its own, whose nodes overlap.
//! Both leaders decide again and again which IPUs each node advertises, and see the controllers of
//! the other release late. Once nothing changes any more, each node advertises the IPUs of all
//! controllers that it reaches, and neither leader writes it again.
//!
//! It needs no IPUPartition, so it has a small world of its own around the operator's decision
//! about one node.

use std::collections::BTreeMap;

use ipu_api::vipu_controller::{ControllerIpus, VIPUControllerStatus};
use ipu_partitions::publish::advertise::decide::{Change, Known, NODES_MANAGER};
use ipu_placement::samples;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;

use super::coverage::{Coverage, CoveragePoint};
use super::invariants::{ADVERTISED, demand};
use super::rng::Rng;
use super::trace::Trace;

/// Rounds of each leader in which controllers and nodes change.
const CHANGING: u64 = 40;

/// Rounds of each leader after the last change until all nodes are up to date: the other release is
/// seen within one round.
const SETTLED_WITHIN: u64 = 3;

/// Rounds of each leader after that, in which nothing is written.
const STEADY: u64 = 10;

/// Values of the label of nodes.
const GROUPS: [&str; 3] = ["a", "b", "c"];

/// A controller of a release.
#[derive(Clone, Debug)]
struct Listed {
    name: String,
    group: &'static str,
    ipus: u32,
    is_down: bool,
}

/// A node: its label, and the IPUs that it advertises.
#[derive(Clone, Debug)]
struct Node {
    group: &'static str,
    advertised: Option<u32>,
    /// Whether the operator manages that field.
    is_managed: bool,
}

/// A release: its list, and the VIPUControllers of the other one as it has last seen them.
#[derive(Clone, Debug, Default)]
struct Release {
    listed: Vec<Listed>,
    seen: Option<Vec<VIPUControllerStatus>>,
}

struct Cluster {
    releases: [Release; 2],
    nodes: Vec<Node>,
    coverage: Coverage,
    trace: Trace,
    now: u64,
    /// Writes of nodes.
    writes: u64,
}

/// Runs the seed. A violated invariant is a panic.
pub(super) fn run(seed: u64, trace: Trace) -> Coverage {
    let mut rng = Rng::new(seed);
    let nodes = (0..6).map(|_| Node {
        group: rng.pick(&GROUPS),
        advertised: None,
        is_managed: false,
    });
    let mut cluster = Cluster {
        nodes: nodes.collect(),
        releases: Default::default(),
        coverage: Coverage::default(),
        trace,
        now: 0,
        writes: 0,
    };
    for _ in 0..CHANGING {
        cluster.change(&mut rng);
        cluster.rounds(&mut rng, 700);
    }
    for release in &mut cluster.releases {
        for controller in &mut release.listed {
            controller.is_down = false;
        }
    }
    for _ in 0..SETTLED_WITHIN {
        cluster.rounds(&mut rng, 1_000);
    }
    cluster.check();
    let writes = cluster.writes;
    for _ in 0..STEADY {
        cluster.rounds(&mut rng, 1_000);
    }
    demand(cluster.writes == writes, ADVERTISED, || {
        format!("{} writes without a change", cluster.writes - writes)
    });
    cluster.check();
    cluster.coverage
}

impl Cluster {
    /// A controller comes, leaves, or fails; or a node has another label.
    fn change(&mut self, rng: &mut Rng) {
        let release = rng.below(2);
        let listed = &mut self.releases[release].listed;
        match rng.below(5) {
            0 | 1 => {
                let controller = Listed {
                    name: format!("pod{}:8090", self.now),
                    group: rng.pick(&GROUPS),
                    ipus: rng.pick(&[4, 16, 64]),
                    is_down: false,
                };
                if rng.permille(300) {
                    self.releases[1 - release].listed.push(controller.clone());
                }
                self.releases[release].listed.push(controller);
            }
            2 if !listed.is_empty() => {
                let index = rng.below(listed.len());
                listed.remove(index);
            }
            3 if !listed.is_empty() => {
                let index = rng.below(listed.len());
                listed[index].is_down = !listed[index].is_down;
            }
            _ => {
                let node = rng.below(self.nodes.len());
                self.nodes[node].group = rng.pick(&GROUPS);
            }
        }
    }

    /// Both leaders have a round, in any order. In this number of a thousand cases, the watch of a
    /// leader is up to date.
    fn rounds(&mut self, rng: &mut Rng, current: u64) {
        let first = rng.below(2);
        for release in [first, 1 - first] {
            if rng.permille(current) || self.releases[release].seen.is_none() {
                self.releases[release].seen = Some(self.published_by(1 - release));
            }
            self.now += 1;
            self.round(release);
        }
    }

    /// The VIPUControllers of a release. One that does not answer keeps its last number of IPUs.
    fn published_by(&self, release: usize) -> Vec<VIPUControllerStatus> {
        let listed = self.releases[release].listed.iter();
        let statuses = listed.map(|controller| VIPUControllerStatus {
            address: controller.name.clone(),
            label_key: "ipunode".to_owned(),
            label_value: controller.group.to_owned(),
            ipus: ControllerIpus {
                total: controller.ipus,
                ..ControllerIpus::default()
            },
            ..VIPUControllerStatus::default()
        });
        statuses.collect()
    }

    /// A leader decides about each node, and the API server applies its changes.
    fn round(&mut self, release: usize) {
        let Release { listed, seen } = &self.releases[release];
        let views = listed.iter().map(|controller| {
            let mut view = samples::view(&controller.name, controller.ipus, 0);
            controller.group.clone_into(&mut view.label_value);
            view.unreachable = controller.is_down.then(|| "it is down".to_owned());
            view
        });
        let known = Known::of(&views.collect::<Vec<_>>(), seen.clone());
        for (number, node) in self.nodes.iter_mut().enumerate() {
            let labels = BTreeMap::from([("ipunode".to_owned(), node.group.to_owned())]);
            let managed = node.is_managed.then(|| ManagedFieldsEntry {
                manager: Some(NODES_MANAGER.to_owned()),
                ..ManagedFieldsEntry::default()
            });
            let change = known.change(&labels, managed.as_slice());
            let advertised = match change {
                Change::Keep => continue,
                Change::Set(total) if node.advertised == Some(total) => continue,
                Change::Set(total) => Some(total),
                Change::Remove => {
                    self.coverage.count(CoveragePoint::NodeCleared);
                    None
                }
            };
            self.writes += 1;
            self.trace.say(self.now, || {
                format!("release {release} on node {number}: {change:?}")
            });
            (node.advertised, node.is_managed) = (advertised, advertised.is_some());
        }
    }

    /// Each node advertises the IPUs of all controllers that it reaches.
    fn check(&mut self) {
        for node in &self.nodes {
            let reached = self.releases.each_ref().map(|release| {
                let listed = release.listed.iter();
                let reached = listed.filter(|controller| controller.group == node.group);
                let reached = reached.map(|controller| (&*controller.name, controller.ipus));
                reached.collect::<BTreeMap<_, _>>()
            });
            if reached.iter().all(|of_release| !of_release.is_empty()) {
                self.coverage.count(CoveragePoint::SharedNode);
            }
            let all: BTreeMap<_, _> = reached.iter().flatten().collect();
            let expected: Option<u32> = (!all.is_empty()).then(|| all.values().copied().sum());
            demand(node.advertised == expected, ADVERTISED, || {
                format!("{node:?} reaches {reached:?}")
            });
        }
    }
}
