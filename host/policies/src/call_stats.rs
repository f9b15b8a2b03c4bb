//! Call statistics of one version of a policy, by which the operator reports, promotes and rolls back.

use std::collections::VecDeque;

use ipu_api::ipupolicy::{CallCounts, ShadowCounts};
use parking_lot::Mutex;

use super::report::Counts;
use super::rollout::SAMPLES;

/// The last calls, of which the failure rate counts.
const RECENT: usize = 100;

/// Call statistics of one version.
#[derive(Debug, Default)]
pub struct CallStats {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    calls: CallCounts,
    /// For each of the last calls, whether it failed.
    recent: VecDeque<bool>,
    shadow: ShadowCounts,
}

/// Comparison of the answer of a shadow policy with the enforced one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// The answers are equal.
    Equal,
    /// The answers differ, as described.
    Different(String),
    /// The guest of the shadow policy gave no answer.
    Failed,
    /// The shadow policy was not called, because too many calls were under way.
    Skipped,
}

impl CallStats {
    /// Records an enforced call. `is_trusted`: it counts for a rollback. A call that anyone can cause does not.
    pub fn record_call(&self, failed: bool, is_trusted: bool) {
        let mut state = self.state.lock();
        if failed {
            state.calls.failed += 1;
        } else {
            state.calls.answered += 1;
        }
        if is_trusted {
            state.recent.push_back(failed);
        }
        if state.recent.len() > RECENT {
            state.recent.pop_front();
        }
    }

    /// Records a comparison.
    pub fn record_comparison(&self, comparison: Comparison) {
        let shadow = &mut self.state.lock().shadow;
        match comparison {
            Comparison::Equal => shadow.equal += 1,
            Comparison::Failed => shadow.failed += 1,
            Comparison::Skipped => shadow.skipped += 1,
            Comparison::Different(sample) => {
                shadow.different += 1;
                if shadow.samples.len() < SAMPLES && !shadow.samples.contains(&sample) {
                    shadow.samples.push(sample);
                }
            }
        }
    }

    /// Returns the counts so far.
    pub fn counts(&self) -> Counts {
        let state = self.state.lock();
        let failed = state.recent.iter().filter(|failed| **failed).count();
        let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        Counts {
            calls: state.calls,
            recent: CallCounts {
                answered: count(state.recent.len() - failed),
                failed: count(failed),
            },
            shadow: state.shadow.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_failure_rate_is_that_of_the_last_hundred_calls() {
        let stats = CallStats::default();
        for call in 0..250 {
            stats.record_call(call >= 240, true);
        }
        let counts = stats.counts();
        let calls = |answered, failed| CallCounts { answered, failed };
        assert_eq!(counts.calls, calls(240, 10));
        assert_eq!(counts.recent, calls(90, 10));
    }

    #[test]
    fn an_untrusted_call_is_counted_and_does_not_count_for_a_rollback() {
        let stats = CallStats::default();
        for call in 0..300 {
            stats.record_call(call % 3 > 0, call % 3 == 0);
        }
        let counts = stats.counts();
        let calls = |answered, failed| CallCounts { answered, failed };
        assert_eq!(counts.calls, calls(100, 200));
        assert_eq!(counts.recent, calls(100, 0));
    }

    #[test]
    fn samples_are_distinct_and_few() {
        let stats = CallStats::default();
        for sample in ["a", "a", "b", "c", "d"] {
            stats.record_comparison(Comparison::Different(sample.to_owned()));
        }
        let shadow = stats.counts().shadow;
        assert_eq!((shadow.different, shadow.samples.len()), (5, SAMPLES));
    }
}
