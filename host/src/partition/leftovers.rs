//! Pure: settles attempts whose end is not known and partitions that nobody uses any more.

use super::knowledge::{Intent, Knowledge, Reply, SeenState, Truth};
use super::record;
use super::step::Step;
use crate::api::ipupartition::{
    Attempt, AttemptOutcome, IPUPartition, IPUPartitionStatus, PartitionPhase,
};
use crate::names;

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
    /// Live Pods use it.
    InUse { id: String, pods: Vec<String> },
    /// Its controller does not remove it.
    Refusing {
        id: String,
        controller: String,
        reason: String,
    },
    /// Its controller is at work on it.
    Busy { id: String, controller: String },
}

/// The first thing to do about leftovers. `keep` is the attempt that the slot uses, if it still
/// wants one; everything else that may be on a controller is settled, in the order in which it was
/// begun. What was made and not noted yet is taken last: Pods may still use what was given up.
pub(super) fn settle(
    status: &IPUPartitionStatus,
    knowledge: &Knowledge,
    is_wanted: bool,
    now: jiff::Timestamp,
) -> Settling {
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
            AttemptOutcome::Created => remove(status, attempt, knowledge),
            AttemptOutcome::Unknown
                if is_wanted && made.is_none() && is_to_take(status, attempt, knowledge) =>
            {
                made = Some(attempt.id.as_str());
                continue;
            }
            AttemptOutcome::Unknown => find_out(status, attempt, knowledge, is_wanted),
        };
        match settled {
            Ok(step) => return Settling::Do(Box::new(step)),
            Err(obstacle) => obstacles.push(obstacle),
        }
    }
    match made {
        Some(id) if obstacles.iter().all(Obstacle::allows_another) => {
            Settling::Do(Box::new(write(record::adopted(status, id, now))))
        }
        Some(_) | None => Settling::Done(obstacles),
    }
}

/// The status without claims on ids that the operator can neither have given this object nor taken over
/// for it, where it makes any: somebody wrote them by hand, and what they name is not ours to reset or to remove.
pub(super) fn disowned(
    partition: &IPUPartition,
    installation: &str,
    now: jiff::Timestamp,
) -> Option<IPUPartitionStatus> {
    let status = partition.status.as_ref()?;
    let is_claimed = |attempt: &Attempt| {
        record::is_held(attempt) || status.partition_id.as_ref() == Some(&attempt.id)
    };
    let spec = &partition.spec;
    let inherited = names::inherited_partition(&spec.owner, spec.slot);
    let is_strange = |attempt: &&Attempt| {
        let is_ours =
            attempt.id == inherited || names::is_of_owner(&attempt.id, installation, &spec.owner);
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
    /// certainly not be in use by its Pods.
    pub(super) fn allows_another(&self) -> bool {
        match self {
            Obstacle::Unreachable { .. } => true,
            Obstacle::InUse { .. } | Obstacle::Refusing { .. } | Obstacle::Busy { .. } => false,
        }
    }

    /// Whether the way will be free by itself within seconds.
    pub(super) fn is_short(&self) -> bool {
        match self {
            Obstacle::InUse { .. } | Obstacle::Busy { .. } => true,
            Obstacle::Unreachable { .. } | Obstacle::Refusing { .. } => false,
        }
    }

    /// The obstacle as a user should read it.
    pub(super) fn describe(&self) -> String {
        match self {
            Obstacle::Unreachable { controller, reason } => {
                format!("{controller} does not answer ({reason}); retrying")
            }
            Obstacle::InUse { id, pods } => {
                let some: Vec<&str> = pods.iter().take(4).map(String::as_str).collect();
                let more = if pods.len() > some.len() { ", …" } else { "" };
                format!(
                    "{} live Pods use partition {id} ({}{more}); it is removed once they are gone",
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

/// Whether the slot has nothing, and this is there for it.
fn is_to_take(status: &IPUPartitionStatus, attempt: &Attempt, knowledge: &Knowledge) -> bool {
    let id = attempt.id.as_str();
    let is_there = matches!(knowledge.truth(id), Some(Truth::Present(_)));
    is_vacant(status) && is_there && !knowledge.may(&Intent::Create(id.to_owned()))
}

/// An attempt that was written down: act on it, or ask what became of it.
fn find_out(
    status: &IPUPartitionStatus,
    attempt: &Attempt,
    knowledge: &Knowledge,
    is_wanted: bool,
) -> Result<Step, Obstacle> {
    let id = attempt.id.as_str();
    if is_wanted && knowledge.may(&Intent::Create(id.to_owned())) {
        return Ok(Step::Create(attempt.clone()));
    }
    match knowledge.truth(id) {
        None if matches!(knowledge.created(id), Some(Reply::NotSent(_))) => {
            Ok(write(not_made(status, attempt, knowledge)))
        }
        None => Ok(Step::AskTruth(attempt.clone())),
        Some(Truth::Unreachable(reason)) => Err(unreachable(attempt, reason)),
        Some(Truth::Absent) => Ok(write(not_made(status, attempt, knowledge))),
        Some(Truth::Present(_)) => Ok(write(record::with_outcome(
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
    knowledge: &Knowledge,
) -> IPUPartitionStatus {
    let (outcome, reason) = match knowledge.created(&attempt.id) {
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
    knowledge: &Knowledge,
) -> Result<Step, Obstacle> {
    let (id, controller) = (attempt.id.as_str(), &attempt.controller.name);
    let seen = match knowledge.truth(id) {
        None => return Ok(Step::AskTruth(attempt.clone())),
        Some(Truth::Absent) => return Ok(write(gone(status, attempt))),
        Some(Truth::Unreachable(reason)) => Err(reason),
        Some(Truth::Present(seen)) => Ok(seen),
    };
    // Counted also where the controller is down: Pods go on using a partition that cannot be seen.
    match knowledge.users(id) {
        None => return Ok(Step::CountUsers(id.to_owned())),
        Some([]) => {}
        Some(pods) => {
            return Err(Obstacle::InUse {
                id: id.to_owned(),
                pods: pods.to_vec(),
            });
        }
    }
    let seen = seen.map_err(|reason| unreachable(attempt, reason))?;
    let busy = Obstacle::Busy {
        id: id.to_owned(),
        controller: controller.clone(),
    };
    match (knowledge.removed(id), seen.state) {
        (None, SeenState::Removing) | (Some(None), _) => Err(busy),
        (None, state) => Ok(Step::Remove {
            attempt: attempt.clone(),
            force: state == SeenState::Failed,
        }),
        (Some(Some(_)), SeenState::Removing) => Err(busy),
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

fn unreachable(attempt: &Attempt, reason: &str) -> Obstacle {
    Obstacle::Unreachable {
        controller: attempt.controller.name.clone(),
        reason: reason.to_owned(),
    }
}

fn write(status: IPUPartitionStatus) -> Step {
    Step::Write(Box::new(status))
}
