//! Pure: which IPUs a partition gets: one block, aligned to its size, so that a pod can become
//! fragmented as a real one does.

/// IPUs `first .. first + size`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Block {
    /// Number of the first IPU, from 0.
    pub first: u32,
    /// Number of IPUs.
    pub size: u32,
}

impl Block {
    fn overlaps(self, other: Block) -> bool {
        self.first < other.first + other.size && other.first < self.first + self.size
    }
}

/// The lowest free block of `size` IPUs among `total`, with `taken` in use. A block starts at a
/// multiple of its size, as IPU-Links are wired.
pub fn place(size: u32, total: u32, taken: &[Block]) -> Option<Block> {
    if size == 0 {
        return None;
    }
    (0..total / size)
        .map(|index| Block {
            first: index * size,
            size,
        })
        .find(|block| taken.iter().all(|other| !other.overlaps(*block)))
}

/// The largest power of two for which `place` finds a block, or 0.
pub fn largest(total: u32, taken: &[Block]) -> u32 {
    (0..u32::BITS)
        .rev()
        .map(|exponent| 1 << exponent)
        .find(|&size| place(size, total, taken).is_some())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(of: &[(u32, u32)]) -> Vec<Block> {
        of.iter()
            .map(|&(first, size)| Block { first, size })
            .collect()
    }

    #[test]
    fn blocks_are_aligned_and_the_lowest_is_taken() {
        type Taken = &'static [(u32, u32)];
        // (size, total, taken, first of the block)
        let table: [(u32, u32, Taken, Option<u32>); 9] = [
            (4, 16, &[], Some(0)),
            (4, 16, &[(0, 4)], Some(4)),
            (4, 16, &[(0, 1)], Some(4)),
            (2, 16, &[(0, 1)], Some(2)),
            (1, 16, &[(0, 1)], Some(1)),
            (16, 16, &[(0, 1)], None),
            (16, 16, &[], Some(0)),
            (32, 16, &[], None),
            (0, 16, &[], None),
        ];
        for (size, total, taken, first) in table {
            let found = place(size, total, &blocks(taken)).map(|block| block.first);
            assert_eq!(found, first, "{size} of {total} beside {taken:?}");
        }
    }

    #[test]
    fn fragmented_free_ipus_fit_no_large_partition() {
        // 12 of 16 IPUs are free, but no aligned block of 8.
        let taken = blocks(&[(0, 2), (8, 2)]);
        assert_eq!(largest(16, &taken), 4);
        assert_eq!(place(8, 16, &taken), None);
        assert_eq!(largest(16, &blocks(&[(0, 16)])), 0);
        assert_eq!(largest(16, &[]), 16);
        assert_eq!(largest(0, &[]), 0);
    }
}
