//! Pure: postpones writes of statuses that report normal progress, because a more complete one
//! follows soon.

use std::time::Duration;

use ipu_api::ipujob_status::{IPUJobStatus, JobState};
use ipu_runtime::clock;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::job_conditions::{PODS_READY, PODS_STARTING};

/// Maximum delay of such a write. Stored times have whole seconds, so the delay is one to two
/// seconds.
const MAX_DELAY: jiff::SignedDuration = jiff::SignedDuration::from_secs(2);

/// Returns the remaining delay of the write of `new`. `None` writes it now. `created` is the job's
/// creation time.
///
/// Only the progress of a starting job, and of a job that has just ended, is postponed: no decision
/// depends on it, and problems are written at once.
pub fn postponed(
    old: &IPUJobStatus,
    new: &IPUJobStatus,
    created: Option<&Time>,
    now: Timestamp,
) -> Option<Duration> {
    if old.completion_time.is_some() {
        return after_end(old, now);
    }
    let is_pending = |status: &IPUJobStatus| status.launcher_status == JobState::Pending;
    let is_new = old.conditions.is_empty();
    let has_news = old.run.clone().unwrap_or_default() != new.run.clone().unwrap_or_default()
        || old.automatic_resets != new.automatic_resets
        || old.observed_generation != new.observed_generation && !is_new
        || has_problem(new);
    if has_news || !(is_pending(old) && is_pending(new)) {
        return None;
    }
    let last = if is_new {
        created
    } else {
        old.last_reconcile_time.as_ref()
    };
    clock::remaining(last?.0, MAX_DELAY, now)
}

/// Returns the remaining delay of all writes about a job that has ended.
pub fn after_end(old: &IPUJobStatus, now: Timestamp) -> Option<Duration> {
    clock::remaining(old.completion_time.as_ref()?.0, MAX_DELAY, now)
}

/// Whether a Pod does not start, or an object of the job cannot be created.
fn has_problem(status: &IPUJobStatus) -> bool {
    let mut conditions = status.conditions.iter();
    conditions.any(|condition| condition.type_ == PODS_READY && condition.reason != PODS_STARTING)
}
