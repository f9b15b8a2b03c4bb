//! What one call of a policy carries with it: its limits, and the log that it may write to.

use std::time::{Duration, Instant};

use ipu_text::sanitize;
use nix::time::{ClockId, clock_gettime};
use wasmtime::{ResourceLimiter, Store, UpdateDeadline};

use super::engine::GuestEngine;
use super::limits::Limits;
use super::model::Slot;
use super::wasi::{Numbers, Printed};

/// Lines of one call that reach the log.
const LOG_LINES: usize = 16;

/// Bytes of one line that reach the log.
const LOG_LINE: usize = 1024;

/// Bytes of what a line says of where in the policy it comes from.
const LOG_CONTEXT: usize = 64;

/// A policy asked for more than it may have. Ends the call, and is found again by its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{wanted} {unit} requested, and at most {limit} are allowed")]
pub struct OverLimit {
    /// What was asked for.
    pub wanted: usize,
    /// What is allowed.
    pub limit: usize,
    /// What is counted: bytes of memory, or elements of a table.
    pub unit: &'static str,
}

/// The part of its deadline for which a call must have run by then to have missed it. A guest has a deadline of many
/// times what it needs, while one that never ends runs for as much as this wherever there is some time left for it.
const CHARGED: u32 = 4;

/// Others had the processor while the call should have run. Ends the call, and is found again by its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it had the processor for {ran:?} of {lasted:?}")]
pub struct Starved {
    /// How long the call ran.
    pub ran: Duration,
    /// How long it lasted.
    pub lasted: Duration,
}

/// Whether a call goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    /// It has time left.
    Not,
    /// It ran for as long as it may.
    Deadline,
    /// Others had the processor for so long that nobody waits any longer.
    Starved(Starved),
}

/// A deadline is of the time that the call itself runs, so that a neighbour makes nobody miss it.
fn due(limits: &Limits, ran: Duration, lasted: Duration) -> Due {
    let deadline = limits.deadline;
    let is_over = lasted >= deadline.saturating_mul(limits.patience);
    if ran >= deadline || is_over && ran >= deadline / CHARGED {
        Due::Deadline
    } else if is_over {
        Due::Starved(Starved { ran, lasted })
    } else {
        Due::Not
    }
}

/// How long this thread has run; without such a clock, none.
fn thread_time() -> Option<Duration> {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID);
    time.ok().map(Duration::from)
}

/// How loud a line of a policy is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LogLevel {
    Trace,
    Debug,
    Info,
    Warn,
    Error,
}

/// The state of one call.
pub(super) struct CallState {
    slot: Slot,
    memory: usize,
    memory_limit: usize,
    table_limit: usize,
    lines: usize,
    printed: Printed,
    /// What looks random to the guest.
    pub(super) numbers: Numbers,
}

impl CallState {
    /// A store for one call of a policy of `slot` by this thread, whose deadline begins now.
    pub(super) fn store(engine: &GuestEngine, slot: Slot) -> Store<Self> {
        let state = Self {
            slot,
            memory: 0,
            memory_limit: engine.limits.memory,
            table_limit: engine.limits.table_elements,
            lines: 0,
            printed: Printed::default(),
            numbers: Numbers::default(),
        };
        let mut store = Store::new(&engine.engine, state);
        store.limiter(|state| state);
        let (limits, clock) = (engine.limits, engine.clock.clone());
        let (begun, ran_before) = (Instant::now(), thread_time());
        store.set_epoch_deadline(1);
        store.epoch_deadline_callback(move |_| {
            let lasted = begun.elapsed();
            let ran = thread_time().zip(ran_before);
            let ran = ran.map_or(lasted, |(now, before)| now.saturating_sub(before));
            match due(&limits, ran, lasted) {
                Due::Not => {}
                Due::Deadline => return Ok(UpdateDeadline::Interrupt),
                Due::Starved(starved) => return Err(starved.into()),
            }
            clock.hurry();
            // Others on the same core go first: theirs are mostly done in a moment. A call that they have held up
            // already takes its share.
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

    /// Most memory that the call's instance has had, in bytes.
    pub(super) fn memory(&self) -> usize {
        self.memory
    }

    /// Takes in what the policy prints; every whole line goes to the log.
    pub(super) fn print(&mut self, stream: u32, bytes: &[u8]) {
        let room = LOG_LINES.saturating_sub(self.lines);
        for line in self.printed.print(stream, bytes, room) {
            self.log(Printed::level(stream), "", &line);
        }
    }

    /// Writes one line of the policy to the operator's log, within the limits. The context is a word of the policy's own.
    pub(super) fn log(&mut self, level: LogLevel, context: &str, message: &str) {
        self.lines += 1;
        if self.lines > LOG_LINES {
            return;
        }
        let line = sanitize(message, LOG_LINE);
        let policy = self.slot.world();
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

/// A line that was begun is told when the call is over.
impl Drop for CallState {
    fn drop(&mut self) {
        for (stream, line) in self.printed.rest() {
            self.log(Printed::level(stream), "", &line);
        }
    }
}

impl ResourceLimiter for CallState {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let wanted = self.memory.saturating_add(desired.saturating_sub(current));
        if wanted > self.memory_limit {
            return Err(OverLimit {
                wanted,
                limit: self.memory_limit,
                unit: "bytes of memory",
            }
            .into());
        }
        self.memory = wanted;
        Ok(true)
    }

    fn table_growing(
        &mut self,
        _current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        if desired > self.table_limit {
            return Err(OverLimit {
                wanted: desired,
                limit: self.table_limit,
                unit: "elements of a table",
            }
            .into());
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_late_by_the_time_that_it_runs_itself() {
        let second = Duration::from_secs(1);
        let starved = |ran, lasted| Due::Starved(Starved { ran, lasted });
        for (ran, lasted, expected) in [
            (second / 2, second / 2, Due::Not),
            (second, second, Due::Deadline),
            // A neighbour has the processor for half the time.
            (second * 3 / 5, second * 6 / 5, Due::Not),
            (second, second * 2, Due::Deadline),
            // One that never ends, beside many neighbours.
            (second / 2, second * 2, Due::Deadline),
            (second / 10, second * 19 / 10, Due::Not),
            (second / 10, second * 2, starved(second / 10, second * 2)),
        ] {
            let limits = Limits {
                deadline: second,
                patience: 2,
                ..Limits::default()
            };
            assert_eq!(due(&limits, ran, lasted), expected, "{ran:?} of {lasted:?}");
            let endless = Limits {
                patience: u32::MAX,
                ..limits
            };
            let of_its_own = if ran >= second {
                Due::Deadline
            } else {
                Due::Not
            };
            assert_eq!(due(&endless, ran, lasted), of_its_own);
        }
    }

    #[test]
    fn the_time_of_a_thread_goes_on_while_it_runs() {
        let before = thread_time().unwrap();
        while thread_time().unwrap() <= before {}
    }
}
