//! Pure: every change of the status of an IPUPartition.

mod attempts;
mod named_reasons;
mod waiting;

use ipu_api::ipupartition::{
    Attempt, AttemptOutcome, ControllerRef, IPUPartitionStatus, PartitionPhase,
};
use ipu_api::partition_conditions::{self, BUSY, CREATING, DISTURBED, DRAINING, MISSING, ready};
use jiff::Timestamp;

use super::observations::{HealthState, PartitionHealth};

pub use attempts::adoption_requested;
pub(crate) use attempts::{Choice, begun, disowned, refused, with_accounts, with_outcome};
pub(crate) use waiting::rejected;
pub use waiting::waiting;

/// The attempt whose partition the slot uses or will use.
pub fn current(status: &IPUPartitionStatus) -> Option<&Attempt> {
    let id = status.partition_id.as_deref()?;
    status.attempts.iter().find(|attempt| attempt.id == id)
}

/// The slot takes partition `id`, which its controller has.
pub fn adopted(status: &IPUPartitionStatus, id: &str, now: Timestamp) -> IPUPartitionStatus {
    let mut next = with_outcome(status, id, AttemptOutcome::Created, None);
    let controller = next
        .attempts
        .iter()
        .find(|attempt| attempt.id == id)
        .map(|attempt| attempt.controller.clone());
    let name = controller.as_ref().map_or("", |found| found.name.as_str());
    let message = format!("partition {id} on {name} is not ready yet");
    next.phase = PartitionPhase::Creating;
    next.partition_id = Some(id.to_owned());
    next.controller = controller;
    ready(next, false, CREATING, message, now)
}

/// Reports the health of the partition. A partition in error keeps its phase for a time, because
/// users' programs reset their own partitions.
pub(crate) fn with_health(
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
            next.first_ipu = health.first_ipu.or(status.first_ipu);
            ready(next, true, "Active", message, now)
        }
        HealthState::Busy | HealthState::Failed | HealthState::Removing => {
            let message = format!("{on} reports partition {id} in error: {}", errors(health));
            ready(next, false, DISTURBED, message, now)
        }
    }
}

/// Notes since when the controller is working on the partition, because that may never end.
pub(crate) fn busy(status: &IPUPartitionStatus, now: Timestamp) -> IPUPartitionStatus {
    let mut next = status.clone();
    let (id, on) = usable(status);
    let message = format!("{on} has an operation in progress on partition {id}");
    partition_conditions::set(&mut next, BUSY, "OperationUnderWay", message, now);
    next
}

/// Notes since when the controller lacks the partition: not by `Ready`, which a reset made false
/// long before.
pub(crate) fn missed(status: &IPUPartitionStatus, id: &str, now: Timestamp) -> IPUPartitionStatus {
    let (_, on) = usable(status);
    let message = format!("{on} reports that it has no partition {id}; checking again");
    let since = partition_conditions::missing_since(status).unwrap_or(now);
    let mut next = ready(status.clone(), false, DISTURBED, message.clone(), now);
    partition_conditions::set(&mut next, MISSING, "NotOnController", message, since);
    next
}

/// The partition has failed.
pub fn failed(
    status: &IPUPartitionStatus,
    reason: &str,
    message: String,
    now: Timestamp,
) -> IPUPartitionStatus {
    let mut next = status.clone();
    next.phase = PartitionPhase::Error;
    ready(next, false, reason, message, now)
}

/// The controller has the partition, or its state is unknown: it no longer counts as missing.
pub(crate) fn without_missing(status: &IPUPartitionStatus) -> IPUPartitionStatus {
    without(status, MISSING)
}

/// The controller has lost the partition. The attempt stays held until no Pod uses it: no other
/// owner gets these IPUs meanwhile.
pub fn vanished(status: &IPUPartitionStatus, id: &str, now: Timestamp) -> IPUPartitionStatus {
    let (_, on) = usable(status);
    let message = format!(
        "partition {id} vanished from {on}; a user removed it there, or the controller lost its \
         state"
    );
    let mut next = status.clone();
    next.partition_id = None;
    next.first_ipu = None;
    next.controller = None;
    end_round(&mut next);
    failed(&next, "Vanished", message, now)
}

/// The partition never became active, for this reason: it is released, and its controller counts as
/// refused in this round.
pub(crate) fn formation_failed(
    status: &IPUPartitionStatus,
    id: &str,
    reason: &str,
    now: Timestamp,
) -> IPUPartitionStatus {
    let (_, on) = usable(status);
    let message = format!("partition {id} did not form on {on}: {reason}");
    let next = with_outcome(status, id, AttemptOutcome::Created, Some(reason));
    replacing(&next, message, now)
}

/// A new partition replaces one that served its slot.
pub fn replaced(
    status: &IPUPartitionStatus,
    message: String,
    now: Timestamp,
) -> IPUPartitionStatus {
    let mut next = status.clone();
    end_round(&mut next);
    replacing(&next, message, now)
}

fn replacing(status: &IPUPartitionStatus, message: String, now: Timestamp) -> IPUPartitionStatus {
    let mut status = without_draining(status);
    status.partition_id = None;
    status.first_ipu = None;
    status.controller = None;
    status.phase = PartitionPhase::Pending;
    ready(status, false, "Replacing", message, now)
}

/// Records a reset before it is sent.
pub(crate) fn resetting(status: &IPUPartitionStatus, now: Timestamp) -> IPUPartitionStatus {
    let mut next = status.clone();
    let (id, on) = usable(status);
    let message = format!("partition {id} is being reset on {on}");
    next.phase = PartitionPhase::Resetting;
    ready(next, false, "Resetting", message, now)
}

/// Requests the owner to end the Pods that use the partition, because its controller is drained.
pub fn draining_requested(
    status: &IPUPartitionStatus,
    message: String,
    now: Timestamp,
) -> IPUPartitionStatus {
    let mut next = with_message(status, message.clone());
    partition_conditions::set(&mut next, DRAINING, "ControllerDrained", message, now);
    next
}

/// The partition stays on its controller.
pub(crate) fn without_draining(status: &IPUPartitionStatus) -> IPUPartitionStatus {
    without(status, DRAINING)
}

fn without(status: &IPUPartitionStatus, condition: &str) -> IPUPartitionStatus {
    let mut next = status.clone();
    next.conditions.retain(|one| one.type_ != condition);
    next
}

/// A recorded reset is postponed, because Pods use the partition.
pub(crate) fn reset_put_off(status: &IPUPartitionStatus, message: String) -> IPUPartitionStatus {
    let mut next = with_message(status, message);
    next.phase = PartitionPhase::Ready;
    next
}

/// Replaces the names and addresses of renamed controllers, and changed labels: new Pods of the
/// owner are scheduled by the label in the status. `current` returns the entry of a controller in
/// the list. `None`: nothing has changed.
pub(crate) fn with_current_entries(
    status: &IPUPartitionStatus,
    current: impl Fn(&ControllerRef) -> Option<ControllerRef>,
) -> Option<IPUPartitionStatus> {
    let changed = |known: &ControllerRef| current(known).filter(|entry| entry != known);
    let attempts = status.attempts.iter().map(|attempt| &attempt.controller);
    let mut all = attempts.chain(&status.controller);
    // Usually none has, and this is checked before each step.
    if !all.any(|known| changed(known).is_some()) {
        return None;
    }
    let mut next = status.clone();
    let attempts = next.attempts.iter_mut();
    let attempts = attempts.map(|attempt| &mut attempt.controller);
    for controller in attempts.chain(&mut next.controller) {
        if let Some(entry) = changed(controller) {
            *controller = entry;
        }
    }
    Some(next)
}

/// The reset of this generation was carried out, or a new partition made it unnecessary.
pub(crate) fn reset_observed(status: &IPUPartitionStatus, generation: i64) -> IPUPartitionStatus {
    let mut next = status.clone();
    next.observed_reset_generation = generation;
    next
}

/// The partition is being removed, or its removal is blocked for this reason.
pub(crate) fn releasing(
    status: &IPUPartitionStatus,
    message: String,
    now: Timestamp,
) -> IPUPartitionStatus {
    let mut next = status.clone();
    next.phase = PartitionPhase::Releasing;
    next.waiting.clear();
    ready(next, false, "Releasing", message, now)
}

/// Changes only the message.
pub(crate) fn with_message(status: &IPUPartitionStatus, message: String) -> IPUPartitionStatus {
    let mut next = status.clone();
    next.message = Some(message);
    next
}

/// The errors that a controller reports, in one line.
pub fn errors(health: &PartitionHealth) -> String {
    if health.errors.is_empty() {
        "it gives no reason".to_owned()
    } else {
        health.errors.join("; ")
    }
}

/// The id of the partition that the slot has, and the name of its controller.
pub fn usable(status: &IPUPartitionStatus) -> (&str, &str) {
    (
        status.partition_id.as_deref().unwrap_or_default(),
        status
            .controller
            .as_ref()
            .map_or("", |controller| controller.name.as_str()),
    )
}

/// Ends a round of attempts: earlier refusals do not count in the next one.
fn end_round(status: &mut IPUPartitionStatus) {
    status
        .attempts
        .retain(|attempt| attempt.outcome != AttemptOutcome::Refused);
}

#[cfg(test)]
mod tests;
