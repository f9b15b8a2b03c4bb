//! Pure: the lifecycle of a desired partition: placement, creation, use, reset.

mod problem;
mod reset;

use std::time::Duration;

use ipu_api::ipupartition::{
    Attempt, AttemptOutcome, IPUPartition, IPUPartitionStatus, PartitionPhase,
};
use ipu_api::partition_conditions;
use ipu_placement::decision::PlacementDecision;
use ipu_placement::drain::Eviction;
use jiff::{SignedDuration, Timestamp};

use super::observations::{
    HealthState, Intent, Observations, PartitionHealth, RemoteState, live_pods,
};
use super::step::{Requeue, Settings, Step, write_if_changed};
use crate::status::{self, Choice};
use crate::unsettled_attempts::{self, Blocker, Settlement};

/// Limit of an operation on a partition that was active before. A reset takes minutes, and its call
/// has a deadline of five: an operation that takes twice as long does not end.
const BUSY_LIMIT: Duration = Duration::from_mins(10);

/// The next step for a desired partition.
pub fn next(
    partition: &IPUPartition,
    observations: &Observations,
    settings: &Settings,
    now: Timestamp,
) -> Step {
    let status = partition.status.clone().unwrap_or_default();
    let blockers = match unsettled_attempts::settle_attempts(partition, observations, true, now) {
        Settlement::Do(step) => return *step,
        Settlement::Done(blockers) => blockers,
    };
    let step = match status::current(&status) {
        Some(attempt) => follow(partition, &status, attempt, observations, settings, now),
        None => place(partition, &status, &blockers, observations, settings, now),
    };
    match step {
        Step::Done(requeue) => Step::Done(with_blockers(requeue, &blockers)),
        step => step,
    }
}

/// Requeue delay while other attempts are unsettled: their capacity is free only after their
/// removal was observed.
fn with_blockers(requeue: Requeue, blockers: &[Blocker]) -> Requeue {
    match unsettled_attempts::requeue(blockers) {
        Some(short @ Requeue::Soon) => short,
        Some(for_pods @ Requeue::ForPods) if requeue != Requeue::Soon => for_pods,
        Some(blocked) if requeue == Requeue::Never => blocked,
        Some(_) | None => requeue,
    }
}

/// Follows the state of the partition that the slot has.
fn follow(
    partition: &IPUPartition,
    status: &IPUPartitionStatus,
    attempt: &Attempt,
    observations: &Observations,
    settings: &Settings,
    now: Timestamp,
) -> Step {
    let id = attempt.id.as_str();
    if status.phase == PartitionPhase::Resetting
        && let Some(step) = reset::act(partition, status, attempt, observations)
    {
        return step;
    }
    let health = match observations.remote_state(id) {
        None => return Step::ReadState(attempt.clone()),
        Some(
            remote_state @ (RemoteState::Unreachable(reason)
            | RemoteState::Denied(reason)
            | RemoteState::NotListed(reason)),
        ) => {
            let message = unsettled_attempts::unknown(attempt, remote_state, reason).describe();
            let unsure = status::with_message(&status::without_missing(status), message);
            return write_if_changed(partition, unsure, Requeue::Blocked);
        }
        Some(RemoteState::Absent) => return handle_missing(partition, status, id, settings, now),
        Some(RemoteState::Present(health)) => health,
    };
    let status = &status::without_missing(status);
    match status.phase {
        PartitionPhase::Pending
        | PartitionPhase::Creating
        | PartitionPhase::Rejected
        | PartitionPhase::Releasing => form(partition, status, attempt, health, settings, now),
        PartitionPhase::Ready => serve(partition, status, health, observations, settings, now),
        PartitionPhase::Resetting => reset::follow(partition, status, health, observations, now),
        PartitionPhase::Error if reset::is_requested(partition, status) => {
            reset::begin(partition, status, observations, now)
        }
        PartitionPhase::Error => match health.state {
            HealthState::Active => write(status::with_health(status, health, now)),
            HealthState::Busy | HealthState::Failed | HealthState::Removing => {
                write_if_changed(partition, status.clone(), Requeue::Steady)
            }
        },
    }
}

/// The controller lacks the partition. If it was never ready, another one replaces it. Otherwise
/// its users learn that it is gone, after the grace period: a controller that restarts may not list
/// its partitions for a moment.
fn handle_missing(
    partition: &IPUPartition,
    status: &IPUPartitionStatus,
    id: &str,
    settings: &Settings,
    now: Timestamp,
) -> Step {
    match status.phase {
        PartitionPhase::Pending
        | PartitionPhase::Creating
        | PartitionPhase::Rejected
        | PartitionPhase::Releasing => write(status::formation_failed(
            status,
            id,
            "it vanished before it was active",
            now,
        )),
        PartitionPhase::Ready | PartitionPhase::Resetting | PartitionPhase::Error
            if is_missing_for_long(status, settings, now) =>
        {
            write(status::vanished(status, id, now))
        }
        PartitionPhase::Ready | PartitionPhase::Resetting | PartitionPhase::Error => {
            write_if_changed(partition, status::missed(status, id, now), Requeue::Soon)
        }
    }
}

/// Waits until a new partition is active.
fn form(
    partition: &IPUPartition,
    status: &IPUPartitionStatus,
    attempt: &Attempt,
    health: &PartitionHealth,
    settings: &Settings,
    now: Timestamp,
) -> Step {
    let is_late = attempt
        .started
        .as_ref()
        .is_some_and(|started| has_passed(started.0, settings.forming, now));
    match health.state {
        HealthState::Active => {
            let fresh = status::reset_observed(status, partition.spec.reset_generation);
            write(status::with_health(&fresh, health, now))
        }
        HealthState::Failed => write(status::formation_failed(
            status,
            &attempt.id,
            &format!("it went to ERROR while forming: {}", status::errors(health)),
            now,
        )),
        HealthState::Removing => write(status::formation_failed(
            status,
            &attempt.id,
            "it is being removed on its controller",
            now,
        )),
        HealthState::Busy if is_late => write(status::formation_failed(
            status,
            &attempt.id,
            &format!("it was not active within {} s", settings.forming.as_secs()),
            now,
        )),
        HealthState::Busy => write_if_changed(
            partition,
            status::adopted(status, &attempt.id, now),
            Requeue::Forming,
        ),
    }
}

/// Watches a partition that is in use, or ready for use.
fn serve(
    partition: &IPUPartition,
    status: &IPUPartitionStatus,
    health: &PartitionHealth,
    observations: &Observations,
    settings: &Settings,
    now: Timestamp,
) -> Step {
    let id = status.partition_id.as_deref().unwrap_or_default();
    // Users that delay a reset still have to learn that their partition is broken.
    let is_notified = |pods: &[String]| !pods.is_empty() && health.state != HealthState::Active;
    if reset::is_requested(partition, status) && !observations.users(id).is_some_and(is_notified) {
        let current = match health.state {
            HealthState::Active => status::with_health(status, health, now),
            HealthState::Busy | HealthState::Failed | HealthState::Removing => status.clone(),
        };
        return reset::begin(partition, &current, observations, now);
    }
    match health.state {
        HealthState::Active => {
            let current = status::with_health(status, health, now);
            evaluate_eviction(partition, &current, observations, settings, now)
        }
        HealthState::Busy if is_busy_for_long(status, now) => {
            let (id, on) = status::usable(status);
            let message = format!(
                "partition {id} cannot be used: an operation of {on} on it has not ended within {} min",
                BUSY_LIMIT.as_secs() / 60
            );
            write(status::failed(status, "InError", message, now))
        }
        // Users' programs reset their own partitions, so an inactive one has not necessarily
        // failed.
        HealthState::Busy => write_if_changed(partition, status::busy(status, now), Requeue::Soon),
        HealthState::Failed | HealthState::Removing => {
            let disturbed = status::with_health(status, health, now);
            if is_disturbed_for_long(status, settings, now) {
                let message = disturbed.message.unwrap_or_default();
                write(status::failed(status, "InError", message, now))
            } else {
                write_if_changed(partition, disturbed, Requeue::Soon)
            }
        }
    }
}

/// Keeps an active partition, unless its siblings find no capacity or its controller is drained.
fn evaluate_eviction(
    partition: &IPUPartition,
    current: &IPUPartitionStatus,
    observations: &Observations,
    settings: &Settings,
    now: Timestamp,
) -> Step {
    let Some(eviction_state) = observations.eviction() else {
        return Step::EvaluateEviction;
    };
    let (id, on) = status::usable(current);
    // No size of a gang: the partition is usable alone.
    let gang = partition.spec.options.gang_size.unwrap_or(0);
    let alone_since = partition_conditions::ready_since(current).max(eviction_state.lacking_since);
    let has_waited =
        alone_since.is_some_and(|since| has_passed(since, settings.gang_patience, now));
    let is_partial = eviction_state.held < gang;
    let leaves = match &eviction_state.eviction {
        Eviction::Now => Some(format!(
            "partition {id} leaves {on}, which is being drained"
        )),
        Eviction::No | Eviction::Later(_) if is_partial && has_waited => Some(format!(
            "partition {id} is released: it is useful only with {} others, and {} of them found \
             no free capacity within {} s",
            gang - 1,
            gang - eviction_state.held,
            settings.gang_patience.as_secs()
        )),
        Eviction::No | Eviction::Later(_) => None,
    };
    let Some(message) = leaves else {
        let stays = status::without_draining(current);
        let stays = match &eviction_state.eviction {
            Eviction::Later(why) => status::with_message(&stays, why.clone()),
            Eviction::No | Eviction::Now => stays,
        };
        // A release of IPUs triggers those that may be the next to leave a drained controller.
        let requeue = if is_partial {
            Requeue::ForCapacity
        } else {
            Requeue::Steady
        };
        return write_if_changed(partition, stays, requeue);
    };
    match observations.users(id) {
        None => Step::CountUsers(id.to_owned()),
        Some([]) => write(status::replaced(current, message, now)),
        Some(pods) if eviction_state.eviction == Eviction::Now => {
            let message = format!("{message}, once {} have ended", live_pods(pods));
            let asked = status::draining_requested(current, message, now);
            write_if_changed(partition, asked, Requeue::ForPods)
        }
        Some(_) => write_if_changed(partition, current.clone(), Requeue::Steady),
    }
}

/// Finds a controller for a slot without a partition.
fn place(
    partition: &IPUPartition,
    status: &IPUPartitionStatus,
    blockers: &[Blocker],
    observations: &Observations,
    settings: &Settings,
    now: Timestamp,
) -> Step {
    if status.phase == PartitionPhase::Error && !reset::is_requested(partition, status) {
        return Step::Done(Requeue::Never);
    }
    if let Some(problem) = problem::of_spec(&partition.spec).or_else(|| problem::exhausted(status))
    {
        return write_if_changed(
            partition,
            status::rejected(status, &problem, now),
            Requeue::Never,
        );
    }
    if let Some(first) = blockers.iter().find(|blocker| !blocker.allows_another()) {
        let noted = status::with_message(status, first.describe());
        return write_if_changed(partition, noted, Requeue::Blocked);
    }
    let Some(answer) = observations.answer() else {
        return Step::Place;
    };
    match &answer.decision {
        PlacementDecision::Try(controller, by) => {
            let generation = status.generation + 1;
            let id = settings.identity.partition_id(
                &partition.spec.owner,
                partition.spec.slot,
                partition.metadata.uid.as_deref().unwrap_or_default(),
                generation,
                answer.nonce,
            );
            let choice = Choice {
                controller,
                by,
                account: answer.account.as_deref(),
            };
            let begun = status::begun(status, &choice, id.clone(), generation, now);
            Step::Record(Box::new(begun), Intent::Create(id))
        }
        PlacementDecision::Wait(reasons) => {
            let reasons = unsettled_attempts::explained(reasons, blockers);
            let waiting = status::waiting(status, &reasons, now);
            let requeue = until_decided(&waiting);
            write_if_changed(partition, waiting, requeue)
        }
        PlacementDecision::Reject(why) => {
            let rejected = status::rejected(status, why, now);
            let requeue = until_decided(&rejected);
            write_if_changed(partition, rejected, requeue)
        }
    }
}

/// Placement decides again as soon as the request fits, and triggers the next reconcile. Only
/// attempts that have to be forgotten or settled are looked at again.
fn until_decided(status: &IPUPartitionStatus) -> Requeue {
    let is_settled = |attempt: &Attempt| attempt.outcome == AttemptOutcome::Removed;
    if status.attempts.iter().all(is_settled) {
        Requeue::Never
    } else {
        Requeue::ForCapacity
    }
}

fn is_disturbed_for_long(status: &IPUPartitionStatus, settings: &Settings, now: Timestamp) -> bool {
    let since = partition_conditions::since(status, partition_conditions::DISTURBED);
    since.is_some_and(|since| has_passed(since, settings.grace, now))
}

fn is_missing_for_long(status: &IPUPartitionStatus, settings: &Settings, now: Timestamp) -> bool {
    let since = partition_conditions::missing_since(status);
    since.is_some_and(|since| has_passed(since, settings.grace, now))
}

fn is_busy_for_long(status: &IPUPartitionStatus, now: Timestamp) -> bool {
    partition_conditions::busy_since(status).is_some_and(|since| has_passed(since, BUSY_LIMIT, now))
}

fn has_passed(since: Timestamp, limit: Duration, now: Timestamp) -> bool {
    let limit = SignedDuration::try_from(limit).unwrap_or(SignedDuration::MAX);
    now.duration_since(since) >= limit
}

fn write(status: IPUPartitionStatus) -> Step {
    Step::Write(Box::new(status))
}
