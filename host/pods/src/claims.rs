//! Pure: which IPUPartition of its Workload a native Pod has claimed, or may claim.
//!
//! `ipu-kueue` creates these before Kueue admits the Workload, one for each Pod. A claim is a label, written with the
//! version that was read: of two Pods, one gets it. From then on the IPUPartition is like one that was created for the Pod.

use std::collections::BTreeMap;

use ipu_api::uid::Uid;

use crate::partition::{Partition, State};
use crate::pod::NativePod;

/// The IPUPartition of a Workload that a Pod has claimed.
pub fn claimed(partitions: &BTreeMap<Box<str>, Partition>, pod: Uid) -> Option<Partition> {
    let is_of_pod = |one: &&Partition| one.claim.as_ref().is_some_and(|by| by.key() == pod);
    partitions.values().find(is_of_pod).cloned()
}

/// An IPUPartition that a Pod may claim. Pods of one Workload begin at different ones, so that few of their claims conflict.
pub fn claimable(
    partitions: &BTreeMap<Box<str>, Partition>,
    pod: &NativePod,
    ipus: u32,
) -> Option<Partition> {
    let all = partitions.values();
    let all: Vec<&Partition> = all.filter(|one| is_claimable(one, pod, ipus)).collect();
    let bytes = pod.reference.uid.bytes();
    let seed = bytes.fold(0_usize, |seed, byte| {
        seed.wrapping_mul(31).wrapping_add(usize::from(byte))
    });
    let index = seed.checked_rem(all.len())?;
    all.get(index).map(|one| (*one).clone())
}

/// Whether a Pod may claim an IPUPartition: it is ready, has the requested size, belongs to the Pod's Workload, and is
/// nobody's.
pub fn is_claimable(partition: &Partition, pod: &NativePod, ipus: u32) -> bool {
    let owner = &partition.owner;
    partition.is_of_workload
        && partition.claim.is_none()
        && partition.ipus == ipus
        && *owner.namespace == *pod.reference.namespace
        && pod.workload.as_ref() == Some(&owner.name)
        && matches!(partition.state, State::Ready(_))
}
