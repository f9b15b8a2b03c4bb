//! Pure: the IPUs of a V-IPU controller at their places, where it reports them.

use super::block::Block;
use super::state::State;

/// Most IPUs of a V-IPU controller that are drawn at their places. The largest V-POD has 256.
const IPUS_MAX: u32 = 4_096;

/// The blocks of `own`, whose first IPUs are known, and of the free IPUs, in the order of their
/// places. `free` are ranges such as `4-7,16-63`, and `other` is the state of the IPUs in neither.
/// `None`: some places are not known, or the objects are not of the same moment.
pub(super) fn in_place(
    total: u32,
    own: &[Block],
    free: &str,
    free_state: State,
    other: State,
) -> Option<Vec<Block>> {
    if total > IPUS_MAX {
        return None;
    }
    let mut ipus = vec![Ipu::Other; total as usize];
    for range in free.split(',').filter(|range| !range.is_empty()) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (first.parse().ok()?, last.parse::<usize>().ok()?);
        ipus.get_mut(first..=last)?.fill(Ipu::Free);
    }
    for (index, block) in own.iter().enumerate() {
        let first = block.first? as usize;
        let place = ipus.get_mut(first..first.checked_add(block.ipus as usize)?)?;
        if place.iter().any(|ipu| matches!(ipu, Ipu::Own(_))) {
            return None;
        }
        place.fill(Ipu::Own(index));
    }
    let (mut blocks, mut first) = (Vec::new(), 0);
    for run in ipus.chunk_by(|one, next| one == next) {
        let ipus = u32::try_from(run.len()).ok()?;
        blocks.push(match run[0] {
            Ipu::Own(index) => own[index].clone(),
            Ipu::Free => Block::anonymous(free_state, ipus, Some(first)),
            Ipu::Other => Block::anonymous(other, ipus, Some(first)),
        });
        first += ipus;
    }
    Some(blocks)
}

/// The user of one IPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ipu {
    /// The partition of the operator with this index.
    Own(usize),
    Free,
    Other,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(first: Option<u32>, ipus: u32) -> Block {
        Block {
            partition: Some(format!("p-{first:?}")),
            ..Block::anonymous(State::Ready, ipus, first)
        }
    }

    fn drawn(own: &[Block], free: &str) -> Option<String> {
        let blocks = in_place(16, own, free, State::Free, State::Others)?;
        let words = blocks.iter().map(|block| {
            let first = block.first.unwrap();
            format!("{first}: {:?} {}", block.state, block.ipus)
        });
        Some(words.collect::<Vec<_>>().join(", "))
    }

    #[test]
    fn blocks_are_in_the_order_of_their_places() {
        let two = [own(Some(8), 4), own(Some(0), 2)];
        let table: [(&[Block], &str, &str); 5] = [
            (&[], "0-15", "0: Free 16"),
            (&[], "", "0: Others 16"),
            (
                &two,
                "2-7,12-13",
                "0: Ready 2, 2: Free 6, 8: Ready 4, 12: Free 2, 14: Others 2",
            ),
            (
                &two,
                "2",
                "0: Ready 2, 2: Free 1, 3: Others 5, 8: Ready 4, 12: Others 4",
            ),
            // It was created after the list of free IPUs.
            (
                &two,
                "0-15",
                "0: Ready 2, 2: Free 6, 8: Ready 4, 12: Free 4",
            ),
        ];
        for (own, free, expected) in table {
            assert_eq!(drawn(own, free).as_deref(), Some(expected), "{free}");
        }
        let neighbours = [own(Some(0), 4), own(Some(4), 4)];
        assert_eq!(
            drawn(&neighbours, "8-15").unwrap(),
            "0: Ready 4, 4: Ready 4, 8: Free 8"
        );
    }

    #[test]
    fn places_that_do_not_agree_are_not_drawn() {
        let unknown = own(None, 4);
        let beyond = own(Some(14), 4);
        let twice = [own(Some(0), 4), own(Some(2), 4)];
        let far = own(Some(u32::MAX), u32::MAX);
        for own in [&[unknown][..], &[beyond], &twice, &[far]] {
            assert_eq!(drawn(own, "8-15"), None, "{own:?}");
        }
        for free in ["8-16", "15-8", "x", "-", "18446744073709551615"] {
            assert_eq!(drawn(&[], free), None, "{free}");
        }
    }
}
