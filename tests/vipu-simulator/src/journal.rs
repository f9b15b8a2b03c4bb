//! Pure: the calls to the server in their order, and how each of them ended.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::faults::Method;

/// Number of calls that are kept. Older ones are dropped.
const CALLS_MAX: usize = 100_000;

/// One call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// Its number, from 1.
    pub number: u64,
    /// The method.
    pub method: Method,
    /// The partition of the call. Empty if the call is for no partition.
    pub partition: String,
    /// The time of its start.
    pub began: Timestamp,
    /// The time of its end. Missing: it is in progress.
    pub ended: Option<Timestamp>,
    /// `ok`, `lost` (done, but no reply was sent), `left` (the caller went away), or the refusal.
    pub outcome: Option<String>,
}

/// Every call so far.
#[derive(Clone, Debug, Default)]
pub struct Journal {
    last: u64,
    calls: std::collections::VecDeque<Call>,
}

impl Journal {
    /// Records a new call. Returns its number.
    pub fn begin(&mut self, method: Method, partition: &str, now: Timestamp) -> u64 {
        self.last += 1;
        self.calls.push_back(Call {
            number: self.last,
            method,
            partition: partition.to_owned(),
            began: now,
            ended: None,
            outcome: None,
        });
        if self.calls.len() > CALLS_MAX {
            self.calls.pop_front();
        }
        self.last
    }

    /// Records how a call ended. Only the first record counts.
    pub fn end(&mut self, number: u64, outcome: &str, now: Timestamp) {
        let call = self
            .calls
            .iter_mut()
            .rev()
            .find(|call| call.number == number);
        if let Some(call) = call
            && call.outcome.is_none()
        {
            call.ended = Some(now);
            call.outcome = Some(outcome.to_owned());
        }
    }

    /// The calls after number `after`, oldest first.
    pub fn after(&self, after: u64) -> Vec<Call> {
        self.calls
            .iter()
            .filter(|call| call.number > after)
            .cloned()
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_listed_in_order_and_end_once() {
        let mut journal = Journal::default();
        let at = |second| Timestamp::from_second(second).unwrap();
        let first = journal.begin(Method::CreatePartition, "p-1", at(1));
        let second = journal.begin(Method::CreatePartition, "p-2", at(2));
        journal.end(first, "lost", at(3));
        journal.end(first, "left", at(4));
        let calls = journal.after(0);
        assert_eq!(calls[0].outcome.as_deref(), Some("lost"));
        assert_eq!(calls[0].ended, Some(at(3)));
        assert_eq!(calls[1].outcome, None);
        assert_eq!(journal.after(first), [calls[1].clone()]);
        assert!(journal.after(second).is_empty());
    }
}
