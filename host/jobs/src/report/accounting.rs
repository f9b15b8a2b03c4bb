//! Pure: counts the seconds of a job by what it did.
//!
//! They change only in statuses that report another state or another run, so they need no write of their own. The times
//! of the IPUPartitions divide a time in the state `Pending`.

use ipu_api::ipujob_status::{IPUJobStatus, JobAccounting, JobState};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{RUNNING, SUSPENDED, StatusInput, is_condition_true};
use crate::facts::Instance;
use crate::phase::{Outcome, Phase};

/// Builds the accounting of a job whose new status reports this state and the run of this number.
pub(super) fn accounting(
    input: &StatusInput<'_>,
    (state, run): (JobState, i64),
    old: &IPUJobStatus,
    now: Timestamp,
) -> Option<JobAccounting> {
    let old_run = old.run.as_ref().map_or(0, |run| run.number);
    let is_same = state == state_until_now(old) && run == old_run;
    let is_new = old.conditions.is_empty();
    let mut accounting = match &old.accounting {
        Some(accounting) => accounting.clone(),
        None if is_new => since(input.job.created.unwrap_or(now)),
        // Of an earlier version of the operator: nothing is known of the time before.
        None => return (!is_same).then(|| since(now)),
    };
    if !is_same {
        let now = whole_second(now).max(accounting.until.0);
        count(&mut accounting, input, old, now);
        accounting.until = Time(now);
    }
    Some(accounting)
}

/// What a job did until now. Of a job that Kueue stops, `ipu-kueue` sets only the state to `Suspended`, so that its
/// conditions still tell what it did.
fn state_until_now(old: &IPUJobStatus) -> JobState {
    let state = old.launcher_status;
    if state != JobState::Suspended || is_condition_true(old, SUSPENDED) {
        state
    } else if is_condition_true(old, RUNNING) {
        JobState::Running
    } else {
        JobState::Pending
    }
}

/// An accounting that begins at this time.
fn since(begin: Timestamp) -> JobAccounting {
    JobAccounting {
        until: Time(whole_second(begin)),
        waiting: 0,
        forming: 0,
        starting: 0,
        running: 0,
        wasted: 0,
        restarting: 0,
        suspended: 0,
    }
}

/// Counts the time since the last change.
fn count(
    accounting: &mut JobAccounting,
    input: &StatusInput<'_>,
    old: &IPUJobStatus,
    now: Timestamp,
) {
    let begin = accounting.until.0;
    let has_failed = matches!(input.phase, Phase::Ended(Outcome::Failed(_)));
    match state_until_now(old) {
        JobState::Running if has_failed => accounting.wasted += seconds(begin, now),
        JobState::Running => accounting.running += seconds(begin, now),
        JobState::Suspended => accounting.suspended += seconds(begin, now),
        // A job that has failed and goes on was invalid, or could not be placed.
        JobState::Pending | JobState::Failed => count_pending(accounting, input, old, now),
        JobState::Completed => {}
    }
}

/// Divides a time in the state `Pending` by the times of the partitions.
fn count_pending(
    accounting: &mut JobAccounting,
    input: &StatusInput<'_>,
    old: &IPUJobStatus,
    now: Timestamp,
) {
    let begin = accounting.until.0;
    // The partition of an instance that has ended may be released already.
    let instances = input.facts.instances.iter();
    let instances = instances.filter(|one| one.times.ready.is_some() || !one.ended());
    let requested = |one: &Instance| one.times.requested.or(one.times.ready);
    let requested = last(instances.clone().map(requested));
    let ready = last(instances.map(|one| one.times.ready));
    let requested = requested.unwrap_or(now).clamp(begin, now);
    let mut ready = ready.unwrap_or(now).clamp(requested, now);
    let run = old.run.as_ref();
    if run.is_some_and(|run| run.restarting.is_some()) {
        if let Some(not_before) = run.and_then(|run| run.not_before.as_ref()) {
            ready = ready.max(not_before.0).min(now);
        }
        accounting.restarting += seconds(begin, ready);
    } else {
        accounting.waiting += seconds(begin, requested);
        accounting.forming += seconds(requested, ready);
    }
    accounting.starting += seconds(ready, now);
}

/// The last of these times. `None` if one of them is missing, or if there are none.
fn last(times: impl Iterator<Item = Option<Timestamp>>) -> Option<Timestamp> {
    let times: Option<Vec<Timestamp>> = times.collect();
    times?.into_iter().max()
}

fn seconds(from: Timestamp, until: Timestamp) -> i64 {
    until.as_second() - from.as_second()
}

/// A time in a status has whole seconds.
fn whole_second(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}
