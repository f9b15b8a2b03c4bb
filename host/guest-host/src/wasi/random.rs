//! Numbers that look random and are the same in every call, so that a replay is the same bit for bit.

use wasmtime::StoreContextMut;
use wasmtime::component::LinkerInstance;

use crate::store::{CallState, OverLimit};

/// Most bytes that are given at once.
const AT_ONCE: usize = 64 << 10;

/// Where every call begins.
const SEED: u64 = 0x6970_753a_706f_6c69;

/// The numbers of one call: SplitMix64 from a fixed seed.
#[derive(Clone, Debug)]
pub(crate) struct Numbers(u64);

impl Default for Numbers {
    fn default() -> Self {
        Self(SEED)
    }
}

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn bytes(&mut self, length: u64) -> Result<Vec<u8>, OverLimit> {
        let wanted = usize::try_from(length).unwrap_or(usize::MAX);
        if wanted > AT_ONCE {
            return Err(OverLimit {
                wanted,
                limit: AT_ONCE,
                unit: "random bytes at once",
            });
        }
        let words = std::iter::repeat_with(|| self.next().to_le_bytes());
        Ok(words.flatten().take(wanted).collect())
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
            Ok((store.data_mut().numbers.bytes(length)?,))
        },
    )?;
    instance.func_wrap(number, |mut store: StoreContextMut<'_, CallState>, ()| {
        Ok((store.data_mut().numbers.next(),))
    })
}

/// `wasi:random/insecure-seed`.
pub(super) fn seed(instance: &mut LinkerInstance<'_, CallState>) -> wasmtime::Result<()> {
    instance.func_wrap(
        "insecure-seed",
        |mut store: StoreContextMut<'_, CallState>, ()| {
            let numbers = &mut store.data_mut().numbers;
            Ok(((numbers.next(), numbers.next()),))
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_meets_the_same_numbers_and_none_too_many() {
        let first = Numbers::default().bytes(20).unwrap();
        assert_eq!(first, Numbers::default().bytes(20).unwrap());
        assert_eq!(first.len(), 20);
        let mut numbers = Numbers::default();
        assert_ne!(numbers.next(), numbers.next());
        assert!(numbers.bytes(AT_ONCE as u64).is_ok());
        assert_eq!(numbers.bytes(u64::MAX).unwrap_err().limit, 65_536);
    }
}
