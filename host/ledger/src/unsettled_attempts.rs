//! Pure: settles attempts with an unknown outcome, for example after a lost reply, and removes
//! partitions that the slot no longer uses.

use ipu_api::ipupartition::{
    Attempt, AttemptOutcome, IPUPartition, IPUPartitionStatus, PartitionPhase, WaitingReason,
};
use ipu_api::naming;

use super::observations::{
    HealthState, Intent, Observations, RemoteState, Reply, USERS_MAX, live_pods,
};
use super::step::{Requeue, Step};
use crate::status;

/// Progress with the unsettled attempts of one object.
#[derive(Debug, PartialEq)]
pub(crate) enum Settlement {
    /// The next step.
    Do(Box<Step>),
    /// Nothing more can be done now. These attempts are blocked; empty: all are settled.
    Done(Vec<Blocker>),
}

/// Reason why an attempt cannot be settled now.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Blocker {
    /// The controller does not answer.
    Unreachable { controller: String, reason: String },
    /// The controller denies access.
    Denied {
        id: String,
        controller: String,
        reason: String,
    },
    /// Live Pods use the partition.
    InUse {
        id: String,
        pods: Vec<String>,
        /// The controller, if it has lost the partition.
        missing_on: Option<String>,
    },
    /// No Pod uses the partition, and the controller does not remove it.
    Refusing {
        id: String,
        controller: String,
        reason: String,
    },
    /// No Pod uses the partition, and the controller is removing it.
    Busy { id: String, controller: String },
}

/// Settles the attempts of an object in the order in which they began, except the one that the slot
/// uses. The slot takes a created but unrecorded partition last, because Pods may still use an
/// earlier one.
pub(crate) fn settle_attempts(
    partition: &IPUPartition,
    observations: &Observations,
    is_wanted: bool,
    now: jiff::Timestamp,
) -> Settlement {
    let nothing = IPUPartitionStatus::default();
    let status = partition.status.as_ref().unwrap_or(&nothing);
    let spec = &partition.spec;
    let adoptable = naming::adoptable_partition(&spec.owner, spec.slot);
    let keep = if is_wanted {
        status.partition_id.as_deref()
    } else {
        None
    };
    let mut blockers = Vec::new();
    let mut made = None;
    for attempt in &status.attempts {
        let settled = match attempt.outcome {
            AttemptOutcome::Refused | AttemptOutcome::Removed => continue,
            AttemptOutcome::Created if keep == Some(attempt.id.as_str()) => continue,
            AttemptOutcome::Created => remove(status, attempt, observations),
            AttemptOutcome::Unknown
                if is_wanted && made.is_none() && is_to_take(status, attempt, observations) =>
            {
                made = Some(attempt.id.as_str());
                continue;
            }
            // Graphcore's operator gave it to its Pods.
            AttemptOutcome::Unknown
                if attempt.id == adoptable && is_lacking(attempt, observations) =>
            {
                remove(status, attempt, observations)
            }
            AttemptOutcome::Unknown => resolve_unknown(status, attempt, observations, is_wanted),
        };
        match settled {
            Ok(step) => return Settlement::Do(Box::new(step)),
            Err(blocker) => blockers.push(blocker),
        }
    }
    match made {
        Some(id) if blockers.iter().all(Blocker::allows_another) => {
            let adopted = status::adopted(status, id, now);
            // A partition that is active already needs one write, not two.
            let taken = observations.active(id).map_or(adopted.clone(), |health| {
                let fresh = status::reset_observed(&adopted, spec.reset_generation);
                status::with_health(&fresh, health, now)
            });
            Settlement::Do(Box::new(write(taken)))
        }
        Some(_) | None => Settlement::Done(blockers),
    }
}

/// The status without ids that no release can have generated for this object. `None`: it lists no
/// such id. A user wrote them, and the operator neither resets nor removes those partitions.
///
/// All other ids belong to this object, regardless of the release that generated them: a release
/// that takes over, or a cluster that was restored elsewhere, continues with them.
pub(crate) fn disowned(
    partition: &IPUPartition,
    now: jiff::Timestamp,
) -> Option<IPUPartitionStatus> {
    let status = partition.status.as_ref()?;
    let is_claimed =
        |attempt: &Attempt| attempt.is_held() || status.partition_id.as_ref() == Some(&attempt.id);
    let spec = &partition.spec;
    let adoptable = naming::adoptable_partition(&spec.owner, spec.slot);
    let is_strange = |attempt: &&Attempt| {
        let is_ours = attempt.id == adoptable || naming::is_of_owner(&attempt.id, &spec.owner);
        is_claimed(attempt) && !is_ours
    };
    let strange: Vec<&Attempt> = status.attempts.iter().filter(is_strange).collect();
    (!strange.is_empty()).then(|| {
        let ids = strange.iter().map(|attempt| attempt.id.as_str());
        ids.fold(status.clone(), |status, id| {
            status::disowned(&status, id, now)
        })
    })
}

impl Blocker {
    /// Whether the slot may get another partition meanwhile: only if no Pod can use the blocked
    /// one. It is never offered again, so no Pod starts to use it.
    pub(crate) fn allows_another(&self) -> bool {
        match self {
            Blocker::Unreachable { .. }
            | Blocker::Denied { .. }
            | Blocker::Refusing { .. }
            | Blocker::Busy { .. } => true,
            Blocker::InUse { .. } => false,
        }
    }

    /// The controller that still holds a partition.
    fn controller(&self) -> Option<&str> {
        match self {
            Blocker::Unreachable { controller, .. }
            | Blocker::Denied { controller, .. }
            | Blocker::Refusing { controller, .. }
            | Blocker::Busy { controller, .. } => Some(controller),
            Blocker::InUse { .. } => None,
        }
    }

    /// Requeue delay if this alone blocks the object.
    fn requeue(&self) -> Requeue {
        match self {
            Blocker::Busy { .. } => Requeue::Soon,
            Blocker::InUse { .. } => Requeue::ForPods,
            Blocker::Unreachable { .. } | Blocker::Denied { .. } | Blocker::Refusing { .. } => {
                Requeue::Blocked
            }
        }
    }

    /// The blocker in the words of a message.
    pub(crate) fn describe(&self) -> String {
        match self {
            Blocker::Unreachable { controller, reason } => {
                format!("{controller} does not answer ({reason}); retrying")
            }
            Blocker::Denied {
                id,
                controller,
                reason,
            } => format!("whether {controller} has partition {id} is not known: {reason}"),
            Blocker::InUse {
                id,
                pods,
                missing_on,
            } => {
                let some = pods.iter().take(USERS_MAX - 1);
                let some: Vec<&str> = some.map(String::as_str).collect();
                let more = if pods.len() > some.len() { ", …" } else { "" };
                let until = match missing_on {
                    Some(controller) => format!(
                        "{controller} has lost it, and the operator creates no partitions there until they have ended"
                    ),
                    None => "the operator removes it when they have ended".to_owned(),
                };
                format!(
                    "{} use partition {id} ({}{more}); {until}",
                    live_pods(pods),
                    some.join(", ")
                )
            }
            Blocker::Refusing {
                id,
                controller,
                reason,
            } => {
                format!("{controller} does not remove partition {id} ({reason}); retrying")
            }
            Blocker::Busy { id, controller } => format!("{controller} removes partition {id}"),
        }
    }
}

/// Requeue delay of an object with these blockers: the shortest. `None`: it has none.
pub(crate) fn requeue(blockers: &[Blocker]) -> Option<Requeue> {
    let is = |requeue: Requeue| blockers.iter().any(|one| one.requeue() == requeue);
    let all = [Requeue::Soon, Requeue::ForPods, Requeue::Blocked];
    all.into_iter().find(|requeue| is(*requeue))
}

/// The reasons of a guest, with the blockers that the guest does not know.
pub(crate) fn explained(reasons: &[WaitingReason], blockers: &[Blocker]) -> Vec<WaitingReason> {
    let mut reasons = reasons.to_vec();
    for reason in &mut reasons {
        let is_of_it = |one: &&Blocker| one.controller() == Some(reason.controller.as_str());
        if let Some(blocker) = blockers.iter().find(is_of_it) {
            reason.reason = blocker.describe();
        }
    }
    reasons
}

/// Whether the slot has no partition and can take this one.
fn is_to_take(status: &IPUPartitionStatus, attempt: &Attempt, observations: &Observations) -> bool {
    let id = attempt.id.as_str();
    let is_there = matches!(observations.remote_state(id), Some(RemoteState::Present(_)));
    is_vacant(status) && is_there && !observations.may(&Intent::Create(id.to_owned()))
}

/// Whether its state was read, and its controller does not show it.
fn is_lacking(attempt: &Attempt, observations: &Observations) -> bool {
    let remote_state = observations.remote_state(&attempt.id);
    remote_state.is_some_and(|remote_state| !matches!(remote_state, RemoteState::Present(_)))
}

/// Carries out a recorded attempt, or reads its outcome.
fn resolve_unknown(
    status: &IPUPartitionStatus,
    attempt: &Attempt,
    observations: &Observations,
    is_wanted: bool,
) -> Result<Step, Blocker> {
    let id = attempt.id.as_str();
    if is_wanted && observations.may(&Intent::Create(id.to_owned())) {
        return Ok(Step::Create(attempt.clone()));
    }
    match observations.remote_state(id) {
        None if matches!(observations.created(id), Some(Reply::NotSent(_))) => {
            Ok(write(not_made(status, attempt, observations)))
        }
        None => Ok(Step::ReadState(attempt.clone())),
        Some(
            remote_state @ (RemoteState::Unreachable(reason)
            | RemoteState::Denied(reason)
            | RemoteState::NotListed(reason)),
        ) => Err(unknown(attempt, remote_state, reason)),
        Some(RemoteState::Absent) => Ok(write(not_made(status, attempt, observations))),
        Some(RemoteState::Present(_)) => Ok(write(status::with_outcome(
            status,
            id,
            AttemptOutcome::Created,
            None,
        ))),
    }
}

/// The controller has refused the request of this reconcile. An earlier reconcile may have sent no
/// request, so the operator may request it again.
fn not_made(
    status: &IPUPartitionStatus,
    attempt: &Attempt,
    observations: &Observations,
) -> IPUPartitionStatus {
    let id = &attempt.id;
    match observations.created(id) {
        None => {
            let reason = "the controller does not have it";
            status::with_outcome(status, id, AttemptOutcome::Removed, Some(reason))
        }
        Some(Reply::Done) => {
            let reason = "it reported the partition as created, and does not have it";
            status::refused(status, id, Some(reason), false)
        }
        Some(reply @ (Reply::NotSent(error) | Reply::Exhausted(error) | Reply::Failed(error))) => {
            let is_exhausted = matches!(reply, Reply::Exhausted(_));
            status::refused(status, id, Some(error), is_exhausted)
        }
    }
}

/// Removes a partition that the slot does not use, when no Pod uses it.
fn remove(
    status: &IPUPartitionStatus,
    attempt: &Attempt,
    observations: &Observations,
) -> Result<Step, Blocker> {
    let (id, controller) = (attempt.id.as_str(), &attempt.controller.name);
    let Some(remote_state) = observations.remote_state(id) else {
        return Ok(Step::ReadState(attempt.clone()));
    };
    // Users count even if the controller is down or has lost the partition: Pods continue to use
    // it, and the attempt keeps its IPUs from others for as long.
    match observations.users(id) {
        None => return Ok(Step::CountUsers(id.to_owned())),
        Some([]) => {}
        Some(pods) => {
            return Err(Blocker::InUse {
                id: id.to_owned(),
                pods: pods.to_vec(),
                missing_on: (*remote_state == RemoteState::Absent).then(|| controller.clone()),
            });
        }
    }
    let health = match remote_state {
        RemoteState::Absent => return Ok(write(removed(status, attempt))),
        RemoteState::Unreachable(reason)
        | RemoteState::Denied(reason)
        | RemoteState::NotListed(reason) => {
            return Err(unknown(attempt, remote_state, reason));
        }
        RemoteState::Present(health) => health,
    };
    let busy = Blocker::Busy {
        id: id.to_owned(),
        controller: controller.clone(),
    };
    match (observations.removed(id), health.state) {
        (None, HealthState::Removing) | (Some(None), _) => Err(busy),
        (None, state) => Ok(Step::Remove {
            attempt: attempt.clone(),
            force: state == HealthState::Failed,
        }),
        (Some(Some(_)), HealthState::Removing) => Err(busy),
        (Some(Some(reason)), _) => Err(Blocker::Refusing {
            id: id.to_owned(),
            controller: controller.clone(),
            reason: reason.to_owned(),
        }),
    }
}

/// A partition that never became active counts as refused, so the next attempt chooses another
/// controller.
fn removed(status: &IPUPartitionStatus, attempt: &Attempt) -> IPUPartitionStatus {
    match attempt.reason {
        Some(_) => status::refused(status, &attempt.id, None, false),
        None => status::with_outcome(status, &attempt.id, AttemptOutcome::Removed, None),
    }
}

fn is_vacant(status: &IPUPartitionStatus) -> bool {
    status.partition_id.is_none()
        && match status.phase {
            PartitionPhase::Pending | PartitionPhase::Creating | PartitionPhase::Rejected => true,
            PartitionPhase::Ready
            | PartitionPhase::Resetting
            | PartitionPhase::Error
            | PartitionPhase::Releasing => false,
        }
}

/// The blocker of an attempt whose remote state is unknown.
pub(crate) fn unknown(attempt: &Attempt, remote_state: &RemoteState, reason: &str) -> Blocker {
    let (controller, reason) = (attempt.controller.name.clone(), reason.to_owned());
    match remote_state {
        RemoteState::Denied(_) => Blocker::Denied {
            id: attempt.id.clone(),
            controller,
            reason,
        },
        RemoteState::Absent
        | RemoteState::Present(_)
        | RemoteState::Unreachable(_)
        | RemoteState::NotListed(_) => Blocker::Unreachable { controller, reason },
    }
}

fn write(status: IPUPartitionStatus) -> Step {
    Step::Write(Box::new(status))
}
