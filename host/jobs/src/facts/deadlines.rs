//! Pure: computes deadlines from stored times, so that a restart of the operator does not change
//! them.

use std::time::Duration;

use ipu_api::ipujob_status::IPUJobStatus;
use ipu_runtime::clock;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Serialize;

use crate::validate::ValidJob;

/// Time for which an instance keeps its partition while the API server refuses its Pods, for
/// example because of a quota.
pub const REFUSAL_TIMEOUT: SignedDuration = SignedDuration::from_mins(5);

/// Time after which an instance without a partition requests one again.
pub const QUOTA_BACKOFF: SignedDuration = SignedDuration::from_mins(5);

/// The deadlines of a job that have passed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent facts, each used by another decision"
)]
pub struct Deadlines {
    /// The back-off before the next run is not over: no Pod is created.
    pub in_backoff: bool,
    /// The job has been active for longer than `activeDeadlineSeconds`.
    pub overdue: bool,
    /// The job has been finished for longer than `ttlSecondsAfterFinished`.
    pub expired: bool,
    /// Instances whose Pods the API server refuses have released their partitions.
    pub in_quota_backoff: bool,
    /// The back-off after a rejection of Pods by their nodes is not over: none of them is created
    /// again.
    pub in_rejection_backoff: bool,
    /// Time until the next deadline.
    pub next: Option<Duration>,
}

/// Computes the deadlines of a job at the time `now`.
pub fn deadlines(job: &ValidJob, status: &IPUJobStatus, now: Timestamp) -> Deadlines {
    let run = status.run.as_ref();
    let after = |start: &Option<Time>, seconds: Option<i64>| {
        let seconds = SignedDuration::from_secs(seconds?);
        start.as_ref()?.0.checked_add(seconds).ok()
    };
    let finished = status.completion_time.is_some();
    let not_before = run.and_then(|run| Some(run.not_before.as_ref()?.0));
    let deadline = after(&status.start_time, job.active_deadline_seconds).filter(|_| !finished);
    let expiry = after(&status.completion_time, job.ttl_seconds_after_finished);
    let refused = run.and_then(|run| Some(run.refused_since.as_ref()?.0));
    let quota_backoff = refused.map(|since| clock::later(since, REFUSAL_TIMEOUT));
    let backoff_end = quota_backoff.map(|since| clock::later(since, QUOTA_BACKOFF));
    let rejections = run.and_then(|run| run.rejections.as_ref());
    let rejection_end = rejections.map(|rejections| rejections.not_before.0);
    let past = |time: Option<Timestamp>| time.is_some_and(|time| time <= now);
    let next = [
        not_before,
        deadline,
        expiry,
        quota_backoff,
        backoff_end,
        rejection_end,
    ];
    let next = next.into_iter().flatten().filter(|time| *time > now).min();
    Deadlines {
        in_backoff: not_before.is_some_and(|time| time > now),
        overdue: past(deadline),
        expired: past(expiry),
        in_quota_backoff: past(quota_backoff) && !past(backoff_end),
        in_rejection_backoff: rejection_end.is_some_and(|time| time > now),
        // The clock of the next reconcile may be read a moment early.
        next: next.map(|time| time.duration_since(now).unsigned_abs() + Duration::from_millis(1)),
    }
}
