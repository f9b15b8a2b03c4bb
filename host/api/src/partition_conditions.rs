//! Pure: the conditions of an IPUPartition, and since when they hold.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::condition;
use crate::ipupartition::IPUPartitionStatus;

/// Type of the one condition of an IPUPartition.
pub const READY: &str = "Ready";

/// Reason of `Ready` while a partition in use is in error or missing, for a time.
pub const DISTURBED: &str = "Disturbed";

/// Condition: the owner must end the Pods that use the partition, so that it can move.
pub const DRAINING: &str = "Draining";

/// Condition: the controller is at work on the partition, which cannot be used meanwhile.
pub const BUSY: &str = "Busy";

/// Condition: the controller reports that it does not have the partition, although it should.
pub const MISSING: &str = "Missing";

/// Reason of `Ready` while a controller makes the partition and nothing is in the way.
pub const CREATING: &str = "Creating";

/// Since when the controller has been seen at work on the partition, where it is.
pub fn busy_since(status: &IPUPartitionStatus) -> Option<Timestamp> {
    time_of(status, |one| one.type_ == BUSY && one.status == "True")
}

/// Time since when the controller has reported that it does not have the partition. `None`: it has
/// the partition.
pub fn missing_since(status: &IPUPartitionStatus) -> Option<Timestamp> {
    time_of(status, |one| one.type_ == MISSING && one.status == "True")
}

/// Time since when the owner must end the Pods that use the partition. `None`: it need not.
pub fn draining_since(status: &IPUPartitionStatus) -> Option<Timestamp> {
    time_of(status, |one| one.type_ == DRAINING && one.status == "True")
}

/// Since when the condition `Ready` has had this reason, where it has it.
pub fn since(status: &IPUPartitionStatus, reason: &str) -> Option<Timestamp> {
    time_of(status, |one| one.type_ == READY && one.reason == reason)
}

/// Since when the partition can be used, where it can.
pub fn ready_since(status: &IPUPartitionStatus) -> Option<Timestamp> {
    time_of(status, |one| one.type_ == READY && one.status == "True")
}

/// Since when the partition cannot be used, where that was ever written.
pub fn not_ready_since(status: &IPUPartitionStatus) -> Option<Timestamp> {
    time_of(status, |one| one.type_ == READY && one.status == "False")
}

/// Whether a controller is creating the partition, and reports no problem.
pub fn is_being_created(status: &IPUPartitionStatus) -> bool {
    let mut conditions = status.conditions.iter();
    conditions.any(|one| one.reason == CREATING && Some(&one.message) == status.message.as_ref())
}

/// The message of a pinned partition on a controller that is drained.
pub fn drain_waits(controller: &str) -> String {
    format!("{controller} is being drained, and waits until this partition is released")
}

/// Whether the drain of its controller waits until the partition is released, because it is pinned.
pub fn holds_drain(status: &IPUPartitionStatus) -> bool {
    let controller = status.controller.as_ref();
    let waits = controller.map(|controller| drain_waits(&controller.name));
    waits.is_some() && waits == status.message
}

/// Returns the reason of each V-IPU controller, or the last message if no controller has one.
pub fn waiting_reasons(status: &IPUPartitionStatus) -> Vec<String> {
    if status.waiting.is_empty() {
        return status.message.iter().cloned().collect();
    }
    let reasons = status.waiting.iter();
    reasons
        .map(|one| format!("{}: {}", one.controller, one.reason))
        .collect()
}

/// Returns the time of the last change of the condition that is so.
fn time_of(status: &IPUPartitionStatus, is_so: impl Fn(&Condition) -> bool) -> Option<Timestamp> {
    let found = status.conditions.iter().find(|one| is_so(one))?;
    Some(found.last_transition_time.0)
}

/// Sets message and condition. Whatever the partition turns into, it is not the operation that was
/// noted before, nor missing any more.
pub fn ready(
    mut status: IPUPartitionStatus,
    is_ready: bool,
    reason: &str,
    message: String,
    now: Timestamp,
) -> IPUPartitionStatus {
    let said = (reason, message.clone());
    let renewed = condition::renewed(&status.conditions, READY, is_ready, said, now);
    let is_stale = |one: &Condition| [READY, BUSY, MISSING].contains(&one.type_.as_str());
    status.conditions.retain(|other| !is_stale(other));
    status.conditions.push(renewed);
    status.message = Some(message);
    status
}

/// Sets a condition to True, with the current reason and message.
pub fn renew(status: &mut IPUPartitionStatus, type_: &str, said: (&str, String), now: Timestamp) {
    let renewed = condition::renewed(&status.conditions, type_, true, said, now);
    condition::put(&mut status.conditions, renewed);
}

/// Makes a condition true from `now` on, where it is not yet.
pub fn set(
    status: &mut IPUPartitionStatus,
    type_: &str,
    reason: &str,
    message: String,
    now: Timestamp,
) {
    let is_set = |one: &Condition| one.type_ == type_ && one.status == "True";
    if !status.conditions.iter().any(is_set) {
        status.conditions.retain(|one| one.type_ != type_);
        let set = condition::renewed(&[], type_, true, (reason, message), now);
        status.conditions.push(set);
    }
}
