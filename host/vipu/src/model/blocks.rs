//! Pure: which IPUs of a V-IPU controller are free, as blocks.
//!
//! A V-IPU controller lists the IPUs of each partition (`PartitionSpec.ipus` of ListPartitions)
//! with their places in the cluster (`topology_id`). A partition is one block: consecutive IPUs
//! from a multiple of its size. The free blocks are known as long as everything in the list agrees
//! with that. Otherwise only the number of free IPUs is known.

use std::collections::BTreeMap;

use crate::proto;

/// Most IPUs of a partition, and of a controller, whose places are read. The largest V-POD has 256.
const IPUS_MAX: usize = 4_096;

/// Most ranges of free IPUs that are named. 256 IPUs have at most 128.
const RANGES_MAX: usize = 128;

/// Numbers of free blocks, by their size in IPUs, which is a power of two. No two of them form a
/// larger block.
pub type FreeBlocks = BTreeMap<u32, u32>;

/// Returns the place of the first IPU of a partition. `None`: its IPUs are not listed as one block.
pub(super) fn first_ipu(ipus: &[proto::PartitionIpu]) -> Option<u32> {
    if !ipus.len().is_power_of_two() || ipus.len() > IPUS_MAX {
        return None;
    }
    let size = u32::try_from(ipus.len()).ok()?;
    let mut places: Vec<u32> = ipus.iter().map(|ipu| ipu.topology_id).collect();
    places.sort_unstable();
    let first = *places.first()?;
    let mut indices = places.iter().map(|place| place - first).zip(0..);
    let is_block = first.is_multiple_of(size) && indices.all(|(place, index)| place == index);
    is_block.then_some(first)
}

/// Returns the free blocks among `total` IPUs. `used` are the partitions: the place of the first
/// IPU, and the number of IPUs. `None`: the list of partitions contradicts itself or the number of
/// IPUs, or IPUs are missing in that number. While an agent is away, for example, nobody knows
/// which IPUs are not counted.
pub(super) fn free_blocks(
    total: u32,
    used: impl Iterator<Item = (Option<u32>, u32)>,
) -> Option<FreeBlocks> {
    if !total.is_power_of_two() {
        return None;
    }
    let mut partitions: Vec<(u32, u32)> = used
        .map(|(first, ipus)| first.map(|first| (first, ipus)))
        .collect::<Option<_>>()?;
    partitions.sort_unstable();
    let (mut free, mut next) = (FreeBlocks::new(), 0);
    for (first, ipus) in partitions {
        if first < next {
            return None;
        }
        add_gap(&mut free, next, first);
        next = first.checked_add(ipus).filter(|end| *end <= total)?;
    }
    add_gap(&mut free, next, total);
    Some(free)
}

/// Returns the free IPUs as ranges, such as `4-7,16-63`. `used` are the partitions, as in
/// `free_blocks`. `None`: there are too many.
pub(super) fn free_ipus(total: u32, used: impl Iterator<Item = (u32, u32)>) -> Option<String> {
    if usize::try_from(total).is_ok_and(|total| total > IPUS_MAX) {
        return None;
    }
    let mut partitions: Vec<(u32, u32)> = used.collect();
    partitions.sort_unstable();
    let (mut ranges, mut next) = (Vec::new(), 0);
    for (first, ipus) in partitions.into_iter().chain([(total, 0)]) {
        match first.saturating_sub(next) {
            0 => {}
            1 => ranges.push(next.to_string()),
            _ => ranges.push(format!("{next}-{}", first - 1)),
        }
        next = first.saturating_add(ipus);
    }
    (ranges.len() <= RANGES_MAX).then(|| ranges.join(","))
}

/// Adds the blocks of the IPUs `next..end`.
fn add_gap(free: &mut FreeBlocks, mut next: u32, end: u32) {
    while next < end {
        let fitting = 1 << (end - next).ilog2();
        // Every size begins at 0.
        let aligned = 1_u32.checked_shl(next.trailing_zeros());
        let size = aligned.map_or(fitting, |aligned| aligned.min(fitting));
        *free.entry(size).or_default() += 1;
        next += size;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Partitions: the first IPU, and the number of IPUs.
    type Used = &'static [(u32, u32)];

    /// Free blocks: their size, and their number.
    type Free = &'static [(u32, u32)];

    fn ipus(places: &[u32]) -> Vec<proto::PartitionIpu> {
        let ipus = places.iter().map(|&topology_id| proto::PartitionIpu {
            topology_id,
            ..Default::default()
        });
        ipus.collect()
    }

    #[test]
    fn a_partition_has_a_place_if_its_ipus_are_one_block() {
        let table: [(&[u32], Option<u32>); 9] = [
            (&[0], Some(0)),
            (&[5], Some(5)),
            (&[8, 9, 10, 11], Some(8)),
            (&[11, 9, 8, 10], Some(8)),
            // Not reported, not aligned, with a gap, no power of two, and none.
            (&[0, 0, 0, 0], None),
            (&[6, 7, 8, 9], None),
            (&[8, 9, 10, 12], None),
            (&[0, 1, 2], None),
            (&[], None),
        ];
        for (places, expected) in table {
            assert_eq!(first_ipu(&ipus(places)), expected, "{places:?}");
        }
        assert_eq!(first_ipu(&ipus(&[u32::MAX])), Some(u32::MAX));
        assert_eq!(first_ipu(&ipus(&vec![7; 2 * IPUS_MAX])), None);
    }

    #[test]
    fn free_blocks_are_the_largest_that_the_gaps_hold() {
        let table: [(u32, Used, Free); 7] = [
            (16, &[], &[(16, 1)]),
            (16, &[(0, 16)], &[]),
            (16, &[(0, 4)], &[(4, 1), (8, 1)]),
            (16, &[(4, 4)], &[(4, 1), (8, 1)]),
            // 12 of 16 are free, and no block of 8.
            (16, &[(8, 2), (0, 2)], &[(2, 2), (4, 2)]),
            (16, &[(5, 1)], &[(1, 1), (2, 1), (4, 1), (8, 1)]),
            (1 << 31, &[], &[(1 << 31, 1)]),
        ];
        for (total, used, expected) in table {
            let partitions = used.iter().map(|&(first, ipus)| (Some(first), ipus));
            let expected: FreeBlocks = expected.iter().copied().collect();
            assert_eq!(free_blocks(total, partitions), Some(expected), "{used:?}");
        }
    }

    #[test]
    fn free_ipus_are_ranges() {
        let table: [(Used, &str); 4] = [
            (&[], "0-15"),
            (&[(0, 16)], ""),
            (&[(8, 4), (0, 4)], "4-7,12-15"),
            (&[(1, 1), (3, 1), (8, 8)], "0,2,4-7"),
        ];
        for (used, expected) in table {
            let free = free_ipus(16, used.iter().copied());
            assert_eq!(free.as_deref(), Some(expected), "{used:?}");
        }
        let every_other = (0..1_024).step_by(2).map(|first| (first, 1));
        assert_eq!(free_ipus(1_024, every_other), None);
    }

    #[test]
    fn a_list_that_contradicts_itself_names_no_blocks() {
        let table: [(&str, u32, Used); 5] = [
            ("twice", 16, &[(0, 4), (0, 1)]),
            ("beyond the last", 16, &[(16, 4)]),
            ("beyond all", 16, &[(u32::MAX, 1)]),
            ("an agent is away", 12, &[(0, 4)]),
            ("none at all", 0, &[]),
        ];
        for (case, total, used) in table {
            let partitions = used.iter().map(|&(first, ipus)| (Some(first), ipus));
            assert_eq!(free_blocks(total, partitions), None, "{case}");
        }
        let without_place = [(Some(0), 4), (None, 4)].into_iter();
        assert_eq!(free_blocks(16, without_place), None);
    }
}
