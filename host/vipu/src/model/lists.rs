//! Pure: counts the entries of the lists in replies, each once.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use super::{ListedPartition, ReadyState, named};
use crate::proto;

/// The partitions of a reply to ListPartitions. A partition that is listed twice counts once, with
/// the larger size: an unused IPU is better than one that is allocated twice. Places in several
/// clusters say nothing of each other.
pub(crate) fn listed(reply: proto::ListPartitionsReply) -> Vec<ListedPartition> {
    let specs = reply
        .partitions
        .iter()
        .filter_map(|partition| partition.spec.as_ref());
    let mut clusters = specs.map(|spec| spec.cluster_id.as_str());
    let first = clusters.next();
    let has_one_cluster = clusters.all(|cluster| Some(cluster) == first);
    let mut partitions = distinct(reply);
    for partition in partitions.iter_mut().filter(|_| !has_one_cluster) {
        partition.first_ipu = None;
    }
    partitions
}

/// Each partition of a reply once.
fn distinct(reply: proto::ListPartitionsReply) -> Vec<ListedPartition> {
    let mut places: HashMap<String, usize> = HashMap::new();
    let mut partitions: Vec<ListedPartition> = Vec::with_capacity(reply.partitions.len());
    for mut partition in reply.partitions {
        let id = std::mem::take(&mut partition.id);
        let mut listed = ListedPartition::from(partition);
        match places.entry(id) {
            Entry::Occupied(place) => {
                let before = &mut partitions[*place.get()];
                let counts_more = match (before.ready_state, listed.ready_state) {
                    (_, ReadyState::Removed) => false,
                    (ReadyState::Removed, _) => true,
                    _ => listed.ipus > before.ipus,
                };
                if counts_more {
                    listed.id.clone_from(&before.id);
                    *before = listed;
                }
            }
            Entry::Vacant(place) => {
                listed.id = named(place.key());
                place.insert(partitions.len());
                partitions.push(listed);
            }
        }
    }
    partitions
}

/// The first `most` partitions of a list, and how many IPUs are in the others.
pub(crate) fn truncate(
    mut partitions: Vec<ListedPartition>,
    most: usize,
) -> (Vec<ListedPartition>, u32) {
    let rest = partitions.iter().skip(most);
    let rest = rest.filter(|partition| partition.ready_state != ReadyState::Removed);
    let ipus = rest.fold(0_u32, |sum, partition| sum.saturating_add(partition.ipus));
    partitions.truncate(most);
    partitions.shrink_to_fit();
    (partitions, ipus)
}

/// The number of IPUs in a reply to ListIPUAttributes. An IPU that is listed twice with the name of
/// its agent counts once. Agents without a name are different agents.
pub(crate) fn total_ipus(reply: &proto::ListIpuAttributesReply) -> u32 {
    let ipus = reply.entries.iter().enumerate().flat_map(|(place, entry)| {
        let agent = entry.agent.as_str();
        let unnamed = agent.is_empty().then_some(place);
        let numbers = entry.ipu_attributes.keys();
        numbers.map(move |number| (agent, unnamed, *number))
    });
    let distinct: HashSet<_> = ipus.collect();
    u32::try_from(distinct.len()).unwrap_or(u32::MAX)
}
