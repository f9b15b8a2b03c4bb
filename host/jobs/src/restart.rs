//! Pure: decides whether a job restarts after a run has ended, and when.

use std::time::Duration;

use ipu_api::ipujob::{CleanPodPolicy, RestartPolicy, RestartPolicyType};
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use super::outcome::{Outcome, RunFailure};

/// Default number of restarts after failures, as in Graphcore's operator.
const BACKOFF_LIMIT: i32 = 3;

/// Delay before the first restart. It doubles with each further failure.
const FIRST_DELAY: Duration = Duration::from_secs(10);

/// Maximum delay between two runs, as for containers of a Pod.
const LONGEST_DELAY: Duration = Duration::from_mins(5);

/// Default retryable exit codes of `ExitCode`: a signal ended the program.
const RETRYABLE: (i64, i64) = (128, 255);

/// The restart rule of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestartRule {
    policy_type: RestartPolicyType,
    back_off_limit: i32,
    /// First and last exit code of each retryable range.
    retryable: Vec<(i64, i64)>,
}

/// The decision about the job after the end of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Next {
    /// The job has finished. The reason is set if it differs from the usual one.
    Terminal(Option<&'static str>),
    /// The job restarts.
    Retry {
        /// Number of failed runs, including this one.
        failures: i32,
        /// Time before which no Pod of the next run is created.
        not_before: Timestamp,
        /// The reason and the number of failures, for the user.
        reason: String,
    },
}

impl RestartRule {
    /// Creates the rule of a spec. `cleanPodPolicy: All` turns every policy into Never, as in
    /// Graphcore's operator.
    pub fn new(policy: Option<&RestartPolicy>, clean_pod_policy: CleanPodPolicy) -> Self {
        let policy_type = match policy {
            Some(policy) if clean_pod_policy != CleanPodPolicy::All => policy.type_,
            _ => RestartPolicyType::Never,
        };
        let limit = policy.and_then(|policy| policy.back_off_limit);
        let codes = policy.and_then(|policy| policy.exit_codes.as_deref());
        Self {
            policy_type,
            back_off_limit: limit.unwrap_or(BACKOFF_LIMIT),
            retryable: codes.map_or_else(|| vec![RETRYABLE], ranges),
        }
    }

    /// Whether the job restarts after a disruption.
    pub fn restarts_lost_runs(&self) -> bool {
        self.policy_type != RestartPolicyType::Never
    }

    /// Decides what follows from the end of a run. `failures` is the number of earlier failed runs.
    pub fn next(&self, outcome: &Outcome, failures: i32, now: Timestamp) -> Next {
        match outcome {
            Outcome::Completed if self.policy_type == RestartPolicyType::Always => Next::Retry {
                failures,
                not_before: retry_time(now, 0),
                reason: "it completed, and spec.restartPolicy.type is Always".to_owned(),
            },
            Outcome::Completed => Next::Terminal(None),
            Outcome::Failed(failure) if failure.is_final || !self.retries(failure) => {
                Next::Terminal(failure.reason)
            }
            Outcome::Failed(_) if failures >= self.back_off_limit => {
                Next::Terminal(Some("BackoffLimitExceeded"))
            }
            Outcome::Failed(failure) => Next::Retry {
                failures: failures.saturating_add(1),
                not_before: retry_time(now, failures),
                reason: format!(
                    "{} (failure {} of at most {})",
                    failure.message,
                    failures.saturating_add(1),
                    self.back_off_limit
                ),
            },
        }
    }

    fn retries(&self, failure: &RunFailure) -> bool {
        match self.policy_type {
            RestartPolicyType::Never => false,
            RestartPolicyType::Always | RestartPolicyType::OnFailure => true,
            // Without an exit code no program failed: a node was lost, for example.
            RestartPolicyType::ExitCode => failure.exit_code.is_none_or(|code| {
                let code = i64::from(code);
                let mut ranges = self.retryable.iter();
                ranges.any(|(first, last)| (*first..=*last).contains(&code))
            }),
        }
    }
}

/// Returns the time of the next run, after this number of earlier failures.
fn retry_time(now: Timestamp, earlier_failures: i32) -> Timestamp {
    let doubled = 2_u32.saturating_pow(earlier_failures.try_into().unwrap_or(0));
    let delay = FIRST_DELAY.saturating_mul(doubled).min(LONGEST_DELAY);
    now + SignedDuration::try_from(delay).expect("a delay of minutes fits")
}

/// Parses ranges such as `3,7,130-140`. Invalid items match nothing; admission refuses them.
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

    fn rule(
        policy_type: RestartPolicyType,
        limit: Option<i32>,
        codes: Option<&str>,
    ) -> RestartRule {
        let policy = RestartPolicy {
            type_: policy_type,
            back_off_limit: limit,
            exit_codes: codes.map(str::to_owned),
        };
        RestartRule::new(Some(&policy), CleanPodPolicy::None)
    }

    fn failed(exit_code: Option<i32>) -> Outcome {
        Outcome::Failed(RunFailure {
            message: "launcher failed".to_owned(),
            exit_code,
            reason: None,
            is_final: false,
        })
    }

    fn now() -> Timestamp {
        "2026-01-01T00:00:00Z".parse().unwrap()
    }

    fn restarts(rule: &RestartRule, outcome: &Outcome, failures: i32) -> bool {
        matches!(rule.next(outcome, failures, now()), Next::Retry { .. })
    }

    #[test]
    fn each_type_retries_its_outcomes() {
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
        for (policy_type, outcome, expected) in table {
            let rule = rule(policy_type, None, None);
            assert_eq!(
                restarts(&rule, &outcome, 0),
                expected,
                "{policy_type:?} {outcome:?}"
            );
        }
    }

    #[test]
    fn exit_codes_list_the_retryable_codes() {
        let rule = rule(RestartPolicyType::ExitCode, None, Some("3,7,130-140"));
        for (code, expected) in [(3, true), (4, false), (7, true), (129, false), (135, true)] {
            assert_eq!(restarts(&rule, &failed(Some(code)), 0), expected, "{code}");
        }
    }

    #[test]
    fn the_limit_counts_failures_and_not_successes() {
        let rule = rule(RestartPolicyType::Always, Some(2), None);
        assert!(restarts(&rule, &failed(Some(1)), 1));
        assert_eq!(
            rule.next(&failed(Some(1)), 2, now()),
            Next::Terminal(Some("BackoffLimitExceeded"))
        );
        assert!(restarts(&rule, &Outcome::Completed, 2));
        let none = super::tests::rule(RestartPolicyType::OnFailure, Some(0), None);
        assert!(!restarts(&none, &failed(Some(1)), 0));
    }

    #[test]
    fn delays_double_up_to_the_maximum() {
        let delays: Vec<i64> = (0..8)
            .map(|failures| retry_time(now(), failures).duration_since(now()).as_secs())
            .collect();
        assert_eq!(delays, [10, 20, 40, 80, 160, 300, 300, 300]);
        assert_eq!(
            retry_time(now(), i32::MAX).duration_since(now()).as_secs(),
            300
        );
    }

    #[test]
    fn the_clean_pod_policy_all_prevents_restarts() {
        let policy = RestartPolicy {
            type_: RestartPolicyType::Always,
            back_off_limit: None,
            exit_codes: None,
        };
        let rule = RestartRule::new(Some(&policy), CleanPodPolicy::All);
        assert!(!restarts(&rule, &failed(Some(137)), 0));
    }
}
