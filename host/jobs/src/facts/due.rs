//! Pure: what is due by the clock, computed from stored times, so that a restart of the operator
//! changes none of it.

use std::time::Duration;

use ipu_api::ipujob_status::IPUJobStatus;
use ipu_runtime::clock;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Serialize;

use crate::validate::ValidJob;

/// How long an instance keeps its partition while the API server refuses its Pods.
pub const REFUSED_HOLDS: SignedDuration = SignedDuration::from_mins(5);

/// How long it then does without one, before it asks again.
pub const REFUSED_RESTS: SignedDuration = SignedDuration::from_mins(5);

/// What is due by the clock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent facts, each asked for by another decision"
)]
pub struct Due {
    /// No Pod of the next run is made yet.
    pub held_back: bool,
    /// The job has run for longer than `activeDeadlineSeconds`.
    pub overdue: bool,
    /// The job has been finished for longer than `ttlSecondsAfterFinished`.
    pub expired: bool,
    /// Instances whose Pods the API server refuses do without a partition.
    pub yielding: bool,
    /// After this time one of them changes.
    pub wake: Option<Duration>,
}

/// What is due for a job at `now`.
pub fn due(job: &ValidJob, status: &IPUJobStatus, now: Timestamp) -> Due {
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
    let yields = refused.map(|since| clock::later(since, REFUSED_HOLDS));
    let asks_again = yields.map(|since| clock::later(since, REFUSED_RESTS));
    let past = |time: Option<Timestamp>| time.is_some_and(|time| time <= now);
    let next = [not_before, deadline, expiry, yields, asks_again]
        .into_iter()
        .flatten()
        .filter(|time| *time > now)
        .min();
    Due {
        held_back: not_before.is_some_and(|time| time > now),
        overdue: past(deadline),
        expired: past(expiry),
        yielding: past(yields) && !past(asks_again),
        // The clock of the next look may be read a moment early.
        wake: next.map(|time| time.duration_since(now).unsigned_abs() + Duration::from_millis(1)),
    }
}
