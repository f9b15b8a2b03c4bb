//! Pure: the IPUs of a V-IPU controller, used and free, from its list of partitions.

use std::collections::HashSet;
use std::sync::Arc;

use ipu_api::partition_request::largest_partition;
use ipu_api::uid::Uid;

use super::blocks::{self, FreeBlocks};
use super::{ListedPartition, PARTITIONS_MAX, ReadyState};

/// The number of IPUs of a controller, the number of IPUs in partitions, and the partitions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    /// IPUs that the controller reports.
    pub total: u32,
    /// IPUs in partitions of the operator and of others, with those created since the list.
    pub used: u32,
    /// IPUs in the partitions of the list alone.
    pub listed: u32,
    /// The free IPUs beside the partitions of the list, as blocks. `None`: the list does not show
    /// them.
    pub free_blocks: Option<Arc<FreeBlocks>>,
    /// Sizes of the partitions that were created since the list.
    pub created: Vec<u32>,
    /// Ids of all listed partitions.
    pub ids: Arc<HashSet<Uid>>,
    /// Ids of the partitions that were created or removed since the list.
    pub changed: HashSet<Uid>,
    /// The partitions in the controller's order, at most `PARTITIONS_MAX`.
    pub partitions: Arc<[ListedPartition]>,
}

impl Inventory {
    /// The inventory from a controller's total and its list of partitions.
    pub fn new(total: u32, mut partitions: Vec<ListedPartition>) -> Self {
        partitions.retain(|partition| partition.ready_state != ReadyState::Removed);
        let ipus = partitions.iter().map(|partition| partition.ipus);
        let used = ipus.fold(0, u32::saturating_add);
        let ids = partitions.iter().map(|partition| Uid::of(&partition.id));
        let ids = Arc::new(ids.collect());
        let places = partitions
            .iter()
            .map(|listed| (listed.first_ipu, listed.ipus));
        let free_blocks = blocks::free_blocks(total, places).map(Arc::new);
        let free_blocks = free_blocks.filter(|_| partitions.len() <= PARTITIONS_MAX);
        partitions.truncate(PARTITIONS_MAX);
        Inventory {
            total,
            used,
            listed: used,
            free_blocks,
            created: Vec::new(),
            ids,
            changed: HashSet::new(),
            partitions: partitions.into(),
        }
    }

    /// Adds the IPUs of omitted partitions. Their places are not known.
    #[must_use]
    pub fn and_used(mut self, more: u32) -> Self {
        if more > 0 {
            self.free_blocks = None;
        }
        self.used = self.used.saturating_add(more);
        self.listed = self.listed.saturating_add(more);
        self
    }

    /// Whether the list, or a change since then, contains this partition.
    pub fn accounts_for(&self, id: &Uid) -> bool {
        self.ids.contains(id) || self.changed.contains(id)
    }

    /// The same without the places of IPUs.
    #[must_use]
    pub fn without_places(self) -> Self {
        Inventory {
            free_blocks: None,
            ..self
        }
    }

    /// Adds a partition that was created since the list.
    #[must_use]
    pub fn with(mut self, id: Uid, ipus: u32) -> Self {
        if !self.accounts_for(&id) {
            self.changed.insert(id);
            self.created.push(ipus);
            self.used = self.used.saturating_add(ipus);
        }
        self
    }

    /// Records that the controller has agreed to remove this partition. It may still be listed; no
    /// Pod uses it.
    #[must_use]
    pub fn without(mut self, id: Uid) -> Self {
        self.changed.insert(id);
        self
    }

    /// The places of the IPUs in no partition of the list, as ranges, such as `4-7,16-63`. `None`:
    /// the list does not show them, or there are too many.
    pub fn free_ipus(&self) -> Option<String> {
        self.free_blocks.as_ref()?;
        let partitions = self.partitions.iter();
        let places = partitions.map(|listed| listed.first_ipu.map(|first| (first, listed.ipus)));
        let places: Vec<_> = places.collect::<Option<_>>()?;
        blocks::free_ipus(self.total, places.into_iter())
    }

    /// IPUs in no partition.
    pub fn free(&self) -> u32 {
        self.total.saturating_sub(self.used)
    }

    /// The largest partition that may fit now: the largest free block, or at most the free IPUs,
    /// rounded down to a power of two. It is an upper bound where the blocks are not known, and
    /// after a partition was created since the list.
    pub fn largest_free(&self) -> u32 {
        let largest = largest_partition(self.free());
        let blocks = self.free_blocks.as_deref();
        blocks.map_or(largest, |blocks| {
            let block = blocks.last_key_value().map_or(0, |(ipus, _)| *ipus);
            block.min(largest)
        })
    }
}
