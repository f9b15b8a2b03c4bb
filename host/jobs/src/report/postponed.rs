//! Pure: which statuses need not be written yet, because they say that all goes well and the next one says more.

use std::time::Duration;

use ipu_api::ipujob_status::{IPUJobStatus, JobState};
use ipu_runtime::clock;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::PODS_READY;

/// How long progress may stay unwritten. Stored times have whole seconds: it is written after one to two of them.
const PROGRESS: jiff::SignedDuration = jiff::SignedDuration::from_secs(2);

/// How long the write of `new` may be put off: none where it is to be written now. `created` is when the job was made.
///
/// Only what is said of a job that begins, or that has ended a moment ago, may come later: nothing is decided by what
/// is left out, and no reader learns late that something is wrong.
pub fn postponed(
    old: &IPUJobStatus,
    new: &IPUJobStatus,
    created: Option<&Time>,
    now: Timestamp,
) -> Option<Duration> {
    if let Some(ended) = &old.completion_time {
        return remaining(Some(ended), now);
    }
    let begins = |status: &IPUJobStatus| status.launcher_status == JobState::Pending;
    let is_fresh = old.conditions.is_empty();
    let says_more = old.run.clone().unwrap_or_default() != new.run.clone().unwrap_or_default()
        || old.automatic_resets != new.automatic_resets
        || old.observed_generation != new.observed_generation && !is_fresh
        || is_held_up(new);
    if says_more || !(begins(old) && begins(new)) {
        return None;
    }
    let last = if is_fresh {
        created
    } else {
        old.last_reconcile_time.as_ref()
    };
    remaining(last, now)
}

/// How long it remains recent that something happened, where it is.
fn remaining(at: Option<&Time>, now: Timestamp) -> Option<Duration> {
    let until = clock::later(at?.0, PROGRESS);
    // A time in the future is of a clock that was set back since.
    (at?.0 <= now && now < until).then(|| until.duration_since(now).unsigned_abs())
}

/// Whether a Pod does not come up, or an object of the job cannot be made.
fn is_held_up(status: &IPUJobStatus) -> bool {
    let mut conditions = status.conditions.iter();
    conditions.any(|condition| condition.type_ == PODS_READY)
}
