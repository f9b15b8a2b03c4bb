//! Pure: the life of a partition that is wanted: placed, formed, used, reset.

mod reset;

use std::time::Duration;

use ipu_api::ipupartition::{
    Attempt, IPUPartition, IPUPartitionSpec, IPUPartitionStatus, PartitionPhase,
};
use ipu_api::partition_conditions;
use jiff::{SignedDuration, Timestamp};

use super::leftovers::{self, Obstacle, Settling};
use super::observations::{
    Answer, HealthState, Intent, Observations, PartitionHealth, RemoteState,
};
use super::record;
use super::step::{Pace, Settings, Step, write_or_rest};
use super::surroundings::Leave;

/// How long a controller may be at work on a partition that was active once. A reset takes minutes at
/// most, and the call for one is given up after five: what takes twice that does not end any more.
const BUSY_LIMIT: Duration = Duration::from_mins(10);

/// The next step for a partition that is wanted.
pub(super) fn next(
    partition: &IPUPartition,
    observations: &Observations,
    settings: &Settings,
    now: Timestamp,
) -> Step {
    let status = partition.status.clone().unwrap_or_default();
    let obstacles = match leftovers::settle(partition, observations, true, now) {
        Settling::Do(step) => return *step,
        Settling::Done(obstacles) => obstacles,
    };
    let step = match record::current(&status) {
        Some(attempt) => hold(partition, &status, attempt, observations, settings, now),
        None => seek(partition, &status, &obstacles, observations, settings, now),
    };
    match step {
        Step::Rest(pace) => Step::Rest(with_leftovers(pace, &obstacles)),
        step => step,
    }
}

/// How soon to look again where something is left besides: its room is free only once it was seen to go.
fn with_leftovers(pace: Pace, obstacles: &[Obstacle]) -> Pace {
    match pace {
        _ if obstacles.iter().any(Obstacle::is_short) => Pace::Soon,
        Pace::Never if !obstacles.is_empty() => Pace::Blocked,
        pace => pace,
    }
}

/// The slot has a partition: look at it and follow what it does.
fn hold(
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
            let message = leftovers::unknown(attempt, remote_state, reason).describe();
            let unsure = record::noted(&record::found(status), message);
            return write_or_rest(partition, unsure, Pace::Blocked);
        }
        Some(RemoteState::Absent) => return lost(partition, status, id, settings, now),
        Some(RemoteState::Present(health)) => health,
    };
    let status = &record::found(status);
    match status.phase {
        PartitionPhase::Pending
        | PartitionPhase::Creating
        | PartitionPhase::Rejected
        | PartitionPhase::Releasing => form(partition, status, attempt, health, settings, now),
        PartitionPhase::Ready => serve(partition, status, health, observations, settings, now),
        PartitionPhase::Resetting => reset::follow(partition, status, health, observations, now),
        PartitionPhase::Error if reset::is_wanted(partition, status) => {
            reset::begin(partition, status, observations, now)
        }
        PartitionPhase::Error => match health.state {
            HealthState::Active => write(record::with_health(status, health, now)),
            HealthState::Busy | HealthState::Failed | HealthState::Removing => {
                write_or_rest(partition, status.clone(), Pace::Steady)
            }
        },
    }
}

/// The controller has nothing of the partition any more. Where nobody was told of it yet, another
/// takes its place; a user of it must hear that it is gone, once that is certain: a controller that
/// starts again may not know its partitions for a moment.
fn lost(
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
        | PartitionPhase::Releasing => write(record::stillborn(
            status,
            id,
            "it vanished before it was active",
            now,
        )),
        PartitionPhase::Ready | PartitionPhase::Resetting | PartitionPhase::Error
            if is_missing_for_long(status, settings, now) =>
        {
            write(record::vanished(status, id, now))
        }
        PartitionPhase::Ready | PartitionPhase::Resetting | PartitionPhase::Error => {
            write_or_rest(partition, record::missed(status, id, now), Pace::Soon)
        }
    }
}

/// It was made and is not active yet.
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
            let fresh = record::reset_observed(status, partition.spec.reset_generation);
            write(record::with_health(&fresh, health, now))
        }
        HealthState::Failed => write(record::stillborn(
            status,
            &attempt.id,
            &format!("it went to ERROR while forming: {}", record::errors(health)),
            now,
        )),
        HealthState::Removing => write(record::stillborn(
            status,
            &attempt.id,
            "it is being removed on its controller",
            now,
        )),
        HealthState::Busy if is_late => write(record::stillborn(
            status,
            &attempt.id,
            &format!("it was not active within {} s", settings.forming.as_secs()),
            now,
        )),
        HealthState::Busy => write_or_rest(
            partition,
            record::adopted(status, &attempt.id, now),
            Pace::Soon,
        ),
    }
}

/// It is in use, or ready to be.
fn serve(
    partition: &IPUPartition,
    status: &IPUPartitionStatus,
    health: &PartitionHealth,
    observations: &Observations,
    settings: &Settings,
    now: Timestamp,
) -> Step {
    let id = status.partition_id.as_deref().unwrap_or_default();
    // Those who hold up a reset must hear all the same that their partition is broken.
    let is_told = |pods: &[String]| !pods.is_empty() && health.state != HealthState::Active;
    if reset::is_wanted(partition, status) && !observations.users(id).is_some_and(is_told) {
        let current = match health.state {
            HealthState::Active => record::with_health(status, health, now),
            HealthState::Busy | HealthState::Failed | HealthState::Removing => status.clone(),
        };
        return reset::begin(partition, &current, observations, now);
    }
    match health.state {
        HealthState::Active => {
            let current = record::with_health(status, health, now);
            look_around(partition, &current, observations, settings, now)
        }
        HealthState::Busy if is_busy_for_long(status, now) => {
            let (id, on) = record::usable(status);
            let message = format!(
                "partition {id} cannot be used: {on} has been at work on it for {} min without end",
                BUSY_LIMIT.as_secs() / 60
            );
            write(record::failed(status, "InError", message, now))
        }
        // Users' programs reset their own partitions: not active is no failure by itself.
        HealthState::Busy => write_or_rest(partition, record::busy(status, now), Pace::Soon),
        HealthState::Failed | HealthState::Removing => {
            let disturbed = record::with_health(status, health, now);
            if is_disturbed_for_long(status, settings, now) {
                let message = disturbed.message.unwrap_or_default();
                write(record::failed(status, "InError", message, now))
            } else {
                write_or_rest(partition, disturbed, Pace::Soon)
            }
        }
    }
}

/// It is active. It stays, unless its siblings find no room or its controller is to be emptied.
fn look_around(
    partition: &IPUPartition,
    current: &IPUPartitionStatus,
    observations: &Observations,
    settings: &Settings,
    now: Timestamp,
) -> Step {
    let Some(surroundings) = observations.surroundings() else {
        return Step::LookAround;
    };
    let (id, on) = record::usable(current);
    // Of use by itself, where nothing is said.
    let gang = partition.spec.options.gang_size.unwrap_or(0);
    let alone_since = partition_conditions::ready_since(current).max(surroundings.lacking_since);
    let has_waited =
        alone_since.is_some_and(|since| has_passed(since, settings.gang_patience, now));
    let leaves = match &surroundings.leave {
        Leave::Now => Some(format!(
            "partition {id} leaves {on}, which is being drained"
        )),
        Leave::No | Leave::Later(_) if surroundings.held < gang && has_waited => Some(format!(
            "partition {id} is released: it is of use only with {} others, and {} of them found \
             no free capacity within {} s",
            gang - 1,
            gang - surroundings.held,
            settings.gang_patience.as_secs()
        )),
        Leave::No | Leave::Later(_) => None,
    };
    let Some(message) = leaves else {
        let stays = record::may_stay(current);
        let stays = match &surroundings.leave {
            Leave::Later(why) => record::noted(&stays, why.clone()),
            Leave::No | Leave::Now => stays,
        };
        let pace = if surroundings.held < gang || surroundings.leave != Leave::No {
            Pace::ForRoom
        } else {
            Pace::Steady
        };
        return write_or_rest(partition, stays, pace);
    };
    match observations.users(id) {
        None => Step::CountUsers(id.to_owned()),
        Some([]) => write(record::replaced(current, message, now)),
        Some(pods) if surroundings.leave == Leave::Now => {
            let message = format!("{message}, once {} live Pods have ended", pods.len());
            let asked = record::asked_to_leave(current, message, now);
            write_or_rest(partition, asked, Pace::Soon)
        }
        Some(_) => write_or_rest(partition, current.clone(), Pace::Steady),
    }
}

/// The slot has no partition: find a controller for one.
fn seek(
    partition: &IPUPartition,
    status: &IPUPartitionStatus,
    obstacles: &[Obstacle],
    observations: &Observations,
    settings: &Settings,
    now: Timestamp,
) -> Step {
    if status.phase == PartitionPhase::Error && !reset::is_wanted(partition, status) {
        return Step::Rest(Pace::Never);
    }
    if let Some(problem) = problem(&partition.spec).or_else(|| exhausted(status)) {
        return write_or_rest(
            partition,
            record::rejected(status, &problem, now),
            Pace::Never,
        );
    }
    if let Some(first) = obstacles.iter().find(|obstacle| !obstacle.allows_another()) {
        let noted = record::noted(status, first.describe());
        return write_or_rest(partition, noted, Pace::Blocked);
    }
    match observations.answer() {
        None => Step::Place,
        Some(Answer::Try(controller, by)) => {
            let generation = status.generation + 1;
            let id = settings.identity.partition_id(
                &partition.spec.owner,
                partition.spec.slot,
                partition.metadata.uid.as_deref().unwrap_or_default(),
                generation,
                observations.nonce(),
            );
            let place = (controller.clone(), by.clone());
            let begun = record::begun(status, place, id.clone(), generation, now);
            Step::Record(Box::new(begun), Intent::Create(id))
        }
        Some(Answer::Wait(reasons)) => {
            let reasons = leftovers::explained(reasons, obstacles);
            let waiting = record::waiting(status, &reasons, now);
            write_or_rest(partition, waiting, Pace::ForRoom)
        }
        // What it waits for is told already, and an answer comes within seconds.
        Some(Answer::Later(_)) if !status.waiting.is_empty() => Step::Rest(Pace::Soon),
        Some(Answer::Later(reasons)) => {
            let reasons = leftovers::explained(reasons, obstacles);
            let waiting = record::waiting(status, &reasons, now);
            write_or_rest(partition, waiting, Pace::Soon)
        }
        Some(Answer::Reject(why)) => {
            write_or_rest(partition, record::rejected(status, why, now), Pace::ForRoom)
        }
    }
}

/// What makes a spec impossible whatever the controllers are.
fn problem(spec: &IPUPartitionSpec) -> Option<String> {
    if !spec.ipus.is_power_of_two() {
        return Some(format!(
            "spec.ipus is {}; it must be a power of two, such as {}",
            spec.ipus,
            spec.ipus.checked_next_power_of_two().unwrap_or(1)
        ));
    }
    if spec.gcds == 0 || spec.gcds > spec.ipus {
        return Some(format!(
            "spec.gcds is {}; it must be from 1 to spec.ipus, which is {}",
            spec.gcds, spec.ipus
        ));
    }
    None
}

/// What makes a status impossible: no attempt can follow the last generation, which only a hand can
/// have written.
fn exhausted(status: &IPUPartitionStatus) -> Option<String> {
    (status.generation == i64::MAX).then(|| {
        format!(
            "status.generation is {}, the largest there is, and every attempt needs a larger one; \
             set it to a number below, but not to one that was used",
            status.generation
        )
    })
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
