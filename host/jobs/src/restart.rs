//! Pure: whether a job that has ended runs again, and when.

use std::time::Duration;

use ipu_api::ipujob::{CleanPodPolicy, RestartPolicy, RestartPolicyType};
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use super::phase::{Outcome, RunFailure};

/// Failures after which a job is given up, where the user set no number (the original's default).
const BACK_OFF_LIMIT: i32 = 3;

/// Wait before the first run after a failure; each further one waits twice as long.
const FIRST_DELAY: Duration = Duration::from_secs(10);

/// Longest wait between two runs, as for containers of a Pod.
const LONGEST_DELAY: Duration = Duration::from_mins(5);

/// Exit codes that `ExitCode` takes for retryable where `exitCodes` says nothing: ended by a signal.
const RETRYABLE: (i64, i64) = (128, 255);

/// When a job runs again after it has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestartRule {
    when: RestartPolicyType,
    back_off_limit: i32,
    /// First and last exit code of each range that is retryable.
    retryable: Vec<(i64, i64)>,
}

/// What follows from the end of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Next {
    /// The job has ended for good; a word for programs where it is not the plain end of the run.
    Final(Option<&'static str>),
    /// It runs again.
    Again {
        /// Failed runs, this one included where it failed.
        failures: i32,
        /// Before this time nothing of the next run is made.
        not_before: Timestamp,
        /// Why and how often, as a user should read it.
        why: String,
    },
}

impl RestartRule {
    /// The rule that a spec asks for. `cleanPodPolicy: All` makes every policy act as Never, as the
    /// original had it.
    pub fn new(policy: Option<&RestartPolicy>, clean: CleanPodPolicy) -> Self {
        let when = match policy {
            Some(policy) if clean != CleanPodPolicy::All => policy.type_,
            _ => RestartPolicyType::Never,
        };
        let limit = policy.and_then(|policy| policy.back_off_limit);
        let codes = policy.and_then(|policy| policy.exit_codes.as_deref());
        Self {
            when,
            back_off_limit: limit.unwrap_or(BACK_OFF_LIMIT),
            retryable: codes.map_or_else(|| vec![RETRYABLE], ranges),
        }
    }

    /// Whether a run that was lost, through no fault of its program, is followed by another.
    pub fn replaces_a_lost_run(&self) -> bool {
        self.when != RestartPolicyType::Never
    }

    /// What follows from the end of a run, after so many failed ones.
    pub fn next(&self, outcome: &Outcome, failures: i32, now: Timestamp) -> Next {
        match outcome {
            Outcome::Completed if self.when == RestartPolicyType::Always => Next::Again {
                failures,
                not_before: after(now, 0),
                why: "it completed, and spec.restartPolicy.type is Always".to_owned(),
            },
            Outcome::Completed => Next::Final(None),
            Outcome::Failed(failure) if failure.is_final || !self.retries(failure) => {
                Next::Final(failure.reason)
            }
            Outcome::Failed(_) if failures >= self.back_off_limit => {
                Next::Final(Some("BackoffLimitExceeded"))
            }
            Outcome::Failed(failure) => Next::Again {
                failures: failures.saturating_add(1),
                not_before: after(now, failures),
                why: format!(
                    "{} (failure {} of at most {})",
                    failure.how,
                    failures.saturating_add(1),
                    self.back_off_limit
                ),
            },
        }
    }

    fn retries(&self, failure: &RunFailure) -> bool {
        match self.when {
            RestartPolicyType::Never => false,
            RestartPolicyType::Always | RestartPolicyType::OnFailure => true,
            // Without an exit code it was not the program that failed: a node was lost, say.
            RestartPolicyType::ExitCode => failure.exit_code.is_none_or(|code| {
                let code = i64::from(code);
                let mut ranges = self.retryable.iter();
                ranges.any(|(first, last)| (*first..=*last).contains(&code))
            }),
        }
    }
}

/// The time of the next run after `before` failures that went before this one.
fn after(now: Timestamp, before: i32) -> Timestamp {
    let doubled = 2_u32.saturating_pow(before.try_into().unwrap_or(0));
    let delay = FIRST_DELAY.saturating_mul(doubled).min(LONGEST_DELAY);
    now + SignedDuration::try_from(delay).expect("a delay of minutes fits")
}

/// Reads `3,7,130-140`; what is no number matches nothing, and the rules of admission refuse it.
fn ranges(codes: &str) -> Vec<(i64, i64)> {
    codes
        .split(',')
        .filter_map(|item| {
            let (first, last) = item.split_once('-').unwrap_or((item, item));
            Some((first.parse().ok()?, last.parse().ok()?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(when: RestartPolicyType, limit: Option<i32>, codes: Option<&str>) -> RestartRule {
        let policy = RestartPolicy {
            type_: when,
            back_off_limit: limit,
            exit_codes: codes.map(str::to_owned),
        };
        RestartRule::new(Some(&policy), CleanPodPolicy::None)
    }

    fn failed(exit_code: Option<i32>) -> Outcome {
        Outcome::Failed(RunFailure {
            how: "launcher failed".to_owned(),
            exit_code,
            reason: None,
            is_final: false,
        })
    }

    fn now() -> Timestamp {
        "2026-01-01T00:00:00Z".parse().unwrap()
    }

    fn again(rule: &RestartRule, outcome: &Outcome, failures: i32) -> bool {
        matches!(rule.next(outcome, failures, now()), Next::Again { .. })
    }

    #[test]
    fn each_type_decides_for_itself() {
        use RestartPolicyType::{Always, ExitCode, Never, OnFailure};
        let table = [
            (Never, Outcome::Completed, false),
            (Never, failed(Some(137)), false),
            (OnFailure, Outcome::Completed, false),
            (OnFailure, failed(Some(1)), true),
            (Always, Outcome::Completed, true),
            (Always, failed(Some(1)), true),
            (ExitCode, Outcome::Completed, false),
            (ExitCode, failed(Some(1)), false),
            (ExitCode, failed(Some(127)), false),
            (ExitCode, failed(Some(128)), true),
            (ExitCode, failed(Some(255)), true),
            (ExitCode, failed(None), true),
        ];
        for (when, outcome, expected) in table {
            let rule = rule(when, None, None);
            assert_eq!(again(&rule, &outcome, 0), expected, "{when:?} {outcome:?}");
        }
    }

    #[test]
    fn exit_codes_name_what_is_retryable() {
        let rule = rule(RestartPolicyType::ExitCode, None, Some("3,7,130-140"));
        for (code, expected) in [(3, true), (4, false), (7, true), (129, false), (135, true)] {
            assert_eq!(again(&rule, &failed(Some(code)), 0), expected, "{code}");
        }
    }

    #[test]
    fn the_limit_counts_failures_and_not_successes() {
        let rule = rule(RestartPolicyType::Always, Some(2), None);
        assert!(again(&rule, &failed(Some(1)), 1));
        assert_eq!(
            rule.next(&failed(Some(1)), 2, now()),
            Next::Final(Some("BackoffLimitExceeded"))
        );
        assert!(again(&rule, &Outcome::Completed, 2));
        let none = super::tests::rule(RestartPolicyType::OnFailure, Some(0), None);
        assert!(!again(&none, &failed(Some(1)), 0));
    }

    #[test]
    fn waits_double_up_to_a_ceiling() {
        let waits: Vec<i64> = (0..8)
            .map(|failures| after(now(), failures).duration_since(now()).as_secs())
            .collect();
        assert_eq!(waits, [10, 20, 40, 80, 160, 300, 300, 300]);
        assert_eq!(after(now(), i32::MAX).duration_since(now()).as_secs(), 300);
    }

    #[test]
    fn cleaning_everything_means_never_again() {
        let policy = RestartPolicy {
            type_: RestartPolicyType::Always,
            back_off_limit: None,
            exit_codes: None,
        };
        let rule = RestartRule::new(Some(&policy), CleanPodPolicy::All);
        assert!(!again(&rule, &failed(Some(137)), 0));
    }
}
