//! Pure: whether Pods on a node can use IPUs, of the results of its checks.

use ipu_api::node_check::{CheckResult, Outcome};
use ipu_text::sanitize;

use crate::checks::CHECKS;

/// Longest message of the condition, in bytes. Events have the same message, and the API server
/// accepts no longer one.
const MESSAGE_MAX: usize = 1_000;

/// Reason of a node that has passed its checks.
const PASSED: &str = "ChecksPassed";

/// Reason of a node about which something is unknown.
const UNKNOWN: &str = "ChecksUnknown";

/// The status of the condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// No check failed.
    True,
    /// A check failed.
    False,
    /// No check failed, and one could not be made.
    Unknown,
}

impl Status {
    /// The word of Kubernetes.
    pub fn word(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

/// Whether Pods on a node can use IPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The status of the condition.
    pub status: Status,
    /// Its reason: that of the first check that failed.
    pub reason: &'static str,
    /// What to do.
    pub message: String,
}

impl Verdict {
    /// The verdict about these results, which are in the order of the checks.
    pub fn of(results: &[CheckResult]) -> Self {
        let with = |outcome: Outcome| {
            results
                .iter()
                .filter(move |result| result.outcome == outcome)
        };
        let reason = |failed: &CheckResult| {
            let check = CHECKS.iter().find(|check| check.name == failed.check);
            check.map_or(UNKNOWN, |check| check.fault)
        };
        if let Some(first) = with(Outcome::Failed).next() {
            return Self {
                status: Status::False,
                reason: reason(first),
                message: message(with(Outcome::Failed)),
            };
        }
        if with(Outcome::Unknown).next().is_some() {
            return Self {
                status: Status::Unknown,
                reason: UNKNOWN,
                message: message(with(Outcome::Unknown)),
            };
        }
        Self {
            status: Status::True,
            reason: PASSED,
            message: passed(with(Outcome::Ok)),
        }
    }
}

fn passed<'a>(results: impl Iterator<Item = &'a CheckResult>) -> String {
    let names = results.map(|result| result.check.as_str());
    let names = names.collect::<Vec<_>>().join(", ");
    sanitize(&format!("passed: {names}"), MESSAGE_MAX)
}

fn message<'a>(results: impl Iterator<Item = &'a CheckResult>) -> String {
    let each = results.map(|result| format!("{}: {}", result.check, result.message));
    sanitize(&each.collect::<Vec<_>>().join("; "), MESSAGE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(check: &str, outcome: Outcome) -> CheckResult {
        CheckResult {
            check: check.to_owned(),
            outcome,
            message: "do this".to_owned(),
        }
    }

    #[test]
    fn a_failure_takes_precedence_over_what_is_unknown() {
        let ok = || result("controller-label", Outcome::Ok);
        let unknown = || result("controller-connection", Outcome::Unknown);
        let failed = || result("rdma-link", Outcome::Failed);
        let later = || result("multus", Outcome::Failed);
        for (results, status, reason, message) in [
            (vec![ok()], Status::True, PASSED, "passed: controller-label"),
            (
                vec![ok(), unknown()],
                Status::Unknown,
                UNKNOWN,
                "controller-connection: do this",
            ),
            (
                vec![ok(), unknown(), failed(), later()],
                Status::False,
                "RDMALinkDown",
                "rdma-link: do this; multus: do this",
            ),
        ] {
            let verdict = Verdict::of(&results);
            assert_eq!((verdict.status, verdict.reason), (status, reason));
            assert_eq!(verdict.message, message);
        }
    }

    #[test]
    fn a_long_message_is_cut() {
        let mut long = result("multus", Outcome::Failed);
        long.message = "é".repeat(MESSAGE_MAX);
        assert!(Verdict::of(&[long]).message.len() <= MESSAGE_MAX);
    }
}
