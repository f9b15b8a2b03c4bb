//! Pure: counts the seconds of a job by activity.
//!
//! They change only in statuses that are written anyway, so they need no write of their own. The
//! times of IPUPartitions and Pods divide the time since the last change.

use ipu_api::ipujob_status::{IPUJobStatus, JobAccounting, JobActivity, JobState, RunStatus};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::StatusInput;
use super::activity::{activity, known_changes};
use crate::outcome::Outcome;
use crate::phase::Phase;

/// Builds the accounting of a job from this state and run in its new status.
pub(super) fn accounting(
    input: &StatusInput<'_>,
    (state, run): (JobState, &RunStatus),
    old: &IPUJobStatus,
    now: Timestamp,
) -> Option<JobAccounting> {
    let old_run = old.run.as_ref().map_or(0, |run| run.number);
    let is_same_run = run.number == old_run;
    let activity = activity(input, state, run);
    let mut accounting = match &old.accounting {
        Some(accounting) => accounting.clone(),
        None if old.conditions.is_empty() => {
            let created = input.job.created.unwrap_or(now);
            since(created, Some(JobActivity::Waiting))
        }
        // Of an earlier version of the operator: nothing is known of the time before.
        None => {
            let is_same = is_same_run && state == old.launcher_status;
            return (!is_same).then(|| since(now, activity));
        }
    };
    if accounting.current != activity || !is_same_run {
        advance(&mut accounting, input, activity, now);
    }
    Some(accounting)
}

/// Whether an idle job runs again. The status is written even if nothing else changes: later, no
/// Pod reports since when it was ready again, and the whole time would count as idle.
pub(super) fn runs_again(
    input: &StatusInput<'_>,
    (state, run): (JobState, &RunStatus),
    old: &IPUJobStatus,
) -> bool {
    let before = old.accounting.as_ref().and_then(|one| one.current);
    before == Some(JobActivity::Idle) && activity(input, state, run) == Some(JobActivity::Running)
}

/// An accounting that begins at this time.
fn since(begin: Timestamp, current: Option<JobActivity>) -> JobAccounting {
    JobAccounting {
        until: Time(whole_second(begin)),
        current,
        waiting: 0,
        forming: 0,
        starting: 0,
        running: 0,
        current_run: 0,
        wasted: 0,
        resetting: 0,
        idle: 0,
        restarting: 0,
        suspended: 0,
    }
}

/// Counts the time until now, from which on the job does something else.
fn advance(
    accounting: &mut JobAccounting,
    input: &StatusInput<'_>,
    next: Option<JobActivity>,
    now: Timestamp,
) {
    let begin = accounting.until.0;
    let now = whole_second(now).max(begin);
    let known = accounting
        .current
        .map(|before| known_changes(input.facts, before, begin));
    for (activity, at) in known.into_iter().flatten() {
        count(accounting, whole_second(at).min(now));
        accounting.current = Some(activity);
    }
    count(accounting, now);
    accounting.current = next;
    end_run(accounting, input.phase);
}

/// Counts the time until `at` as what the job does. A time before the last change counts as that of
/// the change.
fn count(accounting: &mut JobAccounting, at: Timestamp) {
    let begin = accounting.until.0;
    let at = at.max(begin);
    let seconds = at.as_second() - begin.as_second();
    accounting.until = Time(at);
    let Some(activity) = accounting.current else {
        return;
    };
    if activity == JobActivity::Running {
        add(&mut accounting.current_run, seconds);
    }
    add(
        match activity {
            JobActivity::Waiting => &mut accounting.waiting,
            JobActivity::Forming => &mut accounting.forming,
            JobActivity::Starting => &mut accounting.starting,
            JobActivity::Running => &mut accounting.running,
            JobActivity::Resetting => &mut accounting.resetting,
            JobActivity::Idle => &mut accounting.idle,
            JobActivity::Restarting => &mut accounting.restarting,
            JobActivity::Suspended => &mut accounting.suspended,
        },
        seconds,
    );
}

/// Counts the time of a run that has failed as wasted. Instances without a launcher can run for a
/// part of it, be reset, and run again.
fn end_run(accounting: &mut JobAccounting, phase: &Phase) {
    match phase {
        Phase::Waiting | Phase::Starting | Phase::Running => return,
        Phase::Ended(Outcome::Failed(_), _) => {
            let failed = accounting.current_run.clamp(0, accounting.running.max(0));
            accounting.running -= failed;
            add(&mut accounting.wasted, failed);
        }
        Phase::Ended(Outcome::Completed, _)
        | Phase::Restart(_)
        | Phase::Suspended
        | Phase::Reserving
        | Phase::Finished(_) => {}
    }
    accounting.current_run = 0;
}

/// Adds seconds. A status may have been written by hand.
fn add(sum: &mut i64, seconds: i64) {
    *sum = sum.saturating_add(seconds);
}

/// A time in a status has whole seconds.
fn whole_second(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}
