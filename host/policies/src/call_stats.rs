//! Call statistics of one version of a policy, by which the operator reports, promotes and rolls
//! back.

use std::collections::{BTreeSet, VecDeque};

use ipu_api::ipupolicy::{CallCounts, ShadowCounts};
use ipu_guest_host::GuestError;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use super::matcher::{EvaluationError, Fault};
use super::report::Counts;
use super::rollout::{FAILING_NAMESPACES, FAILING_USERS, SAMPLES};

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
    /// For each of the last calls, who caused it if it failed.
    recent: VecDeque<Option<Failure>>,
    shadow: ShadowCounts,
}

#[derive(Debug)]
struct Failure {
    namespace: Box<str>,
    user: String,
}

/// Who caused a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Requester<'a> {
    /// Namespace of the request.
    pub namespace: &'a str,
    /// Name of the user. Of a partition, for which no user asks, its owner.
    pub user: &'a str,
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
    /// The shadow policy was not called, or had no part in the failure: too many calls were under
    /// way.
    Skipped,
}

impl Comparison {
    /// A call without an answer. Only a failure of the guest counts as one: a busy process must not
    /// prevent a promotion.
    pub fn without_answer(error: &GuestError) -> Self {
        if error.is_failure() {
            Self::Failed
        } else {
            Self::Skipped
        }
    }

    /// A request for which `spec.match` could not be evaluated.
    pub fn without_match(error: &EvaluationError) -> Self {
        match error.fault {
            Fault::Content => Self::Failed,
            Fault::UnknownLabels | Fault::Overload => Self::Skipped,
        }
    }
}

impl CallStats {
    /// Records an enforced call. `counts_for`: who caused it, if the call counts for a rollback. A
    /// call that anyone can cause, or that leaves nothing behind, does not.
    pub fn record_call(&self, failed: bool, counts_for: Option<Requester<'_>>) {
        let mut state = self.state.lock();
        if failed {
            state.calls.failed += 1;
        } else {
            state.calls.answered += 1;
        }
        if let Some(requester) = counts_for {
            let failure = failed.then(|| Failure {
                namespace: requester.namespace.into(),
                user: short_digest(requester.user),
            });
            state.recent.push_back(failure);
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
        let failures = || state.recent.iter().flatten();
        let failed = failures().count();
        let namespaces = failures().map(|failure| &*failure.namespace);
        let users = failures().map(|failure| &*failure.user);
        let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        Counts {
            calls: state.calls,
            recent: CallCounts {
                answered: count(state.recent.len() - failed),
                failed: count(failed),
            },
            failing_namespaces: first_distinct(namespaces, FAILING_NAMESPACES),
            failing_users: first_distinct(users, FAILING_USERS),
            shadow: state.shadow.clone(),
        }
    }
}

/// Returns the first distinct names. More are not needed, and a report must stay small.
fn first_distinct<'a>(names: impl Iterator<Item = &'a str>, most: usize) -> BTreeSet<String> {
    let mut distinct = BTreeSet::new();
    for name in names {
        if distinct.len() < most {
            distinct.insert(name.to_owned());
        }
    }
    distinct
}

/// Returns a digest of a user's name: reports are compared between replicas, and must not reveal or
/// repeat long names.
fn short_digest(name: &str) -> String {
    let digest = Sha256::digest(name);
    let first = digest.iter().take(8);
    first.fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by<'a>(namespace: &'a str, user: &'a str) -> Requester<'a> {
        Requester { namespace, user }
    }

    #[test]
    fn the_failure_rate_is_that_of_the_last_hundred_calls() {
        let stats = CallStats::default();
        for call in 0..250 {
            stats.record_call(call >= 240, Some(by("team", "ann")));
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
            stats.record_call(call % 3 > 0, (call % 3 == 0).then_some(by("team", "ann")));
        }
        let counts = stats.counts();
        let calls = |answered, failed| CallCounts { answered, failed };
        assert_eq!(counts.calls, calls(100, 200));
        assert_eq!(counts.recent, calls(100, 0));
    }

    #[test]
    fn failing_namespaces_and_users_are_few_and_those_of_the_last_calls() {
        let stats = CallStats::default();
        for namespace in ["a", "a", "b", "c", "d"] {
            stats.record_call(true, Some(by(namespace, "ann")));
        }
        let failing = stats.counts();
        assert_eq!(
            failing.failing_namespaces,
            ["a", "b", "c"].map(str::to_owned).into()
        );
        assert_eq!(failing.failing_users, [short_digest("ann")].into());
        for user in ["bob", "eve"] {
            stats.record_call(true, Some(by("a", user)));
        }
        let users = stats.counts().failing_users;
        assert_eq!(users, ["ann", "bob"].map(short_digest).into());
        for _ in 0..RECENT {
            stats.record_call(false, Some(by("a", "ann")));
        }
        let failing = stats.counts();
        assert!(failing.failing_namespaces.is_empty() && failing.failing_users.is_empty());
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
        let unmatched = |fault| EvaluationError {
            name: "mine".to_owned(),
            reason: "late".to_owned(),
            fault,
        };
        for (fault, expected) in [
            (Fault::Overload, Comparison::Skipped),
            (Fault::UnknownLabels, Comparison::Skipped),
            (Fault::Content, Comparison::Failed),
        ] {
            assert_eq!(Comparison::without_match(&unmatched(fault)), expected);
        }
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
