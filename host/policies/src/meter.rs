//! Counts what becomes of the calls of one version of a policy, and which of them may roll it back.

use std::collections::VecDeque;

use ipu_api::ipupolicy::{CallCounts, ShadowCounts};
use parking_lot::{Mutex, MutexGuard};

use super::commit::SAMPLES;
use super::report::Counts;

/// Calls after which the share of failures is judged by these alone.
const RECENT: usize = 100;

/// Counts what becomes of the calls of one version.
#[derive(Debug, Default)]
pub struct Meter {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    calls: CallCounts,
    /// Whether each of the last calls failed.
    recent: VecDeque<bool>,
    shadow: ShadowCounts,
}

/// How an answer compares with the one that counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Compared {
    /// They are equal.
    Equal,
    /// They differ, in this way.
    Different(String),
    /// There is none.
    Failed,
    /// It was not asked, because too many calls were under way.
    Skipped,
}

impl Meter {
    /// A call whose answer is used gave one, or none that could be used. It rolls the version back only where `counts`: not
    /// where anybody may have made it.
    pub fn called(&self, failed: bool, counts: bool) {
        let mut state = self.state();
        if failed {
            state.calls.failed += 1;
        } else {
            state.calls.answered += 1;
        }
        if counts {
            state.recent.push_back(failed);
        }
        if state.recent.len() > RECENT {
            state.recent.pop_front();
        }
    }

    /// An answer was compared.
    pub fn compared(&self, how: Compared) {
        let shadow = &mut self.state().shadow;
        match how {
            Compared::Equal => shadow.equal += 1,
            Compared::Failed => shadow.failed += 1,
            Compared::Skipped => shadow.skipped += 1,
            Compared::Different(sample) => {
                shadow.different += 1;
                if shadow.samples.len() < SAMPLES && !shadow.samples.contains(&sample) {
                    shadow.samples.push(sample);
                }
            }
        }
    }

    /// What was counted so far.
    pub fn counts(&self) -> Counts {
        let state = self.state();
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

    fn state(&self) -> MutexGuard<'_, State> {
        // Each change of a count is whole by itself.
        self.state.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_of_failures_is_that_of_the_last_hundred_calls() {
        let meter = Meter::default();
        for call in 0..250 {
            meter.called(call >= 240, true);
        }
        let counts = meter.counts();
        let calls = |answered, failed| CallCounts { answered, failed };
        assert_eq!(counts.calls, calls(240, 10));
        assert_eq!(counts.recent, calls(90, 10));
    }

    #[test]
    fn what_anybody_may_have_called_is_told_and_rolls_nothing_back() {
        let meter = Meter::default();
        for call in 0..300 {
            meter.called(call % 3 > 0, call % 3 == 0);
        }
        let counts = meter.counts();
        let calls = |answered, failed| CallCounts { answered, failed };
        assert_eq!(counts.calls, calls(100, 200));
        assert_eq!(counts.recent, calls(100, 0));
    }

    #[test]
    fn a_difference_is_shown_once_and_there_are_few() {
        let meter = Meter::default();
        for sample in ["a", "a", "b", "c", "d"] {
            meter.compared(Compared::Different(sample.to_owned()));
        }
        let shadow = meter.counts().shadow;
        assert_eq!((shadow.different, shadow.samples.len()), (5, SAMPLES));
    }
}
