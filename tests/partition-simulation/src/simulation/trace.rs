//! The trace of a run, one event per line. It is recorded only on request.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt::Display;
use std::rc::Rc;

use ipu_ledger::step::Step;

/// Recorded part of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Detail {
    /// Nothing: for test runs, where it would take too long.
    Nothing,
    /// The last lines, and the hash of all.
    Last(usize),
    /// Every line, and the hash of all.
    Everything,
}

/// The trace of a run. Clones share it, so that it outlives a run that fails.
#[derive(Clone, Debug)]
pub(super) struct Trace {
    detail: Detail,
    lines: Rc<RefCell<Lines>>,
}

#[derive(Debug, Default)]
struct Lines {
    kept: VecDeque<String>,
    /// FNV-1a over every line.
    hash: u64,
}

impl Trace {
    pub(super) fn new(detail: Detail) -> Self {
        Trace {
            detail,
            lines: Rc::default(),
        }
    }

    /// Adds a line, which is formatted only where it is recorded.
    pub(super) fn say<T: Display>(&self, now: u64, line: impl FnOnce() -> T) {
        let most = match self.detail {
            Detail::Nothing => return,
            Detail::Last(most) => most,
            Detail::Everything => usize::MAX,
        };
        let line = format!("{:>9} s  {}", Seconds(now), line());
        let mut lines = self.lines.borrow_mut();
        for byte in line.bytes() {
            lines.hash = (lines.hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
        }
        lines.kept.push_back(line);
        if lines.kept.len() > most {
            lines.kept.pop_front();
        }
    }

    /// The recorded lines.
    pub(super) fn text(&self) -> String {
        let lines = self.lines.borrow();
        let each: Vec<&str> = lines.kept.iter().map(String::as_str).collect();
        each.join("\n")
    }

    /// A hash, equal for equal lines.
    pub(super) fn hash(&self) -> u64 {
        self.lines.borrow().hash
    }
}

/// Milliseconds, written as seconds.
struct Seconds(u64);

impl Display for Seconds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(&format!("{}.{:03}", self.0 / 1_000, self.0 % 1_000))
    }
}

/// A step in one line.
pub(crate) fn brief(step: &Step) -> String {
    match step {
        Step::Write(status) | Step::Record(status, _) => {
            let kind = match step {
                Step::Record(_, intent) => format!("record {intent:?}"),
                _ => "write".to_owned(),
            };
            let attempts: Vec<String> = status
                .attempts
                .iter()
                .map(|one| format!("{} {:?}", one.id, one.outcome))
                .collect();
            format!(
                "{kind}: {:?} {:?} gen {} {attempts:?} {}",
                status.phase,
                status.partition_id,
                status.generation,
                status.message.as_deref().unwrap_or_default()
            )
        }
        Step::Create(attempt)
        | Step::ReadState(attempt)
        | Step::Reset(attempt)
        | Step::Remove { attempt, .. } => {
            let (id, on) = (&attempt.id, &attempt.controller.name);
            let verb = match step {
                Step::Create(_) => "create",
                Step::ReadState(_) => "what is",
                Step::Reset(_) => "reset",
                _ => "remove",
            };
            format!("{verb} {id} on {on}")
        }
        other => format!("{other:?}"),
    }
}
