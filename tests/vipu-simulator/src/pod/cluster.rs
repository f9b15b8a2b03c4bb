//! Pure: the clusters of a simulated pod. Each has a range of the pod's IPUs, and a partition is
//! within one cluster.

use serde::{Deserialize, Serialize};

use crate::allocation::{self, Block};

/// A V-IPU cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cluster {
    /// Its name.
    pub name: String,
    /// Its IPUs.
    pub block: Block,
}

/// Divides a pod's IPUs equally among clusters with these names.
pub(super) fn divided(ipus: u32, names: &[String]) -> Vec<Cluster> {
    let size = u32::try_from(names.len()).map_or(0, |count| ipus / count.max(1));
    let clusters = names.iter().zip(0..).map(|(name, index)| Cluster {
        name: name.clone(),
        block: Block {
            first: index * size,
            size,
        },
    });
    clusters.collect()
}

impl Cluster {
    /// The lowest free block of the cluster, with `taken` in use in the pod.
    pub(super) fn place(&self, size: u32, taken: &[Block]) -> Option<Block> {
        let found = allocation::place(size, self.block.size, &self.within(taken))?;
        Some(Block {
            first: found.first + self.block.first,
            ..found
        })
    }

    /// The largest partition that fits.
    pub(super) fn largest(&self, taken: &[Block]) -> u32 {
        allocation::largest(self.block.size, &self.within(taken))
    }

    /// The blocks of this cluster, counted from its first IPU.
    fn within(&self, taken: &[Block]) -> Vec<Block> {
        let Block { first, size } = self.block;
        let own = taken
            .iter()
            .filter(|block| (first..first + size).contains(&block.first));
        own.map(|block| Block {
            first: block.first - first,
            ..*block
        })
        .collect()
    }
}
