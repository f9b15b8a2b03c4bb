//! Pure: the IPUs of one V-IPU controller as a buddy allocator: a partition is one block, aligned
//! to its size.

use std::collections::BTreeSet;

use ipu_api::guest::placement::SizeCount;

/// Sizes of blocks that a `u32` can hold.
const ORDERS: usize = u32::BITS as usize;

/// The free block that a controller splits for a partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BlockChoice {
    /// The smallest that holds it, and of several the lowest: what is left stays in large blocks.
    #[default]
    Smallest,
    /// The lowest that holds it.
    Lowest,
}

/// The free blocks of a controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Buddy {
    /// For each power of two, the first IPUs of the free blocks of that size.
    free: Vec<BTreeSet<u32>>,
}

impl Buddy {
    /// Creates a controller without partitions. A number of IPUs that is no power of two consists
    /// of several blocks.
    pub(crate) fn new(ipus: u32) -> Self {
        let mut free = vec![BTreeSet::new(); ORDERS];
        let mut first = 0;
        for order in (0..ORDERS).rev() {
            let size = 1 << order;
            if ipus & size != 0 {
                free[order].insert(first);
                first += size;
            }
        }
        Self { free }
    }

    /// Takes `ipus`, a power of two, from a free block that holds them. Returns the first IPU.
    pub(crate) fn take(&mut self, ipus: u32, choice: BlockChoice) -> Option<u32> {
        let order = order(ipus);
        let mut large_enough = (order..ORDERS).filter(|&order| !self.free[order].is_empty());
        let mut from = match choice {
            BlockChoice::Smallest => large_enough.next(),
            BlockChoice::Lowest => large_enough.min_by_key(|&order| self.free[order].first()),
        }?;
        let first = self.free[from].pop_first()?;
        while from > order {
            from -= 1;
            self.free[from].insert(first + (1 << from));
        }
        Some(first)
    }

    /// Returns a block, and joins it with its free neighbour, and so on.
    pub(crate) fn put_back(&mut self, mut first: u32, ipus: u32) {
        for order in order(ipus)..ORDERS {
            let neighbour = first ^ (1 << order);
            if !self.free[order].remove(&neighbour) {
                self.free[order].insert(first);
                return;
            }
            first = first.min(neighbour);
        }
    }

    /// Returns the free IPUs.
    pub(crate) fn free(&self) -> u32 {
        self.free_in_blocks_of(1)
    }

    /// Returns the free IPUs in blocks of at least `ipus`, a power of two.
    pub(crate) fn free_in_blocks_of(&self, ipus: u32) -> u32 {
        let orders = order(ipus)..ORDERS;
        orders
            .map(|order| {
                let blocks = u32::try_from(self.free[order].len()).unwrap_or(u32::MAX);
                blocks.saturating_mul(1 << order)
            })
            .fold(0, u32::saturating_add)
    }

    /// Returns the free blocks by size, the largest first.
    pub(crate) fn blocks(&self) -> Vec<SizeCount> {
        let orders = self.free.iter().enumerate().rev();
        let sizes = orders.filter(|(_, blocks)| !blocks.is_empty());
        sizes
            .map(|(order, blocks)| SizeCount {
                ipus: 1 << order,
                count: u32::try_from(blocks.len()).unwrap_or(u32::MAX),
            })
            .collect()
    }

    /// Returns the size of the largest free block; 0 without one.
    pub(crate) fn largest(&self) -> u32 {
        let order = (0..ORDERS).rfind(|&order| !self.free[order].is_empty());
        order.map_or(0, |order| 1 << order)
    }
}

/// Returns the exponent of a power of two. Zero IPUs count as one.
fn order(ipus: u32) -> usize {
    ipus.max(1).ilog2() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_block_that_holds_it_is_taken() {
        let mut buddy = Buddy::new(16);
        let taken: Vec<_> = [4, 1, 8, 2, 2]
            .map(|ipus| buddy.take(ipus, BlockChoice::Smallest))
            .into();
        assert_eq!(taken, [Some(0), Some(4), Some(8), Some(6), None]);
        assert_eq!((buddy.free(), buddy.largest()), (1, 1));
        assert_eq!(buddy.take(1, BlockChoice::Smallest), Some(5));
        assert_eq!(buddy.take(1, BlockChoice::Smallest), None);
    }

    #[test]
    fn the_lowest_block_that_holds_it_is_taken() {
        let halves = || {
            let mut buddy = Buddy::new(16);
            assert_eq!(buddy.take(8, BlockChoice::Lowest), Some(0));
            assert_eq!(buddy.take(4, BlockChoice::Lowest), Some(8));
            buddy.put_back(0, 8);
            buddy
        };
        assert_eq!(halves().take(4, BlockChoice::Smallest), Some(12));
        assert_eq!(halves().take(4, BlockChoice::Lowest), Some(0));
    }

    #[test]
    fn neighbours_join_again() {
        let mut buddy = Buddy::new(16);
        let blocks =
            [2, 2, 4, 8].map(|ipus| (buddy.take(ipus, BlockChoice::Smallest).unwrap(), ipus));
        for (first, ipus) in blocks {
            buddy.put_back(first, ipus);
        }
        assert_eq!(buddy, Buddy::new(16));
    }

    #[test]
    fn free_ipus_in_pieces_hold_no_large_partition() {
        let mut buddy = Buddy::new(16);
        let first = buddy.take(2, BlockChoice::Smallest).unwrap();
        assert_eq!(buddy.take(8, BlockChoice::Smallest), Some(8));
        let second = buddy.take(4, BlockChoice::Smallest).unwrap();
        buddy.put_back(8, 8);
        // 10 of 16 IPUs are free, and 8 of them are one block.
        assert_eq!((buddy.free(), buddy.largest()), (10, 8));
        let blocks = buddy.blocks().into_iter();
        let blocks: Vec<_> = blocks.map(|one| (one.ipus, one.count)).collect();
        assert_eq!(blocks, [(8, 1), (2, 1)]);
        buddy.put_back(second, 4);
        assert_eq!((buddy.free(), buddy.free_in_blocks_of(4)), (14, 12));
        assert_eq!(buddy.free_in_blocks_of(16), 0);
        buddy.put_back(first, 2);
        assert_eq!(buddy.free_in_blocks_of(16), 16);
    }

    #[test]
    fn a_controller_of_any_size_has_aligned_blocks() {
        let mut buddy = Buddy::new(24);
        assert_eq!(buddy.largest(), 16);
        assert_eq!(
            (
                buddy.take(8, BlockChoice::Smallest),
                buddy.take(16, BlockChoice::Smallest)
            ),
            (Some(16), Some(0))
        );
        assert_eq!(buddy.take(1, BlockChoice::Smallest), None);
        buddy.put_back(16, 8);
        buddy.put_back(0, 16);
        assert_eq!(buddy, Buddy::new(24));
        assert_eq!(Buddy::new(0).largest(), 0);
    }
}
