//! Threads with a large stack, for code that recurses deeply.

use std::io;
use std::thread::{self, Builder};

use ipu_runtime::panics::caught_now;

/// Size of the stack, in bytes. The system allocates only the pages in use.
const STACK: usize = 256 << 20;

/// Runs the work on such a thread and waits for it.
pub(super) fn run<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, String> {
    thread::scope(|scope| {
        let working = builder().spawn_scoped(scope, || caught_now(work));
        let worked = working.map_err(|error| error.to_string())?.join();
        let panicked = "the library that reads it panicked";
        worked
            .ok()
            .and_then(Result::ok)
            .ok_or_else(|| panicked.to_owned())
    })
}

/// Starts the work on such a thread.
pub(super) fn spawn(work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let work = || drop(caught_now(work));
    builder().spawn(work).map(drop)
}

fn builder() -> Builder {
    Builder::new()
        .name("conditions".to_owned())
        .stack_size(STACK)
}
