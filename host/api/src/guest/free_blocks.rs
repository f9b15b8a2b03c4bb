//! Pure: the free IPUs of a V-IPU controller as blocks. A partition is one block, aligned to its
//! size, so a free block of 8 holds one partition of 8, or two of 4.

use super::placement::{ControllerView, SizeCount};

impl ControllerView {
    /// Returns the free blocks of IPUs by size, the largest first. If nobody knows them, this is
    /// the best case: the fewest and largest blocks that the free IPUs can form, none of them
    /// larger than the largest free partition.
    pub fn blocks(&self) -> Vec<SizeCount> {
        if !self.free_blocks.is_empty() {
            return self.free_blocks.clone();
        }
        let Some(largest) = self.largest_free.checked_ilog2() else {
            return Vec::new();
        };
        let mut blocks = Vec::new();
        let mut left = self.free_ipus();
        for exponent in (0..=largest).rev() {
            let ipus = 1_u32 << exponent;
            let count = left / ipus;
            if count > 0 {
                blocks.push(SizeCount { ipus, count });
                left -= ipus * count;
            }
        }
        blocks
    }

    /// Returns how many partitions of this size may fit now: an upper bound if nobody knows the
    /// free blocks.
    pub fn places(&self, ipus: u32) -> u32 {
        let places = self.free_ipus().checked_div(ipus).unwrap_or(0);
        if self.free_blocks.is_empty() {
            return places;
        }
        let blocks = self.free_blocks.iter();
        let each = blocks.map(|block| block.count.saturating_mul(block.ipus / ipus.max(1)));
        each.fold(0, u32::saturating_add).min(places)
    }

    /// Takes the IPUs of `count` partitions of this size. It is not known which block the
    /// controller will choose. This takes the smallest that fits, so that later partitions are
    /// shown no less than is free.
    pub fn use_up(&mut self, ipus: u32, count: u32) {
        let used = self.used_ipus.saturating_add(ipus.saturating_mul(count));
        self.used_ipus = used.min(self.total_ipus);
        let free = self.free_ipus().checked_ilog2();
        let mut largest = free.map_or(0, |exponent| 1 << exponent);
        if !self.free_blocks.is_empty() {
            take(&mut self.free_blocks, ipus, count);
            largest = largest.min(self.free_blocks.first().map_or(0, |block| block.ipus));
        }
        self.largest_free = self.largest_free.min(largest);
    }

    /// Takes all IPUs.
    pub fn use_up_all(&mut self) {
        self.used_ipus = self.total_ipus;
        self.largest_free = 0;
        self.free_blocks.clear();
    }
}

/// Takes the smallest blocks that hold partitions of this size. A partition that none holds was
/// created in IPUs that the blocks do not show, such as those of a partition that was removed
/// since: it takes none.
fn take(blocks: &mut Vec<SizeCount>, ipus: u32, mut count: u32) {
    while count > 0 {
        let Some(index) = blocks.iter().rposition(|block| block.ipus >= ipus) else {
            return;
        };
        let block = &mut blocks[index];
        let held = block.ipus / ipus.max(1);
        let whole = (count / held).min(block.count);
        if whole > 0 {
            block.count -= whole;
            count -= whole * held;
        } else {
            split(blocks, index, ipus);
            count -= 1;
        }
        if blocks[index].count == 0 {
            blocks.remove(index);
        }
    }
}

/// Takes a partition of this size from one of the blocks at `index`.
fn split(blocks: &mut Vec<SizeCount>, index: usize, ipus: u32) {
    let mut rest = blocks[index].ipus;
    blocks[index].count -= 1;
    let mut at = index + 1;
    while rest / 2 >= ipus.max(1) {
        rest /= 2;
        // There was no such block: it would hold the partition, and would have been taken instead.
        let block = SizeCount {
            ipus: rest,
            count: 1,
        };
        blocks.insert(at, block);
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(total_ipus: u32, used_ipus: u32, largest_free: u32) -> ControllerView {
        ControllerView {
            total_ipus,
            used_ipus,
            largest_free,
            ..ControllerView::default()
        }
    }

    fn pairs(blocks: &[SizeCount]) -> Vec<(u32, u32)> {
        blocks.iter().map(|one| (one.ipus, one.count)).collect()
    }

    /// A controller of 64 IPUs with these free blocks.
    fn known(blocks: &[(u32, u32)]) -> ControllerView {
        let free: u32 = blocks.iter().map(|(ipus, count)| ipus * count).sum();
        let free_blocks = blocks
            .iter()
            .map(|&(ipus, count)| SizeCount { ipus, count });
        ControllerView {
            free_blocks: free_blocks.collect(),
            ..view(64, 64 - free, blocks.first().map_or(0, |(ipus, _)| *ipus))
        }
    }

    #[test]
    fn free_blocks_that_nobody_knows_are_the_fewest_possible() {
        let cases = [
            (view(16, 0, 16), vec![(16, 1)]),
            (view(24, 0, 16), vec![(16, 1), (8, 1)]),
            (view(16, 3, 8), vec![(8, 1), (4, 1), (1, 1)]),
            // Others have reserved a part, or the ledger knows more than the controller.
            (view(16, 4, 4), vec![(4, 3)]),
            (view(16, 4, 0), vec![]),
            (view(16, 16, 0), vec![]),
        ];
        for (view, expected) in cases {
            assert_eq!(pairs(&view.blocks()), expected, "{view:?}");
        }
        let known = known(&[(4, 2)]);
        assert_eq!(known.blocks(), known.free_blocks);
    }

    #[test]
    fn a_partition_takes_the_smallest_block_that_holds_it() {
        type Blocks = &'static [(u32, u32)];
        let table: [(Blocks, [u32; 2], Blocks); 12] = [
            (&[(16, 1)], [16, 1], &[]),
            (&[(16, 1)], [4, 1], &[(8, 1), (4, 1)]),
            (&[(16, 2)], [4, 1], &[(16, 1), (8, 1), (4, 1)]),
            (&[(16, 1), (4, 2)], [4, 1], &[(16, 1), (4, 1)]),
            (&[(16, 1), (4, 1)], [8, 1], &[(8, 1), (4, 1)]),
            (&[(8, 1), (2, 1)], [1, 1], &[(8, 1), (1, 1)]),
            (&[(16, 1)], [4, 3], &[(4, 1)]),
            (&[(4, 4)], [4, 2], &[(4, 2)]),
            (&[(64, 1)], [4, 9], &[(16, 1), (8, 1), (4, 1)]),
            (&[(16, 2), (4, 1)], [4, 6], &[(8, 1), (4, 1)]),
            (&[(16, 1)], [4, 9], &[]),
            // Created in IPUs that a removed partition has left since the list.
            (&[(4, 3)], [8, 1], &[(4, 3)]),
        ];
        for (before, [ipus, count], after) in table {
            let mut view = known(before);
            view.use_up(ipus, count);
            let what = format!("{count} of {ipus} from {before:?}");
            assert_eq!(pairs(&view.free_blocks), after, "{what}");
            let largest = after.first().map_or(0, |(ipus, _)| *ipus);
            assert_eq!(view.largest_free, largest, "{what}");
        }
        let mut all = known(&[(16, 1)]);
        all.use_up_all();
        assert_eq!(
            (all.free_ipus(), all.largest_free, all.places(1)),
            (0, 0, 0)
        );
        let mut unknown = view(16, 4, 8);
        unknown.use_up(4, 1);
        assert_eq!((unknown.used_ipus, unknown.largest_free), (8, 8));
        // A refusal has limited it.
        let mut limited = known(&[(16, 2)]);
        limited.largest_free = 8;
        limited.use_up(4, 1);
        assert_eq!(limited.largest_free, 8);
    }

    #[test]
    fn places_are_counted_in_blocks() {
        let fragmented = known(&[(4, 2), (2, 4)]);
        let places = [8, 4, 2, 1, 0].map(|ipus| fragmented.places(ipus));
        assert_eq!(places, [0, 2, 8, 16, 0]);
        assert_eq!(view(64, 48, 16).places(8), 2, "an upper bound");
    }
}
