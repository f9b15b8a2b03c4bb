//! Clocks that stand still, so that the same request gets the same answer.

use wasmtime::component::{ComponentType, LinkerInstance, Lower};

use super::streams::ready;
use crate::call_state::CallState;

/// A moment, counted from 1970.
#[derive(Clone, Copy, Debug, ComponentType, Lower)]
#[component(record)]
struct Datetime {
    seconds: u64,
    nanoseconds: u32,
}

const BEGIN: Datetime = Datetime {
    seconds: 0,
    nanoseconds: 0,
};

/// `wasi:clocks/monotonic-clock`: no sleep blocks a thread.
pub(super) fn monotonic(instance: &mut LinkerInstance<'_, CallState>) -> wasmtime::Result<()> {
    instance.func_wrap("now", |_, ()| Ok((0_u64,)))?;
    instance.func_wrap("resolution", |_, ()| Ok((1_u64,)))?;
    for name in ["subscribe-instant", "subscribe-duration"] {
        instance.func_wrap(name, |_, (_when,): (u64,)| Ok((ready(),)))?;
    }
    Ok(())
}

/// `wasi:clocks/wall-clock`.
pub(super) fn wall(instance: &mut LinkerInstance<'_, CallState>) -> wasmtime::Result<()> {
    instance.func_wrap("now", |_, ()| Ok((BEGIN,)))?;
    instance.func_wrap("resolution", |_, ()| {
        Ok((Datetime {
            seconds: 0,
            nanoseconds: 1,
        },))
    })
}
