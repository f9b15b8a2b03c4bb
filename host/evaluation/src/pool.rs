//! Pure: the V-IPU controllers of a replay: their state, and their view for placement.

use ipu_api::guest::placement::ControllerView;
use ipu_api::ipupartition::ControllerRef;
use ipu_api::partition_request::largest_partition;

use crate::buddy::{BlockChoice, Buddy};
use crate::controllers::Controller;

/// Key of the label of the controllers' nodes. No job of a replay selects nodes.
const LABEL_KEY: &str = "ipunode";

/// The partition of a job on a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    /// Index of the controller.
    controller: usize,
    first: u32,
    ipus: u32,
}

/// The controllers.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    refs: Vec<ControllerRef>,
    totals: Vec<u32>,
    buddies: Vec<Buddy>,
}

impl Pool {
    /// Creates empty controllers.
    pub(crate) fn new(controllers: &[Controller]) -> Self {
        let refs = controllers.iter().map(|one| ControllerRef {
            name: one.name.clone(),
            host: one.name.clone(),
            port: 8090,
            label_key: LABEL_KEY.to_owned(),
            label_value: one.name.clone(),
        });
        Self {
            refs: refs.collect(),
            totals: controllers.iter().map(|one| one.ipus).collect(),
            buddies: controllers.iter().map(|one| Buddy::new(one.ipus)).collect(),
        }
    }

    /// Returns the controllers as the admin lists them.
    pub(crate) fn refs(&self) -> &[ControllerRef] {
        &self.refs
    }

    /// Returns the controllers as placement sees them. The largest free partition and the free
    /// blocks are estimates from the number of free IPUs, as of a controller that does not report
    /// which IPUs are free. They are `exact` as of one that does.
    pub(crate) fn views(&self, exact: bool) -> Vec<ControllerView> {
        let controllers = self.refs.iter().zip(&self.totals).zip(&self.buddies);
        let views = controllers.map(|((controller, &total), buddy)| ControllerView {
            name: controller.name.clone(),
            label_key: controller.label_key.clone(),
            label_value: controller.label_value.clone(),
            has_nodes: true,
            unschedulable: None,
            unreachable: None,
            total_ipus: total,
            used_ipus: total - buddy.free(),
            largest_free: if exact {
                buddy.largest()
            } else {
                largest_partition(buddy.free())
            },
            free_blocks: if exact { buddy.blocks() } else { Vec::new() },
            failures: 0,
        });
        views.collect()
    }

    /// Creates a partition on the controller with this name. `None`: it has no aligned block of
    /// that size.
    pub(crate) fn create(&mut self, name: &str, ipus: u32, choice: BlockChoice) -> Option<Block> {
        let controller = self.refs.iter().position(|one| one.name == name)?;
        let first = self.buddies[controller].take(ipus, choice)?;
        Some(Block {
            controller,
            first,
            ipus,
        })
    }

    /// Removes a partition.
    pub(crate) fn remove(&mut self, block: Block) {
        self.buddies[block.controller].put_back(block.first, block.ipus);
    }

    /// Whether a controller has a free block of this size.
    pub(crate) fn has_block(&self, ipus: u32) -> bool {
        self.buddies.iter().any(|buddy| buddy.largest() >= ipus)
    }

    /// Returns the expected number of free IPUs that a partition cannot use: those outside free
    /// blocks of its size. `mix` is the share of each size of partitions.
    pub(crate) fn fragmentation(&self, mix: &[(u32, f64)]) -> f64 {
        let outside = |buddy: &Buddy, ipus| buddy.free() - buddy.free_in_blocks_of(ipus);
        let each = mix.iter().map(|&(ipus, share)| {
            let outside: u32 = self.buddies.iter().map(|one| outside(one, ipus)).sum();
            share * f64::from(outside)
        });
        each.sum()
    }

    /// Returns the same if all free IPUs of the controllers were adjacent: a bound that no policy
    /// can pass.
    pub(crate) fn least_fragmentation(&self, mix: &[(u32, f64)]) -> f64 {
        let free: u32 = self.buddies.iter().map(Buddy::free).sum();
        let each = mix
            .iter()
            .map(|&(ipus, share)| share * f64::from(free % ipus));
        each.sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool() -> Pool {
        let controllers = ["pod1", "pod2"].map(|name| Controller {
            name: name.to_owned(),
            ipus: 16,
        });
        Pool::new(&controllers)
    }

    #[test]
    fn the_largest_free_partition_is_estimated_from_the_free_ipus() {
        let mut pool = pool();
        let first = pool.create("pod1", 8, BlockChoice::Smallest).unwrap();
        let small = pool.create("pod1", 4, BlockChoice::Smallest).unwrap();
        pool.create("pod1", 4, BlockChoice::Smallest).unwrap();
        assert_eq!(pool.create("pod1", 1, BlockChoice::Smallest), None);
        assert_eq!(pool.create("pod3", 1, BlockChoice::Smallest), None);
        pool.remove(small);
        let view = &pool.views(false)[0];
        assert_eq!((view.used_ipus, view.largest_free), (12, 4));
        pool.remove(first);
        let view = &pool.views(false)[0];
        assert_eq!((view.used_ipus, view.largest_free), (4, 8));
        assert!(pool.has_block(16) && !pool.has_block(32));
    }

    #[test]
    fn exact_views_have_the_blocks_of_the_allocator() {
        let mut pool = pool();
        let blocks =
            [4, 4, 4, 4].map(|ipus| pool.create("pod1", ipus, BlockChoice::Smallest).unwrap());
        pool.remove(blocks[0]);
        pool.remove(blocks[2]);
        // 8 IPUs are free, in two pieces.
        let largest = |exact: bool| pool.views(exact)[0].largest_free;
        assert_eq!((largest(false), largest(true)), (8, 4));
        let seen = pool.views(true)[0].blocks();
        assert_eq!((seen[0].ipus, seen[0].count, seen.len()), (4, 2, 1));
    }

    #[test]
    fn fragmentation_counts_ipus_outside_blocks() {
        let mix = [(1, 0.5), (8, 0.25), (16, 0.25)];
        let mut pool = pool();
        assert!(pool.fragmentation(&mix).abs() < 1e-9);
        // pod1: 4 + 8 IPUs are free in blocks of their size; pod2: all 16.
        pool.create("pod1", 4, BlockChoice::Smallest).unwrap();
        let expected = 0.25 * 4.0 + 0.25 * 12.0;
        assert!((pool.fragmentation(&mix) - expected).abs() < 1e-9);
        // Of 28 free IPUs, 4 are no block of 8, and 12 no block of 16.
        assert!((pool.least_fragmentation(&mix) - expected).abs() < 1e-9);
        pool.create("pod2", 4, BlockChoice::Smallest).unwrap();
        assert!((pool.fragmentation(&mix) - (0.25 * 8.0 + 0.25 * 24.0)).abs() < 1e-9);
        assert!((pool.least_fragmentation(&mix) - 0.25 * 8.0).abs() < 1e-9);
    }
}
