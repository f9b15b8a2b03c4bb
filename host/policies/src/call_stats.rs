//! Call statistics of one version of a policy, by which the operator reports, promotes and rolls back.

use std::collections::{BTreeSet, VecDeque};

use ipu_api::ipupolicy::{CallCounts, ShadowCounts};
use ipu_guest_host::GuestError;
use parking_lot::Mutex;

use super::matcher::EvaluationError;
use super::report::Counts;
use super::rollout::{FAILING_NAMESPACES, SAMPLES};

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
    /// For each of the last calls, the namespace of the request if the call failed.
    recent: VecDeque<Option<Box<str>>>,
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
    /// The shadow policy was not called, or had no part in the failure: too many calls were under way.
    Skipped,
}

impl Comparison {
    /// A call without an answer. Only a failure of the guest counts as one: a busy process must not prevent a promotion.
    pub fn without_answer(error: &GuestError) -> Self {
        if error.is_failure() {
            Self::Failed
        } else {
            Self::Skipped
        }
    }

    /// A request for which `spec.match` could not be evaluated.
    pub fn without_match(error: &EvaluationError) -> Self {
        if error.is_transient {
            Self::Skipped
        } else {
            Self::Failed
        }
    }
}

impl CallStats {
    /// Records an enforced call. `counts_in`: the namespace of the request, if the call counts for a rollback. A call that
    /// anyone can cause, or that leaves nothing behind, does not.
    pub fn record_call(&self, failed: bool, counts_in: Option<&str>) {
        let mut state = self.state.lock();
        if failed {
            state.calls.failed += 1;
        } else {
            state.calls.answered += 1;
        }
        if let Some(namespace) = counts_in {
            state.recent.push_back(failed.then(|| namespace.into()));
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
        let failed = state.recent.iter().flatten().count();
        let mut failing_namespaces = BTreeSet::new();
        for namespace in state.recent.iter().flatten() {
            if failing_namespaces.len() < FAILING_NAMESPACES {
                failing_namespaces.insert(namespace.to_string());
            }
        }
        let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        Counts {
            calls: state.calls,
            recent: CallCounts {
                answered: count(state.recent.len() - failed),
                failed: count(failed),
            },
            failing_namespaces,
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
            stats.record_call(call >= 240, Some("team"));
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
            stats.record_call(call % 3 > 0, (call % 3 == 0).then_some("team"));
        }
        let counts = stats.counts();
        let calls = |answered, failed| CallCounts { answered, failed };
        assert_eq!(counts.calls, calls(100, 200));
        assert_eq!(counts.recent, calls(100, 0));
    }

    #[test]
    fn failing_namespaces_are_few_and_those_of_the_last_calls() {
        let stats = CallStats::default();
        let failing = || stats.counts().failing_namespaces;
        for namespace in ["a", "a", "b", "c", "d"] {
            stats.record_call(true, Some(namespace));
        }
        assert_eq!(failing(), ["a", "b", "c"].map(str::to_owned).into());
        for _ in 0..RECENT {
            stats.record_call(false, Some("a"));
        }
        assert!(failing().is_empty());
    }

    #[test]
    fn a_busy_process_is_no_failure_of_a_shadow_policy() {
        let busy = GuestError::Busy {
            hook: ipu_api::ipupolicy::Hook::Validation,
            waited: std::time::Duration::from_secs(5),
        };
        assert_eq!(Comparison::without_answer(&busy), Comparison::Skipped);
        let own = GuestError::Failed("a fault of its own".to_owned());
        assert_eq!(Comparison::without_answer(&own), Comparison::Failed);
        let unmatched = |is_transient| EvaluationError {
            name: "mine".to_owned(),
            reason: "late".to_owned(),
            is_transient,
        };
        assert_eq!(
            Comparison::without_match(&unmatched(true)),
            Comparison::Skipped
        );
        assert_eq!(
            Comparison::without_match(&unmatched(false)),
            Comparison::Failed
        );
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
