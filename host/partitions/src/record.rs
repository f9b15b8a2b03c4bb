//! Pure: every change that is ever made to the status of an IPUPartition.

mod waiting;

use std::collections::BTreeMap;

use ipu_api::ipupartition::{
    Attempt, AttemptOutcome, ControllerRef, DecidedBy, IPUPartitionStatus, PartitionPhase,
};
use ipu_api::partition_conditions::{self, BUSY, CREATING, DISTURBED, DRAINING, MISSING, ready};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::observations::{HealthState, PartitionHealth};

pub(super) use waiting::{rejected, waiting};

/// Removed attempts that stay listed for people to read.
const HISTORY: usize = 8;

/// The attempt whose partition the slot uses or is about to use.
pub fn current(status: &IPUPartitionStatus) -> Option<&Attempt> {
    let id = status.partition_id.as_deref()?;
    status.attempts.iter().find(|attempt| attempt.id == id)
}

/// The status that is written before a controller, chosen by `by`, is asked to make partition `id`.
pub(super) fn begun(
    status: &IPUPartitionStatus,
    (controller, by): (ControllerRef, DecidedBy),
    id: String,
    generation: i64,
    now: Timestamp,
) -> IPUPartitionStatus {
    let message = format!("asking {} for partition {id}", controller.name);
    let attempt = Attempt {
        decided_by: Some(by),
        ..unsettled(controller, id, now)
    };
    tried(status, attempt, generation, message, now)
}

/// The status by which an admin has a partition of Graphcore's operator taken over: as of one that was asked
/// for, and whose end is not known.
pub fn taken_over(
    status: &IPUPartitionStatus,
    (controller, account): (ControllerRef, Option<String>),
    id: String,
    now: Timestamp,
) -> IPUPartitionStatus {
    let message = format!(
        "taking over partition {id} on {}, which Graphcore's operator made",
        controller.name
    );
    let attempt = Attempt {
        account,
        ..unsettled(controller, id, now)
    };
    tried(status, attempt, status.generation + 1, message, now)
}

fn unsettled(controller: ControllerRef, id: String, now: Timestamp) -> Attempt {
    Attempt {
        controller,
        id,
        outcome: AttemptOutcome::Unknown,
        reason: None,
        started: Some(Time(now)),
        decided_by: None,
        account: None,
    }
}

fn tried(
    status: &IPUPartitionStatus,
    attempt: Attempt,
    generation: i64,
    message: String,
    now: Timestamp,
) -> IPUPartitionStatus {
    let mut next = status.clone();
    next.generation = generation;
    next.phase = PartitionPhase::Creating;
    next.partition_id = None;
    next.controller = None;
    next.attempts.push(attempt);
    forget_old(&mut next.attempts);
    ready(next, false, CREATING, message, now)
}

/// The controller has partition `id`, and the slot takes it.
pub(super) fn adopted(status: &IPUPartitionStatus, id: &str, now: Timestamp) -> IPUPartitionStatus {
    let mut next = with_outcome(status, id, AttemptOutcome::Created, None);
    let controller = next
        .attempts
        .iter()
        .find(|attempt| attempt.id == id)
        .map(|attempt| attempt.controller.clone());
    let name = controller.as_ref().map_or("", |found| found.name.as_str());
    let message = format!("partition {id} forms on {name}");
    next.phase = PartitionPhase::Creating;
    next.partition_id = Some(id.to_owned());
    next.controller = controller;
    ready(next, false, CREATING, message, now)
}

/// How the attempt at `id` ended. An attempt that ended is no longer the one that the slot uses.
pub(super) fn with_outcome(
    status: &IPUPartitionStatus,
    id: &str,
    outcome: AttemptOutcome,
    reason: Option<&str>,
) -> IPUPartitionStatus {
    let mut next = status.clone();
    for attempt in next.attempts.iter_mut().filter(|attempt| attempt.id == id) {
        attempt.outcome = outcome;
        if reason.is_some() {
            attempt.reason = reason.map(ToOwned::to_owned);
        }
    }
    next
}

/// The partition as its controller shows it: active, or wanted and used and yet in error. In error
/// it stays as it is for a time, since users' programs reset their own partitions.
pub(super) fn with_health(
    status: &IPUPartitionStatus,
    health: &PartitionHealth,
    now: Timestamp,
) -> IPUPartitionStatus {
    let mut next = status.clone();
    let (id, on) = usable(status);
    next.auto_resets.clone_from(&health.auto_resets);
    match health.state {
        HealthState::Active => {
            let message = format!("partition {id} is active on {on}");
            next.phase = PartitionPhase::Ready;
            next.waiting.clear();
            ready(next, true, "Active", message, now)
        }
        HealthState::Busy | HealthState::Failed | HealthState::Removing => {
            let message = format!("{on} reports partition {id} in error: {}", errors(health));
            ready(next, false, DISTURBED, message, now)
        }
    }
}

/// The partition is used or was reset, and its controller is at work on it. Since when is noted, as
/// that may never end.
pub(super) fn busy(status: &IPUPartitionStatus, now: Timestamp) -> IPUPartitionStatus {
    let mut next = status.clone();
    let (id, on) = usable(status);
    let message = format!("{on} is at work on partition {id}");
    partition_conditions::set(&mut next, BUSY, "OperationUnderWay", message, now);
    next
}

/// The partition is in use or was reset, and its controller has nothing of it at this moment. Since when
/// is noted apart from `Ready`, which a reset has made false long before.
pub(super) fn missed(status: &IPUPartitionStatus, id: &str, now: Timestamp) -> IPUPartitionStatus {
    let (_, on) = usable(status);
    let message = format!("{on} says that it has no partition {id}; looking again");
    let since = partition_conditions::missing_since(status).unwrap_or(now);
    let mut next = ready(status.clone(), false, DISTURBED, message.clone(), now);
    partition_conditions::set(&mut next, MISSING, "NotOnController", message, since);
    next
}

/// The partition is wanted, and cannot be used any more.
pub(super) fn failed(
    status: &IPUPartitionStatus,
    reason: &str,
    message: String,
    now: Timestamp,
) -> IPUPartitionStatus {
    let mut next = status.clone();
    next.phase = PartitionPhase::Error;
    ready(next, false, reason, message, now)
}

/// The controller has the partition, or does not say so: that it was missing before counts no more.
pub(super) fn found(status: &IPUPartitionStatus) -> IPUPartitionStatus {
    without(status, MISSING)
}

/// The partition is gone although it was wanted. The attempt stays held until no Pod uses it: what they
/// use is nobody else's, whatever the controller knows of it.
pub(super) fn vanished(
    status: &IPUPartitionStatus,
    id: &str,
    now: Timestamp,
) -> IPUPartitionStatus {
    let (_, on) = usable(status);
    let message = format!(
        "partition {id} vanished from {on}; a user removed it there, or the controller lost its \
         state"
    );
    let mut next = status.clone();
    next.partition_id = None;
    next.controller = None;
    end_round(&mut next);
    failed(&next, "Vanished", message, now)
}

/// The partition never became active: it is given up, and its controller is not asked again in
/// this round, for the reason given.
pub(super) fn stillborn(
    status: &IPUPartitionStatus,
    id: &str,
    reason: &str,
    now: Timestamp,
) -> IPUPartitionStatus {
    let (_, on) = usable(status);
    let message = format!("partition {id} did not form on {on}: {reason}");
    let next = with_outcome(status, id, AttemptOutcome::Created, Some(reason));
    set_aside(&next, message, now)
}

/// The partition served its slot and is to be replaced by a fresh one.
pub(super) fn replaced(
    status: &IPUPartitionStatus,
    message: String,
    now: Timestamp,
) -> IPUPartitionStatus {
    let mut next = status.clone();
    end_round(&mut next);
    set_aside(&next, message, now)
}

/// The id is none that the operator gave this object: whatever it names is left alone.
pub(super) fn disowned(
    status: &IPUPartitionStatus,
    id: &str,
    now: Timestamp,
) -> IPUPartitionStatus {
    let why = "left alone: the operator did not give this id to this object";
    let next = with_outcome(status, id, AttemptOutcome::Removed, Some(why));
    if status.partition_id.as_deref() != Some(id) {
        return next;
    }
    let message = format!(
        "status.partitionId is {id:?}, which is none that the operator gave this object; it is left \
         alone, and another partition is made"
    );
    set_aside(&next, message, now)
}

fn set_aside(status: &IPUPartitionStatus, message: String, now: Timestamp) -> IPUPartitionStatus {
    let mut status = may_stay(status);
    status.partition_id = None;
    status.controller = None;
    status.phase = PartitionPhase::Pending;
    ready(status, false, "Replacing", message, now)
}

/// The status that is written before a controller is asked to reset the partition.
pub(super) fn resetting(status: &IPUPartitionStatus, now: Timestamp) -> IPUPartitionStatus {
    let mut next = status.clone();
    let (id, on) = usable(status);
    let message = format!("partition {id} is being reset on {on}");
    next.phase = PartitionPhase::Resetting;
    ready(next, false, "Resetting", message, now)
}

/// The owner is asked to end the Pods that use the partition, since it is to move.
pub fn asked_to_leave(
    status: &IPUPartitionStatus,
    message: String,
    now: Timestamp,
) -> IPUPartitionStatus {
    let mut next = noted(status, message.clone());
    partition_conditions::set(&mut next, DRAINING, "ControllerDrained", message, now);
    next
}

/// The partition may stay after all.
pub(super) fn may_stay(status: &IPUPartitionStatus) -> IPUPartitionStatus {
    without(status, DRAINING)
}

fn without(status: &IPUPartitionStatus, condition: &str) -> IPUPartitionStatus {
    let mut next = status.clone();
    next.conditions.retain(|one| one.type_ != condition);
    next
}

/// The reset that was written down is not begun, since the partition is in use after all.
pub(super) fn reset_put_off(status: &IPUPartitionStatus, message: String) -> IPUPartitionStatus {
    let mut next = noted(status, message);
    next.phase = PartitionPhase::Ready;
    next
}

/// The status in which `account` is that under which a controller is asked for partition `id`, since it has
/// shown the partition to that; none where it says so already.
pub(super) fn shown_to(
    status: &IPUPartitionStatus,
    id: &str,
    account: Option<&str>,
) -> Option<IPUPartitionStatus> {
    let mut next = status.clone();
    for attempt in next.attempts.iter_mut().filter(|one| one.id == id) {
        attempt.account = account.map(str::to_owned);
    }
    (next != *status).then_some(next)
}

/// The status in which each controller of `renamed` has its new name and address; none where it names none
/// of them.
pub(super) fn moved(
    status: &IPUPartitionStatus,
    renamed: &BTreeMap<String, ControllerRef>,
) -> Option<IPUPartitionStatus> {
    let attempts = status.attempts.iter().map(|one| &one.controller);
    let mut all = attempts.chain(&status.controller);
    // Mostly none is, and this is asked before each step.
    if !all.any(|one| renamed.contains_key(&one.name)) {
        return None;
    }
    let mut next = status.clone();
    let attempts = next.attempts.iter_mut().map(|one| &mut one.controller);
    for controller in attempts.chain(&mut next.controller) {
        if let Some(new) = renamed.get(&controller.name) {
            controller.clone_from(new);
        }
    }
    Some(next)
}

/// The reset of this generation was carried out, or made needless by a fresh partition.
pub(super) fn reset_observed(status: &IPUPartitionStatus, generation: i64) -> IPUPartitionStatus {
    let mut next = status.clone();
    next.observed_reset_generation = generation;
    next
}

/// The partition is on its way out, or held up on it for the reason given.
pub(super) fn releasing(
    status: &IPUPartitionStatus,
    message: String,
    now: Timestamp,
) -> IPUPartitionStatus {
    let mut next = status.clone();
    next.phase = PartitionPhase::Releasing;
    next.waiting.clear();
    ready(next, false, "Releasing", message, now)
}

/// Nothing changes but what is said of it.
pub(super) fn noted(status: &IPUPartitionStatus, message: String) -> IPUPartitionStatus {
    let mut next = status.clone();
    next.message = Some(message);
    next
}

/// What a controller says is wrong, in one line.
pub(super) fn errors(health: &PartitionHealth) -> String {
    if health.errors.is_empty() {
        "it gives no reason".to_owned()
    } else {
        health.errors.join("; ")
    }
}

/// The id of the partition that the slot has, and the name of its controller.
pub(super) fn usable(status: &IPUPartitionStatus) -> (&str, &str) {
    (
        status.partition_id.as_deref().unwrap_or_default(),
        status
            .controller
            .as_ref()
            .map_or("", |controller| controller.name.as_str()),
    )
}

/// Refused attempts stay, since they say which controllers this round has tried already.
fn forget_old(attempts: &mut Vec<Attempt>) {
    let is_removed = |attempt: &Attempt| attempt.outcome == AttemptOutcome::Removed;
    let removed = attempts.iter().filter(|one| is_removed(one)).count();
    let mut surplus = removed.saturating_sub(HISTORY);
    attempts.retain(|attempt| {
        let drop = surplus > 0 && is_removed(attempt);
        surplus -= usize::from(drop);
        !drop
    });
}

/// The slot was served or lost its partition: who refused it before says nothing of the next round.
fn end_round(status: &mut IPUPartitionStatus) {
    status
        .attempts
        .retain(|attempt| attempt.outcome != AttemptOutcome::Refused);
}

#[cfg(test)]
mod tests;
