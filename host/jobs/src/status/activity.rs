//! Pure: determines the activity of a job for its accounting, and the times of its changes.

use ipu_api::ipujob_status::{JobActivity, JobState, RunStatus};
use jiff::Timestamp;

use super::StatusInput;
use crate::facts::partition::PartitionState;
use crate::facts::readiness::Readiness;
use crate::facts::{Facts, Instance};
use crate::phase::Phase;

/// Determines the activity of a job from this state and run in its new status. `None`: it has
/// ended.
pub(super) fn activity(
    input: &StatusInput<'_>,
    state: JobState,
    run: &RunStatus,
) -> Option<JobActivity> {
    if input.phase.is_finished() {
        return None;
    }
    if state == JobState::Suspended {
        return Some(JobActivity::Suspended);
    }
    let facts = input.facts;
    // The Pods that exist belong to the run that has ended.
    let has_ended = matches!(input.phase, Phase::Ended(..) | Phase::Restart(_));
    let readiness = if has_ended {
        Readiness::Never
    } else {
        facts.readiness
    };
    let is_ready = matches!(readiness, Readiness::Ready(_));
    Some(if is_ready && state == JobState::Running {
        JobActivity::Running
    } else if !is_ready && (input.requests_reset || active(facts).any(is_resetting)) {
        JobActivity::Resetting
    } else if !is_ready && is_idle(facts, readiness, has_ended) {
        JobActivity::Idle
    } else if !is_ready && active(facts).any(|one| one.is_blocked(false)) {
        starting(facts)
    } else if state == JobState::Running && *input.phase == Phase::Running {
        JobActivity::Running
    } else if run.restarting.is_some() {
        restarting(facts, has_ended)
    } else {
        starting(facts)
    })
}

/// Returns the known changes since the job began the activity `before`, oldest first.
pub(super) fn known_changes(
    facts: &Facts,
    before: JobActivity,
    until: Timestamp,
) -> Vec<(JobActivity, Timestamp)> {
    let mut changes = Vec::new();
    let ready = last(active(facts).map(|one| one.times.ready));
    match before {
        JobActivity::Waiting | JobActivity::Forming => {
            let requested = |one: &Instance| one.times.requested.or(one.times.ready);
            let requested = last(active(facts).map(requested));
            changes.extend(requested.map(|at| (JobActivity::Forming, at)));
            changes.extend(ready.map(|at| (JobActivity::Starting, at)));
        }
        JobActivity::Resetting | JobActivity::Idle | JobActivity::Restarting => {
            let is_current = |at: &Timestamp| *at >= until || before == JobActivity::Restarting;
            if let Some(ready) = ready.filter(is_current) {
                let not_before = facts.run.not_before.as_ref();
                let starting = not_before.map_or(ready, |time| time.0.max(ready));
                changes.push((JobActivity::Restarting, ready));
                changes.push((JobActivity::Starting, starting));
            }
        }
        JobActivity::Starting | JobActivity::Running | JobActivity::Suspended => {}
    }
    match facts.readiness {
        Readiness::Lost(at) if active(facts).any(is_held) => {
            changes.push((JobActivity::Idle, at));
        }
        Readiness::Ready(Some(at)) if before == JobActivity::Idle && facts.has_run => {
            changes.push((JobActivity::Running, at));
        }
        Readiness::Lost(_) | Readiness::Ready(_) | Readiness::Never => {}
    }
    let began = active(facts).filter_map(|one| one.times.reset_began);
    if let Some(at) = began.min()
        && !matches!(facts.readiness, Readiness::Ready(_))
    {
        changes.push((JobActivity::Resetting, at));
    }
    changes
}

/// The instances whose partitions count. The partition of an instance that has ended may be
/// released already.
fn active(facts: &Facts) -> impl Iterator<Item = &Instance> {
    let instances = facts.instances.iter();
    instances.filter(|one| one.times.ready.is_some() || !one.ended())
}

fn is_resetting(instance: &Instance) -> bool {
    instance.times.is_resetting
}

/// Whether a partition is ready, and no Pod uses it any more that has used it.
fn is_idle(facts: &Facts, readiness: Readiness, has_ended: bool) -> bool {
    let was_ready = matches!(readiness, Readiness::Lost(_));
    active(facts).any(|one| {
        let is_left = one.used && (has_ended || one.has_lost_pod());
        is_held(one) && (was_ready || is_left)
    })
}

/// Whether a partition can be used, or could be until its V-IPU controller was drained.
fn is_held(instance: &Instance) -> bool {
    matches!(
        instance.partition.state,
        PartitionState::Ready(_) | PartitionState::Draining(..)
    )
}

/// The activity of a job between two runs.
fn restarting(facts: &Facts, has_ended: bool) -> JobActivity {
    let is_usable = |one: &Instance| one.partition.state.usable().is_some();
    if has_ended || facts.deadlines.in_backoff || !active(facts).all(is_usable) {
        JobActivity::Restarting
    } else {
        JobActivity::Starting
    }
}

/// The activity of a job before it runs.
fn starting(facts: &Facts) -> JobActivity {
    let is_requested = |one: &Instance| one.times.requested.is_some();
    if active(facts).all(|one| one.partition.state.placed().is_some()) {
        JobActivity::Starting
    } else if active(facts).all(is_requested) {
        JobActivity::Forming
    } else {
        JobActivity::Waiting
    }
}

/// The last of these times. `None` if one of them is missing, or if there are none.
fn last(times: impl Iterator<Item = Option<Timestamp>>) -> Option<Timestamp> {
    let times: Option<Vec<Timestamp>> = times.collect();
    times?.into_iter().max()
}
