//! Pure: which IPUPartition of its Workload a native Pod has claimed, or may claim.
//!
//! `ipu-kueue` creates these before Kueue admits the Workload, one for each Pod. A claim is a
//! label, written with the version that was read: of two Pods, one gets it. From then on the
//! IPUPartition is like one that was created for the Pod.

use std::collections::BTreeMap;

use ipu_api::uid::Uid;

use crate::partition::{Partition, PartitionRef, State};
use crate::pod::NativePod;

/// The IPUPartition of a Workload that a Pod has claimed.
pub fn claimed(partitions: &BTreeMap<Box<str>, Partition>, pod: Uid) -> Option<Partition> {
    let is_of_pod = |one: &&Partition| one.claim.as_ref().is_some_and(|by| by.key() == pod);
    partitions.values().find(is_of_pod).cloned()
}

/// An IPUPartition that a Pod may claim. Pods of one Workload begin at different ones, so that few
/// of their claims conflict.
pub fn claimable(
    partitions: &BTreeMap<Box<str>, Partition>,
    pod: &NativePod,
    ipus: u32,
) -> Option<Partition> {
    let suited: Vec<&Partition> = partitions
        .values()
        .filter(|one| is_suited(one, pod, ipus))
        .collect();
    // Of two pod sets, a Pod of the one with more labels could take over a partition of the other,
    // which would lack it.
    let most = suited.iter().map(|one| one.node_selector.len()).max();
    let all: Vec<&Partition> = suited
        .into_iter()
        .filter(|one| Some(one.node_selector.len()) == most)
        .filter(|one| is_free(one, pod))
        .collect();
    let bytes = pod.reference.uid.bytes();
    let seed = bytes.fold(0_usize, |seed, byte| {
        seed.wrapping_mul(31).wrapping_add(usize::from(byte))
    });
    let index = seed.checked_rem(all.len())?;
    all.get(index).map(|one| (*one).clone())
}

/// Whether an IPUPartition was created for a Pod as this one: it belongs to the Pod's Workload, and
/// has the requested size and labels of nodes that the Pod must have too. Others may have added
/// labels to the Pod.
fn is_suited(partition: &Partition, pod: &NativePod, ipus: u32) -> bool {
    let owner = &partition.owner;
    let mut labels = partition.node_selector.iter();
    partition.is_of_workload
        && partition.ipus == ipus
        && *owner.namespace == *pod.reference.namespace
        && pod.workload.as_ref() == Some(&owner.name)
        && labels.all(|(key, value)| pod.node_selector.get(key) == Some(value))
}

/// Whether a Pod can use an IPUPartition at once: it is ready, on nodes that the Pod may use, and
/// no other Pod uses it.
fn is_free(partition: &Partition, pod: &NativePod) -> bool {
    let State::Ready(partition_ref) = &partition.state else {
        return false;
    };
    partition.claim.is_none() && contradiction(pod, partition_ref).is_none()
}

/// The message for a node selector that no node of the partition's V-IPU controller fulfils. It
/// cannot be changed by the operator, only added to.
pub fn contradiction(pod: &NativePod, partition_ref: &PartitionRef) -> Option<String> {
    let controller = &partition_ref.controller;
    let (key, value) = (&controller.label_key, &controller.label_value);
    let selected = pod
        .node_selector
        .get(key)
        .filter(|selected| *selected != value)?;
    Some(format!(
        "spec.nodeSelector[{key}]: \"{selected}\" excludes the nodes that reach {}, which have \"{value}\"; remove the \
         entry",
        controller.name
    ))
}
