//! Pure: changes of the attempts in the status of an IPUPartition.

use ipu_api::ipupartition::{
    Attempt, AttemptOutcome, ControllerRef, DecidedBy, IPUPartitionStatus, PartitionPhase,
};
use ipu_api::partition_conditions::{CREATING, ready};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::replacing;
use crate::observations::{Observations, RemoteState};

/// Removed attempts that stay listed for users.
const HISTORY: usize = 8;

/// A chosen V-IPU controller.
pub(crate) struct Choice<'a> {
    /// The controller.
    pub controller: &'a ControllerRef,
    /// The policy that chose it.
    pub by: &'a DecidedBy,
    /// Short hash of the V-IPU user id of calls to it. `None`: they have none.
    pub account: Option<&'a str>,
}

/// Records an attempt to create partition `id` on a chosen controller.
pub(crate) fn begun(
    status: &IPUPartitionStatus,
    choice: &Choice<'_>,
    id: String,
    generation: i64,
    now: Timestamp,
) -> IPUPartitionStatus {
    let controller = choice.controller.clone();
    let message = format!("requesting partition {id} from {}", controller.name);
    let attempt = Attempt {
        decided_by: Some(choice.by.clone()),
        account: choice.account.map(str::to_owned),
        ..unsettled(controller, id, now)
    };
    tried(status, attempt, generation, message, now)
}

/// Requests the adoption of a partition of Graphcore's operator: an attempt with an unknown
/// outcome.
pub fn adoption_requested(
    status: &IPUPartitionStatus,
    controller: ControllerRef,
    account: Option<String>,
    id: String,
    now: Timestamp,
) -> IPUPartitionStatus {
    let message = format!(
        "adopting partition {id} on {}, which Graphcore's operator created",
        controller.name
    );
    let attempt = Attempt {
        account,
        ..unsettled(controller, id, now)
    };
    tried(status, attempt, status.generation + 1, message, now)
}

pub(super) fn unsettled(controller: ControllerRef, id: String, now: Timestamp) -> Attempt {
    Attempt {
        controller,
        id,
        outcome: AttemptOutcome::Unknown,
        reason: None,
        exhausted: None,
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
    next.first_ipu = None;
    next.controller = None;
    next.attempts.push(attempt);
    forget_old(&mut next.attempts);
    ready(next, false, CREATING, message, now)
}

/// Sets the outcome of the attempt `id`. The slot no longer uses an attempt that has ended.
pub(crate) fn with_outcome(
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

/// The controller has refused the attempt `id`, or its partition never became active.
/// `is_exhausted`: it lacks free IPUs.
pub(crate) fn refused(
    status: &IPUPartitionStatus,
    id: &str,
    reason: Option<&str>,
    is_exhausted: bool,
) -> IPUPartitionStatus {
    let mut next = with_outcome(status, id, AttemptOutcome::Refused, reason);
    for attempt in next.attempts.iter_mut().filter(|attempt| attempt.id == id) {
        attempt.exhausted = Some(is_exhausted);
    }
    next
}

/// Notes the accounts that were shown the partitions of the attempts. `None`: the status contains
/// them already. A partition that an account was shown is not hidden from it later. For a partition
/// that was adopted, or requested by another V-IPU user, this is the only way to find out that it
/// is gone.
pub(crate) fn with_accounts(
    status: &IPUPartitionStatus,
    observations: &Observations,
) -> Option<IPUPartitionStatus> {
    let mut next = status.clone();
    for attempt in &mut next.attempts {
        if let Some(RemoteState::Present(health)) = observations.remote_state(&attempt.id) {
            attempt.account.clone_from(&health.account);
        }
    }
    (next != *status).then_some(next)
}

/// The operator did not generate the id for this object, and does not touch that partition.
pub(crate) fn disowned(
    status: &IPUPartitionStatus,
    id: &str,
    now: Timestamp,
) -> IPUPartitionStatus {
    let why = "ignored: the operator did not generate this id for this object";
    let next = with_outcome(status, id, AttemptOutcome::Removed, Some(why));
    if status.partition_id.as_deref() != Some(id) {
        return next;
    }
    let message = format!(
        "status.partitionId is {id:?}, which the operator did not generate for this object; the operator \
         ignores that partition, and creates another one"
    );
    replacing(&next, message, now)
}

/// Drops the oldest removed attempts. Refused ones stay: they are the controllers that this round
/// has tried.
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
