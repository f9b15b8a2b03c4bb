//! Pure: a new IPUPartition.

use std::collections::BTreeMap;

use crate::ipupartition::{IPUPartition, IPUPartitionSpec};
use crate::labels::PARTITION_FINALIZER;
use crate::naming::partition_object;

/// The IPUPartition of its owner's slot. It has no owner reference, because it is cluster-scoped
/// and must outlive its owner until nothing of it is left on any V-IPU controller. It has the
/// finalizer from the start, which saves the proxy a write.
pub fn new_partition(
    spec: IPUPartitionSpec,
    labels: Option<BTreeMap<String, String>>,
) -> IPUPartition {
    let mut partition = IPUPartition::new(&partition_object(&spec.owner, spec.slot), spec);
    partition.metadata.labels = labels;
    partition.metadata.finalizers = Some(vec![PARTITION_FINALIZER.to_owned()]);
    partition
}

/// The largest partition that this number of free IPUs may hold: rounded down to a power of two.
pub fn largest_partition(free: u32) -> u32 {
    free.checked_ilog2().map_or(0, |exponent| 1 << exponent)
}
