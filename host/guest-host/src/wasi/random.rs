//! Pseudorandom numbers with a fixed seed, so that a replay is the same bit for bit.

use wasmtime::StoreContextMut;
use wasmtime::component::LinkerInstance;

use crate::store::{CallState, OverLimit};

/// Most bytes of one call.
const MAX_BYTES: usize = 64 << 10;

/// The seed of every call.
const SEED: u64 = 0x6970_753a_706f_6c69;

/// The generator of one call: SplitMix64 with a fixed seed.
#[derive(Clone, Debug)]
pub(crate) struct FixedRandom(u64);

impl Default for FixedRandom {
    fn default() -> Self {
        Self(SEED)
    }
}

impl FixedRandom {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn bytes(&mut self, length: u64) -> Result<Vec<u8>, OverLimit> {
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

/// `wasi:random/random` and `insecure`, whose functions have names of their own.
pub(super) fn numbers(
    instance: &mut LinkerInstance<'_, CallState>,
    bytes: &str,
    number: &str,
) -> wasmtime::Result<()> {
    instance.func_wrap(
        bytes,
        |mut store: StoreContextMut<'_, CallState>, (length,): (u64,)| {
            Ok((store.data_mut().random.bytes(length)?,))
        },
    )?;
    instance.func_wrap(number, |mut store: StoreContextMut<'_, CallState>, ()| {
        Ok((store.data_mut().random.next(),))
    })
}

/// `wasi:random/insecure-seed`.
pub(super) fn seed(instance: &mut LinkerInstance<'_, CallState>) -> wasmtime::Result<()> {
    instance.func_wrap(
        "insecure-seed",
        |mut store: StoreContextMut<'_, CallState>, ()| {
            let random = &mut store.data_mut().random;
            Ok(((random.next(), random.next()),))
        },
    )
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
