//! A version that this replica could not prepare: why, and when it tries again.

use ipu_text::sanitize;
use tokio::time::Instant;

use super::Failure;
use super::retry::{RETRY_MAX, RETRY_MIN, Retry};
use super::signed::ABSENCE;
use crate::report::Problem;
use crate::source::SignatureFault;

/// Longest reason, in bytes. It can contain the message of a registry. If a Lease exceeded the
/// limit of Kubernetes, the replica would seem to have ended.
pub(super) const REASON: usize = 1_024;

/// The last failure to prepare a version.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) problem: Problem,
    pub(super) retry: Retry,
    /// Whether no signature of the module counts.
    pub(super) is_unsigned: bool,
    /// Attempts that failed.
    attempts: u32,
    /// Time of the first of the last attempts, in which the object with the keys was absent.
    absent_since: Option<Instant>,
}

impl Failed {
    /// The state after a failure. A ConfigMap or Secret with keys that is absent is a reason to
    /// refuse the version only after [`ABSENCE`], as for a loaded module, and the operator soon
    /// finds it when it is created again. A version that was refused before stays refused.
    pub(super) fn after(failure: &Failure, previous: Option<&Self>, now: Instant) -> Self {
        let attempts = previous.map_or(0, |previous| previous.attempts);
        let is_absent = failure.signature == Some(SignatureFault::KeysAbsent);
        let absent_since = is_absent.then(|| {
            let since = previous.and_then(|previous| previous.absent_since);
            since.unwrap_or(now)
        });
        let was_refused = previous.is_some_and(|previous| previous.problem.is_final);
        let grace_end = absent_since
            .map(|since| since + ABSENCE)
            .filter(|end| now < *end && !was_refused);
        let longest_delay = match (grace_end, is_absent) {
            (Some(end), _) => RETRY_MIN.min(end - now),
            (None, true) => ABSENCE,
            (None, false) => RETRY_MAX,
        };
        Self {
            problem: Problem {
                reason: sanitize(&failure.reason, REASON),
                is_final: failure.is_final && grace_end.is_none(),
            },
            retry: Retry::after(failure, attempts, longest_delay, now),
            is_unsigned: failure.signature.is_some(),
            attempts: attempts + 1,
            absent_since,
        }
    }
}
