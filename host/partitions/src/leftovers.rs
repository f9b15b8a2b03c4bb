//! Pure: settles attempts whose end is not known and partitions that nobody uses any more.

use ipu_api::ipupartition::{
    Attempt, AttemptOutcome, IPUPartition, IPUPartitionStatus, PartitionPhase, WaitingReason,
};
use ipu_api::naming;

use super::observations::{HealthState, Intent, Observations, RemoteState, Reply};
use super::record;
use super::step::Step;

/// How far the leftovers of one object are settled.
#[derive(Debug, PartialEq)]
pub(super) enum Settling {
    /// This comes first.
    Do(Box<Step>),
    /// Nothing more can be done now; these are in the way, and may be none.
    Done(Vec<Obstacle>),
}

/// Why something is still on a controller.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Obstacle {
    /// Its controller does not answer.
    Unreachable { controller: String, reason: String },
    /// Its controller does not let the operator see it.
    Denied {
        id: String,
        controller: String,
        reason: String,
    },
    /// Live Pods use it.
    InUse {
        id: String,
        pods: Vec<String>,
        /// The controller that has nothing of it any more, where that is so.
        missing_on: Option<String>,
    },
    /// Its controller does not remove it, and no Pod uses it.
    Refusing {
        id: String,
        controller: String,
        reason: String,
    },
    /// Its controller is at work on it, and no Pod uses it.
    Busy { id: String, controller: String },
}

/// The first thing to do about leftovers. `keep` is the attempt that the slot uses, if it still
/// wants one; everything else that may be on a controller is settled, in the order in which it was
/// begun. What was made and not noted yet is taken last: Pods may still use what was given up.
pub(super) fn settle(
    partition: &IPUPartition,
    observations: &Observations,
    is_wanted: bool,
    now: jiff::Timestamp,
) -> Settling {
    let nothing = IPUPartitionStatus::default();
    let status = partition.status.as_ref().unwrap_or(&nothing);
    let spec = &partition.spec;
    let adoptable = naming::adoptable_partition(&spec.owner, spec.slot);
    let keep = if is_wanted {
        status.partition_id.as_deref()
    } else {
        None
    };
    let mut obstacles = Vec::new();
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
            // Its Pods were told of it by Graphcore's operator.
            AttemptOutcome::Unknown
                if attempt.id == adoptable && is_lacking(attempt, observations) =>
            {
                remove(status, attempt, observations)
            }
            AttemptOutcome::Unknown => find_out(status, attempt, observations, is_wanted),
        };
        match settled {
            Ok(step) => return Settling::Do(Box::new(step)),
            Err(obstacle) => obstacles.push(obstacle),
        }
    }
    match made {
        Some(id) if obstacles.iter().all(Obstacle::allows_another) => {
            let adopted = record::adopted(status, id, now);
            // What is active when it is first seen takes one write, not two.
            let taken = observations.active(id).map_or(adopted.clone(), |health| {
                let fresh = record::reset_observed(&adopted, spec.reset_generation);
                record::with_health(&fresh, health, now)
            });
            Settling::Do(Box::new(write(taken)))
        }
        Some(_) | None => Settling::Done(obstacles),
    }
}

/// The status without claims on ids of a form that no release gives this object, where it makes any:
/// somebody wrote them by hand, and what they name is not ours to reset or to remove.
///
/// Whatever else the status lists is this object's, whichever release gave the id: a release that takes
/// over from another one, or a cluster that was restored elsewhere, goes on with it.
pub(super) fn disowned(
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
            record::disowned(&status, id, now)
        })
    })
}

impl Obstacle {
    /// Whether another partition may be made for the slot meanwhile: only where what is left can
    /// certainly not be in use by its Pods. It is never offered again, so that none begins to use it.
    pub(super) fn allows_another(&self) -> bool {
        match self {
            Obstacle::Unreachable { .. }
            | Obstacle::Denied { .. }
            | Obstacle::Refusing { .. }
            | Obstacle::Busy { .. } => true,
            Obstacle::InUse { .. } => false,
        }
    }

    /// The controller that still holds something, where that is what is in the way.
    fn controller(&self) -> Option<&str> {
        match self {
            Obstacle::Unreachable { controller, .. }
            | Obstacle::Denied { controller, .. }
            | Obstacle::Refusing { controller, .. }
            | Obstacle::Busy { controller, .. } => Some(controller),
            Obstacle::InUse { .. } => None,
        }
    }

    /// Whether the way will be free by itself within seconds.
    pub(super) fn is_short(&self) -> bool {
        match self {
            Obstacle::InUse { .. } | Obstacle::Busy { .. } => true,
            Obstacle::Unreachable { .. } | Obstacle::Denied { .. } | Obstacle::Refusing { .. } => {
                false
            }
        }
    }

    /// The obstacle as a user should read it.
    pub(super) fn describe(&self) -> String {
        match self {
            Obstacle::Unreachable { controller, reason } => {
                format!("{controller} does not answer ({reason}); retrying")
            }
            Obstacle::Denied {
                id,
                controller,
                reason,
            } => format!("whether {controller} has partition {id} is not known: {reason}"),
            Obstacle::InUse {
                id,
                pods,
                missing_on,
            } => {
                let some: Vec<&str> = pods.iter().take(4).map(String::as_str).collect();
                let more = if pods.len() > some.len() { ", …" } else { "" };
                let until = match missing_on {
                    Some(controller) => format!(
                        "{controller} has lost it, and nothing is made there until they are gone"
                    ),
                    None => "it is removed once they are gone".to_owned(),
                };
                format!(
                    "{} live Pods use partition {id} ({}{more}); {until}",
                    pods.len(),
                    some.join(", ")
                )
            }
            Obstacle::Refusing {
                id,
                controller,
                reason,
            } => {
                format!("{controller} does not remove partition {id} ({reason}); retrying")
            }
            Obstacle::Busy { id, controller } => format!("{controller} removes partition {id}"),
        }
    }
}

/// The reasons of a policy, which knows no more of these obstacles than that a controller was tried.
pub(super) fn explained(reasons: &[WaitingReason], obstacles: &[Obstacle]) -> Vec<WaitingReason> {
    let mut reasons = reasons.to_vec();
    for reason in &mut reasons {
        let is_of_it = |one: &&Obstacle| one.controller() == Some(reason.controller.as_str());
        if let Some(obstacle) = obstacles.iter().find(is_of_it) {
            reason.reason = obstacle.describe();
        }
    }
    reasons
}

/// Whether the slot has nothing, and this is there for it.
fn is_to_take(status: &IPUPartitionStatus, attempt: &Attempt, observations: &Observations) -> bool {
    let id = attempt.id.as_str();
    let is_there = matches!(observations.remote_state(id), Some(RemoteState::Present(_)));
    is_vacant(status) && is_there && !observations.may(&Intent::Create(id.to_owned()))
}

/// Whether its controller was asked, and does not show it.
fn is_lacking(attempt: &Attempt, observations: &Observations) -> bool {
    let remote_state = observations.remote_state(&attempt.id);
    remote_state.is_some_and(|remote_state| !matches!(remote_state, RemoteState::Present(_)))
}

/// An attempt that was written down: act on it, or ask what became of it.
fn find_out(
    status: &IPUPartitionStatus,
    attempt: &Attempt,
    observations: &Observations,
    is_wanted: bool,
) -> Result<Step, Obstacle> {
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
        Some(RemoteState::Present(_)) => Ok(write(record::with_outcome(
            status,
            id,
            AttemptOutcome::Created,
            None,
        ))),
    }
}

/// Where this reconcile asked for it, the controller refused. Where an earlier one did, whether it
/// ever asked is not known, so that its controller may be asked again.
fn not_made(
    status: &IPUPartitionStatus,
    attempt: &Attempt,
    observations: &Observations,
) -> IPUPartitionStatus {
    let (outcome, reason) = match observations.created(&attempt.id) {
        None => (
            AttemptOutcome::Removed,
            "nothing of it was found".to_owned(),
        ),
        Some(Reply::Done) => (
            AttemptOutcome::Refused,
            "it answered that the partition was made, and has nothing of it".to_owned(),
        ),
        Some(Reply::NotSent(error) | Reply::Failed(error)) => {
            (AttemptOutcome::Refused, error.clone())
        }
    };
    record::with_outcome(status, &attempt.id, outcome, Some(&reason))
}

/// A partition that the slot does not use: removed once no Pod uses it.
fn remove(
    status: &IPUPartitionStatus,
    attempt: &Attempt,
    observations: &Observations,
) -> Result<Step, Obstacle> {
    let (id, controller) = (attempt.id.as_str(), &attempt.controller.name);
    let Some(remote_state) = observations.remote_state(id) else {
        return Ok(Step::ReadState(attempt.clone()));
    };
    // Counted also where the controller is down or has lost it: Pods go on using a partition that cannot
    // be seen, and as long as they do, the attempt keeps others from its IPUs.
    match observations.users(id) {
        None => return Ok(Step::CountUsers(id.to_owned())),
        Some([]) => {}
        Some(pods) => {
            return Err(Obstacle::InUse {
                id: id.to_owned(),
                pods: pods.to_vec(),
                missing_on: (*remote_state == RemoteState::Absent).then(|| controller.clone()),
            });
        }
    }
    let health = match remote_state {
        RemoteState::Absent => return Ok(write(gone(status, attempt))),
        RemoteState::Unreachable(reason)
        | RemoteState::Denied(reason)
        | RemoteState::NotListed(reason) => {
            return Err(unknown(attempt, remote_state, reason));
        }
        RemoteState::Present(health) => health,
    };
    let busy = Obstacle::Busy {
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
        (Some(Some(reason)), _) => Err(Obstacle::Refusing {
            id: id.to_owned(),
            controller: controller.clone(),
            reason: reason.to_owned(),
        }),
    }
}

/// A partition that never became active counts as refused, so that its round goes elsewhere.
fn gone(status: &IPUPartitionStatus, attempt: &Attempt) -> IPUPartitionStatus {
    let outcome = match attempt.reason {
        Some(_) => AttemptOutcome::Refused,
        None => AttemptOutcome::Removed,
    };
    record::with_outcome(status, &attempt.id, outcome, None)
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

/// Why nothing can be done about an attempt of which the controller's truth is not known.
pub(super) fn unknown(attempt: &Attempt, remote_state: &RemoteState, reason: &str) -> Obstacle {
    let (controller, reason) = (attempt.controller.name.clone(), reason.to_owned());
    match remote_state {
        RemoteState::Denied(_) => Obstacle::Denied {
            id: attempt.id.clone(),
            controller,
            reason,
        },
        RemoteState::Absent
        | RemoteState::Present(_)
        | RemoteState::Unreachable(_)
        | RemoteState::NotListed(_) => Obstacle::Unreachable { controller, reason },
    }
}

fn write(status: IPUPartitionStatus) -> Step {
    Step::Write(Box::new(status))
}

#[cfg(test)]
mod tests;
