//! The state of one call: its deadline, its memory and its log.

use std::time::{Duration, Instant};

use ipu_api::ipupolicy::Hook;
use ipu_text::sanitize;
use nix::time::{ClockId, clock_gettime};
use wasmtime::{Store, UpdateDeadline};

use super::engine::GuestEngine;
use super::fixed_random::FixedRandom;
use super::limits::Limits;
use super::memory_limiter::MemoryLimiter;
use super::output_lines::{LogLevel, OutputLines};

/// Most log lines of one call.
const LOG_LINES: usize = 16;

/// Longest log line, in bytes.
const LOG_LINE: usize = 1024;

/// Longest context of a log line, in bytes.
const LOG_CONTEXT: usize = 64;

/// Fraction of its deadline that a call must have run for a timeout to be its own fault. A deadline
/// is many times what a guest needs, and a guest that never ends reaches the fraction on any busy
/// machine.
const MIN_RUN_FRACTION: u32 = 4;

/// The call got too little CPU time. It ends the call as a typed error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it had the processor for {ran:?} of {lasted:?}")]
pub struct Starved {
    /// CPU time of the call.
    pub ran: Duration,
    /// Duration of the call.
    pub lasted: Duration,
}

/// Status of a running call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TimeStatus {
    /// It has time left.
    Running,
    /// It exceeded its deadline.
    DeadlineExceeded,
    /// It got too little CPU time.
    Starved(Starved),
}

/// Checks the deadline. It counts CPU time, so that a neighbour does not make a call miss it.
fn time_status(limits: &Limits, ran: Duration, lasted: Duration) -> TimeStatus {
    let deadline = limits.deadline;
    let is_timed_out = lasted >= deadline.saturating_mul(limits.wall_time_factor);
    if ran >= deadline || is_timed_out && ran >= deadline / MIN_RUN_FRACTION {
        TimeStatus::DeadlineExceeded
    } else if is_timed_out {
        TimeStatus::Starved(Starved { ran, lasted })
    } else {
        TimeStatus::Running
    }
}

/// Returns the CPU time of this thread. `None` without such a clock.
fn thread_time() -> Option<Duration> {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID);
    time.ok().map(Duration::from)
}

/// The state of one call.
pub(super) struct CallState {
    hook: Hook,
    memory: MemoryLimiter,
    lines: usize,
    output: OutputLines,
    /// The random numbers of the guest.
    pub(super) random: FixedRandom,
}

impl CallState {
    /// Creates the store for one call on this thread, and starts its deadline.
    pub(super) fn store(engine: &GuestEngine, hook: Hook) -> Store<Self> {
        let state = Self {
            hook,
            memory: MemoryLimiter::new(&engine.limits),
            lines: 0,
            output: OutputLines::default(),
            random: FixedRandom::default(),
        };
        let mut store = Store::new(&engine.engine, state);
        store.limiter(|state| &mut state.memory);
        let (limits, clock) = (engine.limits, engine.clock.clone());
        let (begun, ran_before) = (Instant::now(), thread_time());
        store.set_epoch_deadline(1);
        store.epoch_deadline_callback(move |_| {
            let lasted = begun.elapsed();
            let ran = thread_time().zip(ran_before);
            let ran = ran.map_or(lasted, |(now, before)| now.saturating_sub(before));
            match time_status(&limits, ran, lasted) {
                TimeStatus::Running => {}
                TimeStatus::DeadlineExceeded => return Ok(UpdateDeadline::Interrupt),
                TimeStatus::Starved(starved) => return Err(starved.into()),
            }
            clock.fast_tick();
            // Yields the core to other calls, most of which are short. A call that was delayed past
            // its deadline does not yield any more.
            if lasted < limits.deadline {
                std::thread::yield_now();
            }
            Ok(UpdateDeadline::Continue(1))
        });
        if let Some(budget) = engine.fuel {
            store
                .set_fuel(budget)
                .expect("the engine was made to count fuel");
        }
        store.set_hostcall_fuel(engine.limits.output.saturating_mul(2));
        store
    }

    /// Returns the peak memory of the instance, in bytes.
    pub(super) fn memory(&self) -> usize {
        self.memory.peak()
    }

    /// Logs every complete line of the output.
    pub(super) fn print(&mut self, stream: u32, bytes: &[u8]) {
        let limit = LOG_LINES.saturating_sub(self.lines);
        for line in self.output.write(stream, bytes, limit) {
            self.log(OutputLines::level(stream), "", &line);
        }
    }

    /// Writes one line of the guest to the log of the operator, within the limits. The guest sets
    /// the context.
    pub(super) fn log(&mut self, level: LogLevel, context: &str, message: &str) {
        self.lines += 1;
        if self.lines > LOG_LINES {
            return;
        }
        let line = sanitize(message, LOG_LINE);
        let policy = self.hook.world();
        let context = (!context.is_empty()).then(|| sanitize(context, LOG_CONTEXT));
        match level {
            LogLevel::Trace => tracing::trace!(policy, context, "{line}"),
            LogLevel::Debug => tracing::debug!(policy, context, "{line}"),
            LogLevel::Info => tracing::info!(policy, context, "{line}"),
            LogLevel::Warn => tracing::warn!(policy, context, "{line}"),
            LogLevel::Error => tracing::error!(policy, context, "{line}"),
        }
    }
}

/// Logs the incomplete lines at the end of the call.
impl Drop for CallState {
    fn drop(&mut self) {
        for (stream, line) in self.output.take_incomplete() {
            self.log(OutputLines::level(stream), "", &line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_counts_the_cpu_time_of_the_call() {
        let second = Duration::from_secs(1);
        let starved = |ran, lasted| TimeStatus::Starved(Starved { ran, lasted });
        for (ran, lasted, expected) in [
            (second / 2, second / 2, TimeStatus::Running),
            (second, second, TimeStatus::DeadlineExceeded),
            // A neighbour has the processor for half the time.
            (second * 3 / 5, second * 6 / 5, TimeStatus::Running),
            (second, second * 2, TimeStatus::DeadlineExceeded),
            // One that never ends, beside many neighbours.
            (second / 2, second * 2, TimeStatus::DeadlineExceeded),
            (second / 10, second * 19 / 10, TimeStatus::Running),
            (second / 10, second * 2, starved(second / 10, second * 2)),
        ] {
            let limits = Limits {
                deadline: second,
                wall_time_factor: 2,
                ..Limits::default()
            };
            assert_eq!(
                time_status(&limits, ran, lasted),
                expected,
                "{ran:?} of {lasted:?}"
            );
            let endless = Limits {
                wall_time_factor: u32::MAX,
                ..limits
            };
            let of_its_own = if ran >= second {
                TimeStatus::DeadlineExceeded
            } else {
                TimeStatus::Running
            };
            assert_eq!(time_status(&endless, ran, lasted), of_its_own);
        }
    }

    #[test]
    fn the_cpu_time_of_a_thread_increases() {
        let before = thread_time().unwrap();
        while thread_time().unwrap() <= before {}
    }
}
