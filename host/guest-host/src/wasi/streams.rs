//! Input streams at their end, output streams to the log, and a poll that is always ready: nothing
//! blocks.

use wasmtime::StoreContextMut;
use wasmtime::component::{ComponentType, LinkerInstance, Lower, Resource};

use crate::call_state::CallState;

/// A `pollable`, which is always ready.
pub(super) struct Ready;

/// An `error`, which never exists.
pub(super) struct Failure;

/// An `input-stream`, which is at its end.
pub(super) struct Input;

/// An `output-stream`, by its index.
pub(super) struct Output;

/// Bytes that a single write can have.
const WRITE_LIMIT: u64 = 4096;

#[derive(ComponentType, Lower)]
#[component(variant)]
enum StreamError {
    #[component(name = "last-operation-failed")]
    #[expect(dead_code, reason = "the type has it, and nothing here fails")]
    LastOperationFailed(Resource<Failure>),
    #[component(name = "closed")]
    Closed,
}

type Written = Result<(), StreamError>;

/// Creates a pollable, which is ready.
pub(super) fn ready() -> Resource<Ready> {
    Resource::new_own(0)
}

/// `wasi:cli/stdin`.
pub(super) fn stdin(instance: &mut LinkerInstance<'_, CallState>) -> wasmtime::Result<()> {
    instance.func_wrap("get-stdin", |_, ()| Ok((Resource::<Input>::new_own(0),)))
}

/// `wasi:cli/stdout` and `stderr`.
pub(super) fn output_stream(
    instance: &mut LinkerInstance<'_, CallState>,
    name: &str,
    stream: u32,
) -> wasmtime::Result<()> {
    instance.func_wrap(name, move |_, ()| {
        Ok((Resource::<Output>::new_own(stream),))
    })
}

/// `wasi:io/poll`.
pub(super) fn poll(instance: &mut LinkerInstance<'_, CallState>) -> wasmtime::Result<()> {
    type Pollable = (Resource<Ready>,);
    instance.func_wrap("[method]pollable.ready", |_, _: Pollable| Ok((true,)))?;
    instance.func_wrap("[method]pollable.block", |_, _: Pollable| Ok(()))?;
    instance.func_wrap("poll", |_, (list,): (Vec<Resource<Ready>>,)| {
        let all = (0_u32..).take(list.len()).collect::<Vec<_>>();
        Ok((all,))
    })
}

/// `wasi:io/streams`.
pub(super) fn streams(instance: &mut LinkerInstance<'_, CallState>) -> wasmtime::Result<()> {
    type Arguments = (Resource<Input>, u64);
    for name in ["read", "blocking-read"] {
        let name = format!("[method]input-stream.{name}");
        let end = |_: StoreContextMut<'_, CallState>, _: Arguments| {
            Ok((Err::<Vec<u8>, _>(StreamError::Closed),))
        };
        instance.func_wrap(&name, end)?;
    }
    for name in ["skip", "blocking-skip"] {
        let name = format!("[method]input-stream.{name}");
        let end = |_: StoreContextMut<'_, CallState>, _: Arguments| {
            Ok((Err::<u64, _>(StreamError::Closed),))
        };
        instance.func_wrap(&name, end)?;
    }
    instance.func_wrap(
        "[method]input-stream.subscribe",
        |_, _: (Resource<Input>,)| Ok((ready(),)),
    )?;
    output(instance)
}

fn output(instance: &mut LinkerInstance<'_, CallState>) -> wasmtime::Result<()> {
    type Stream = (Resource<Output>,);
    instance.func_wrap("[method]output-stream.check-write", |_, _: Stream| {
        Ok((Ok::<u64, StreamError>(WRITE_LIMIT),))
    })?;
    for name in ["write", "blocking-write-and-flush"] {
        let name = format!("[method]output-stream.{name}");
        let write = |mut store: StoreContextMut<'_, CallState>,
                     (stream, bytes): (Resource<Output>, Vec<u8>)| {
            store.data_mut().print(stream.rep(), &bytes);
            Ok((Written::Ok(()),))
        };
        instance.func_wrap(&name, write)?;
    }
    for name in ["flush", "blocking-flush"] {
        let name = format!("[method]output-stream.{name}");
        let flush = |_: StoreContextMut<'_, CallState>, _: Stream| Ok((Written::Ok(()),));
        instance.func_wrap(&name, flush)?;
    }
    instance.func_wrap("[method]output-stream.subscribe", |_, _: Stream| {
        Ok((ready(),))
    })
}
