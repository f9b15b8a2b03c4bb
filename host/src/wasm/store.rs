//! What one call of a policy carries with it: its limits, and the log that it may write to.

use std::time::Instant;

use wasmtime::{ResourceLimiter, Store, UpdateDeadline};

use super::engine::GuestEngine;
use super::model::Slot;
use super::wasi::{Numbers, Printed};

/// Lines of one call that reach the log.
const LOG_LINES: usize = 16;

/// Bytes of one line that reach the log.
const LOG_LINE: usize = 1024;

/// A policy asked for more than it may have. Ends the call, and is found again by its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{wanted} {unit} wanted where at most {limit} are allowed")]
pub struct OverLimit {
    /// What was asked for.
    pub wanted: usize,
    /// What is allowed.
    pub limit: usize,
    /// What is counted: bytes of memory, or elements of a table.
    pub unit: &'static str,
}

/// How loud a line of a policy is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LogLevel {
    Debug,
    Info,
    Warn,
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
    /// A store for one call of a policy of `slot`, whose deadline begins now.
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
        let (ends, clock) = (
            Instant::now() + engine.limits.deadline,
            engine.clock.clone(),
        );
        store.set_epoch_deadline(1);
        store.epoch_deadline_callback(move |_| {
            if Instant::now() >= ends {
                return Ok(UpdateDeadline::Interrupt);
            }
            clock.hurry();
            // Others on the same core go first: theirs are mostly done in a moment.
            std::thread::yield_now();
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
        for line in self.printed.print(stream, bytes) {
            self.log(Printed::level(stream), &line);
        }
    }

    /// Writes one line of the policy to the operator's log, within the limits.
    pub(super) fn log(&mut self, level: LogLevel, message: &str) {
        self.lines += 1;
        if self.lines > LOG_LINES {
            return;
        }
        let line = shortened(message);
        let policy = self.slot.world();
        match level {
            LogLevel::Debug => tracing::debug!(policy, "{line}"),
            LogLevel::Info => tracing::info!(policy, "{line}"),
            LogLevel::Warn => tracing::warn!(policy, "{line}"),
        }
    }
}

/// A line that was begun is told when the call is over.
impl Drop for CallState {
    fn drop(&mut self) {
        for (stream, line) in self.printed.rest() {
            self.log(Printed::level(stream), &line);
        }
    }
}

/// The first bytes of a line, up to a whole character; control characters would let a policy write
/// lines that look like the operator's own.
fn shortened(message: &str) -> String {
    message[..message.floor_char_boundary(LOG_LINE)]
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
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
    fn a_line_is_cut_at_a_character_and_stays_one_line() {
        let long = format!("a{}", "é".repeat(1000));
        let cut = shortened(&long);
        assert_eq!(cut.len(), 1023);
        assert!(long.starts_with(&cut));
        assert_eq!(shortened("one\ntwo\u{1b}[31m"), "one two [31m");
    }
}
