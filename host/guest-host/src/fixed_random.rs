//! Pure: pseudorandom numbers with a fixed seed, so that a replay is the same bit for bit.

use super::limits::OverLimit;

/// Most bytes of one call.
const MAX_BYTES: usize = 64 << 10;

/// The seed of every call.
const SEED: u64 = 0x6970_753a_706f_6c69;

/// The generator of one call: SplitMix64 with a fixed seed.
#[derive(Clone, Debug)]
pub(super) struct FixedRandom(u64);

impl Default for FixedRandom {
    fn default() -> Self {
        Self(SEED)
    }
}

impl FixedRandom {
    /// Returns the next number.
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns the next bytes, up to a limit.
    pub(super) fn bytes(&mut self, length: u64) -> Result<Vec<u8>, OverLimit> {
        let requested = usize::try_from(length).unwrap_or(usize::MAX);
        if requested > MAX_BYTES {
            return Err(OverLimit {
                requested,
                limit: MAX_BYTES,
                unit: "random bytes at once",
            });
        }
        let words = std::iter::repeat_with(|| self.next().to_le_bytes());
        Ok(words.flatten().take(requested).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_gets_the_same_numbers_up_to_a_limit() {
        let first = FixedRandom::default().bytes(20).unwrap();
        assert_eq!(first, FixedRandom::default().bytes(20).unwrap());
        assert_eq!(first.len(), 20);
        let mut random = FixedRandom::default();
        assert_ne!(random.next(), random.next());
        assert!(random.bytes(MAX_BYTES as u64).is_ok());
        assert_eq!(random.bytes(u64::MAX).unwrap_err().limit, 65_536);
    }
}
