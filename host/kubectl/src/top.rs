//! Pure: who uses the IPUs, from IPUPartitions and VIPUControllers or nodes, by V-IPU controller,
//! namespace or job.

use std::collections::{BTreeMap, BTreeSet};

use clap::ValueEnum;
use ipu_api::ipupartition::{ControllerRef, IPUPartition, IPUPartitionStatus, PartitionPhase};
use ipu_api::labels::IPU_RESOURCE;
use ipu_api::vipu_controller::{VIPUController, VIPUControllerStatus};
use k8s_openapi::api::core::v1::Node;
use serde::Serialize;

use crate::condition::shown;
use crate::controllers::address;

/// Grouping of the rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum By {
    /// A V-IPU controller.
    #[default]
    Controllers,
    /// A namespace.
    Namespaces,
    /// An IPUJob, or another owner of partitions.
    Jobs,
}

/// The use of IPUs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// Grouping of the rows.
    pub by: By,
    /// One for each of them, in the order of their names.
    pub rows: Vec<Row>,
    /// All of them. A partition that waits for several V-IPU controllers counts once.
    pub total: Row,
    /// Gaps of the figures.
    pub notes: Vec<String>,
}

/// The IPUs of a V-IPU controller, a namespace or a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// The namespace of a job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The name.
    pub name: String,
    /// State of a V-IPU controller in words, as its object has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// IPUs of a V-IPU controller, as its object or else its nodes have them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity: Option<u64>,
    /// IPUs of partitions that exist.
    pub used: u64,
    /// IPUs of partitions that a controller creates.
    pub forming: u64,
    /// IPUs of partitions that the operator did not create. Missing: not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub others: Option<u64>,
    /// IPUs that no known partition uses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub free: Option<u64>,
    /// The largest partition that could be created now, in IPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub largest_free: Option<u64>,
    /// IPUs of partitions that wait; of a controller: those that it does not serve now.
    pub waiting: u64,
    /// The number of partitions that exist, are created, or wait.
    pub partitions: usize,
    /// The V-IPU controllers of these partitions.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub controllers: BTreeSet<String>,
}

impl Row {
    /// The row under its name, with the IPUs that are free.
    fn named(self, (namespace, name): Key) -> Self {
        let taken = self.used.saturating_add(self.forming);
        let taken = taken.saturating_add(self.others.unwrap_or(0));
        let free = self.capacity.map(|capacity| capacity.saturating_sub(taken));
        Self {
            namespace,
            name,
            free,
            ..self
        }
    }
}

/// Use that a partition makes of its IPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Share {
    Used,
    Forming,
    Waiting,
}

/// Namespace and name of a row, in their order.
type Key = (Option<String>, String);

/// Source of the numbers of IPUs of V-IPU controllers.
#[derive(Clone, Copy, Debug)]
pub enum Capacities<'a> {
    /// Their objects.
    Controllers(&'a [&'a VIPUController]),
    /// The nodes that reach them, of an operator without such objects or for a user who may not
    /// list them.
    Nodes(&'a [&'a Node]),
    /// Nothing: the user may list neither.
    Unknown,
}

/// Counts the IPUs. `namespace` counts only the partitions of owners in it.
pub fn usage<'a>(
    partitions: impl Iterator<Item = &'a IPUPartition> + Clone,
    capacities: Capacities<'_>,
    by: By,
    namespace: Option<&str>,
) -> Usage {
    let partitions = partitions
        .filter(|one| namespace.is_none_or(|namespace| one.spec.owner.namespace == namespace));
    let shares = partitions.clone();
    let shares = shares.filter_map(|one| Some((one, share(one)?)));
    let (mut rows, mut total) = (BTreeMap::<Key, Row>::new(), Row::default());
    for (partition, share) in shares {
        add(&mut total, partition, share);
        for key in keys(partition, share, by) {
            add(rows.entry(key).or_default(), partition, share);
        }
    }
    match capacities {
        Capacities::Controllers(all) if by == By::Controllers => {
            add_controllers(&mut rows, &mut total, all);
        }
        Capacities::Nodes(nodes) if by == By::Controllers => {
            for (name, capacity) in advertised_by(&controllers(partitions), nodes) {
                rows.entry((None, name)).or_default().capacity = capacity;
            }
            let all = rows.values().filter_map(|row| row.capacity);
            total.capacity = Some(all.fold(0, u64::saturating_add));
        }
        _ => {}
    }
    let rows = rows.into_iter().map(|(key, row)| row.named(key));
    Usage {
        by,
        rows: rows.collect(),
        total: total.named((None, "total".to_owned())),
        notes: Vec::new(),
    }
}

/// Adds what the objects of V-IPU controllers say, and their sum.
fn add_controllers(rows: &mut BTreeMap<Key, Row>, total: &mut Row, all: &[&VIPUController]) {
    let (mut capacity, mut others, mut largest) = (0_u64, 0_u64, 0_u64);
    let unseen = VIPUControllerStatus::default();
    for one in all {
        let status = one.status.as_ref().unwrap_or(&unseen);
        let ipus = status.ipus;
        let row = rows.entry((None, address(one))).or_default();
        row.status = Some(shown(&status.summary));
        row.capacity = Some(ipus.total.into());
        row.others = Some(ipus.used_by_others.into());
        row.largest_free = Some(ipus.largest_free.into());
        capacity = capacity.saturating_add(ipus.total.into());
        others = others.saturating_add(ipus.used_by_others.into());
        largest = largest.max(ipus.largest_free.into());
    }
    total.capacity = Some(capacity);
    total.others = Some(others);
    total.largest_free = Some(largest);
}

fn share(partition: &IPUPartition) -> Option<Share> {
    let status = partition.status.as_ref();
    let is_placed = status.is_some_and(IPUPartitionStatus::is_placed);
    if !is_placed {
        let forms = status.is_some_and(|status| status.phase == PartitionPhase::Creating);
        return match (forms, partition.is_waiting()) {
            (true, _) => Some(Share::Forming),
            (false, true) => Some(Share::Waiting),
            (false, false) => None,
        };
    }
    match status.map(|status| status.phase) {
        Some(PartitionPhase::Pending | PartitionPhase::Creating) => Some(Share::Forming),
        _ => Some(Share::Used),
    }
}

fn add(row: &mut Row, partition: &IPUPartition, share: Share) {
    let field = match share {
        Share::Used => &mut row.used,
        Share::Forming => &mut row.forming,
        Share::Waiting => &mut row.waiting,
    };
    *field = field.saturating_add(partition.spec.ipus.into());
    row.partitions += 1;
    if share != Share::Waiting {
        row.controllers.extend(holders(partition));
    }
}

/// The rows in which a partition counts.
fn keys(partition: &IPUPartition, share: Share, by: By) -> Vec<Key> {
    let owner = &partition.spec.owner;
    match by {
        By::Namespaces => vec![(None, shown(&owner.namespace))],
        By::Jobs => {
            let name = match owner.kind.as_str() {
                "IPUJob" => shown(&owner.name),
                kind => shown(&format!("{}/{}", kind.to_lowercase(), owner.name)),
            };
            vec![(Some(shown(&owner.namespace)), name)]
        }
        By::Controllers => {
            let names = if share == Share::Waiting {
                let status = partition.status.iter();
                let reasons = status.flat_map(|status| &status.waiting);
                reasons.map(|one| shown(&one.controller)).collect()
            } else {
                holders(partition)
            };
            names.into_iter().map(|name| (None, name)).collect()
        }
    }
}

/// The V-IPU controllers that have or may have something of a partition.
fn holders(partition: &IPUPartition) -> BTreeSet<String> {
    held(partition).map(|one| shown(&one.name)).collect()
}

/// The same as they are stored.
pub(crate) fn held(partition: &IPUPartition) -> impl Iterator<Item = &ControllerRef> {
    let status = partition.status.iter();
    status.flat_map(|status| {
        let attempts = status.attempts.iter().filter(|attempt| attempt.is_held());
        let attempts = attempts.map(|attempt| &attempt.controller);
        status.controller.iter().chain(attempts)
    })
}

/// The node labels of the V-IPU controllers that partitions name, and the controllers of each.
fn controllers<'a>(
    partitions: impl Iterator<Item = &'a IPUPartition>,
) -> BTreeMap<(&'a str, &'a str), BTreeSet<String>> {
    let mut known: BTreeMap<_, BTreeSet<String>> = BTreeMap::new();
    for partition in partitions {
        let status = partition.status.iter();
        let attempts = status.clone().flat_map(|status| &status.attempts);
        let attempts = attempts.map(|attempt| &attempt.controller);
        let all = status.filter_map(|status| status.controller.as_ref());
        for one in all.chain(attempts) {
            let label = (one.label_key.as_str(), one.label_value.as_str());
            known.entry(label).or_default().insert(shown(&one.name));
        }
    }
    known
}

/// The IPUs of each V-IPU controller. All nodes of a controller advertise all of its IPUs.
/// Controllers with the same label advertise their sum, which is nobody's own; a node without a
/// known controller has a row of its label.
fn advertised_by(
    known: &BTreeMap<(&str, &str), BTreeSet<String>>,
    nodes: &[&Node],
) -> BTreeMap<String, Option<u64>> {
    let mut capacities: BTreeMap<String, Option<u64>> = BTreeMap::new();
    for node in nodes {
        let Some(ipus) = advertised(node) else {
            continue;
        };
        let labels = node.metadata.labels.iter().flatten();
        let label = |(key, value): (&String, &String)| {
            let names = known.get(&(key.as_str(), value.as_str()))?;
            Some(names.iter().cloned().collect::<Vec<_>>().join(" + "))
        };
        let name = labels.clone().find_map(label).unwrap_or_else(|| {
            let is_key = |key: &str| known.keys().any(|(known, _)| *known == key);
            let mut same = labels.filter(|(key, _)| is_key(key.as_str()));
            let name = node.metadata.name.as_deref().unwrap_or_default();
            match same.next() {
                Some((key, value)) => shown(&format!("({key}={value})")),
                None => shown(&format!("(node {name})")),
            }
        });
        let capacity = capacities.entry(name).or_default();
        *capacity = (*capacity).max(Some(ipus));
    }
    capacities
}

/// The IPUs that a node advertises.
fn advertised(node: &Node) -> Option<u64> {
    let capacity = node.status.as_ref()?.capacity.as_ref()?;
    capacity.get(IPU_RESOURCE)?.0.parse().ok()
}

#[cfg(test)]
#[expect(
    clippy::needless_pass_by_value,
    reason = "objects of tests read best as literals where they are used"
)]
mod tests;
