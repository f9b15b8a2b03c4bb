//! The asynchronous runtime of a process, whose end waits for no thread that hangs.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

/// Time that the end of a process leaves to threads with blocking work. A thread that reads a
/// network volume whose server is away does not end, and without a limit the kubelet would kill the
/// process after the Pod's grace period.
const BLOCKING_END: Duration = Duration::from_secs(2);

/// Does the work of a process within a runtime, and then ends the runtime, also after a panic.
pub fn run<T>(work: impl FnOnce(&Runtime) -> T) -> io::Result<T> {
    run_within(BLOCKING_END, work)
}

fn run_within<T>(end: Duration, work: impl FnOnce(&Runtime) -> T) -> io::Result<T> {
    let runtime = Builder::new_multi_thread().enable_all().build()?;
    let done = {
        let _within = runtime.enter();
        catch_unwind(AssertUnwindSafe(|| work(&runtime)))
    };
    runtime.shutdown_timeout(end);
    Ok(done.unwrap_or_else(|cause| resume_unwind(cause)))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// Starts a thread that does not end before the test drops the sender, and waits until it runs.
    fn hang(runtime: &Runtime) -> mpsc::Sender<()> {
        let (answer, volume) = mpsc::channel();
        let (started, is_running) = mpsc::channel();
        runtime.spawn_blocking(move || {
            started.send(()).unwrap();
            let _ = volume.recv();
        });
        is_running.recv().unwrap();
        answer
    }

    #[test]
    fn a_thread_that_hangs_does_not_keep_the_process() {
        let end = Duration::from_millis(1);
        let answer = run_within(end, hang).unwrap();
        drop(answer);
        let mut answer = None;
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let panicking = |runtime: &Runtime| {
                answer = Some(hang(runtime));
                assert!(answer.is_none(), "a fault of ours");
            };
            run_within(end, panicking)
        }));
        assert!(panicked.is_err() && answer.is_some());
    }
}
