//! The random numbers of WASI, which are the same in every call.

use wasmtime::StoreContextMut;
use wasmtime::component::LinkerInstance;

use crate::call_state::CallState;

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
