//! Pure: what an IPUPartition says to the job that asked for it.

use std::collections::BTreeMap;

use ipu_api::ipupartition::{ControllerRef, IPUPartition, IPUPartitionStatus, PartitionPhase};
use serde::Serialize;

use ipu_api::partition_conditions;

/// What an IPUPartition says to the job that asked for it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum PartitionState {
    /// It was not asked for yet.
    Absent,
    /// It is not there yet, and this is why: one text for each V-IPU controller, or none.
    Waiting(Vec<String>),
    /// A V-IPU controller is making it.
    Forming,
    /// No controller can ever make it, and this is why.
    Rejected(String),
    /// It is there, and Pods may use it.
    Held(Held),
    /// It is there but must not be used by a new Pod now, and this is why.
    Unusable(Held, String),
    /// It is broken, or gone though it was wanted: whoever uses it starts again once it was reset,
    /// or another took its place.
    Broken(Broken),
    /// It is to move to another controller, as soon as no Pod uses it, and this is why.
    Leaving(Held, String),
    /// It is being given back.
    Going(String),
}

/// A partition that cannot be used any more.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Broken {
    /// What is left of it.
    pub held: Option<Held>,
    /// How often its owner has had it reset; none where another reset is asked for already.
    pub resets: Option<i64>,
    /// What its controller says.
    pub reason: String,
}

/// A partition that a controller holds for the job.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Held {
    /// The V-IPU controller.
    pub controller: ControllerRef,
    /// Id of the partition on it.
    pub id: String,
    /// How often its owner has had it reset.
    pub resets: i64,
}

impl Held {
    /// Names the partition between two resets: who uses it next must know whether it was used.
    pub fn use_key(&self) -> String {
        format!("{}/{}", self.id, self.resets)
    }
}

impl PartitionState {
    /// The partition, where there is one.
    pub fn held(&self) -> Option<&Held> {
        match self {
            Self::Held(held) | Self::Unusable(held, _) | Self::Leaving(held, _) => Some(held),
            Self::Broken(broken) => broken.held.as_ref(),
            Self::Absent
            | Self::Waiting(_)
            | Self::Forming
            | Self::Rejected(_)
            | Self::Going(_) => None,
        }
    }

    /// The partition, where a new Pod may use it now.
    pub fn usable(&self) -> Option<&Held> {
        match self {
            Self::Held(held) => Some(held),
            _ => None,
        }
    }

    /// How often it was reset, where it can be reset once more when no Pod uses it.
    pub fn resets(&self) -> Option<i64> {
        match self {
            Self::Held(held) => Some(held.resets),
            Self::Broken(broken) => broken.resets,
            _ => None,
        }
    }

    /// Its id, where there is one.
    pub fn id(&self) -> Option<&str> {
        self.held().map(|held| held.id.as_str())
    }

    /// Whether it is on its way, and nothing is known to keep it from being made.
    pub fn is_forming(&self) -> bool {
        match self {
            Self::Absent | Self::Forming => true,
            Self::Waiting(reasons) => reasons.is_empty(),
            Self::Rejected(_)
            | Self::Held(_)
            | Self::Unusable(..)
            | Self::Broken(_)
            | Self::Leaving(..)
            | Self::Going(_) => false,
        }
    }

    /// Why it cannot be used, as a user should read it; `None` where it can be.
    pub fn why_not(&self) -> Option<String> {
        match self {
            Self::Held(_) => None,
            Self::Absent => Some("it is being requested".to_owned()),
            Self::Waiting(reasons) if !reasons.is_empty() => Some(reasons.join("; ")),
            Self::Waiting(_) | Self::Forming => Some(
                "it is being created, or will be; kubectl get ipup shows the progress".to_owned(),
            ),
            Self::Rejected(reason)
            | Self::Unusable(_, reason)
            | Self::Leaving(_, reason)
            | Self::Going(reason) => Some(reason.clone()),
            Self::Broken(broken) => Some(broken.reason.clone()),
        }
    }
}

/// Reads an IPUPartition. `selector` is what the job's Pods ask of their node: a partition of a
/// controller whose node label contradicts it cannot be reached by them.
pub fn state(
    partition: Option<&IPUPartition>,
    selector: Option<&BTreeMap<String, String>>,
) -> PartitionState {
    let Some(partition) = partition else {
        return PartitionState::Absent;
    };
    let nothing = IPUPartitionStatus::default();
    let status = partition.status.as_ref().unwrap_or(&nothing);
    if partition.metadata.deletion_timestamp.is_some() {
        return PartitionState::Going(going(status));
    }
    let held = status
        .controller
        .clone()
        .zip(status.partition_id.clone())
        .map(|(controller, id)| Held {
            controller,
            id,
            resets: status.observed_reset_generation,
        });
    let awaits_reset = partition.spec.reset_generation > status.observed_reset_generation;
    match (status.phase, held) {
        (PartitionPhase::Rejected, _) => PartitionState::Rejected(
            status
                .message
                .clone()
                .unwrap_or_else(|| "no V-IPU controller can ever make it".to_owned()),
        ),
        (PartitionPhase::Ready, Some(held)) if awaits_reset => {
            let reason = format!("partition {} is about to be reset", held.id);
            PartitionState::Unusable(held, reason)
        }
        (PartitionPhase::Ready, Some(held))
            if partition_conditions::draining_since(status).is_some() =>
        {
            let reason = status.message.clone().unwrap_or_default();
            PartitionState::Leaving(held, reason)
        }
        (PartitionPhase::Ready, Some(held)) => match contradiction(&held, selector) {
            None => PartitionState::Held(held),
            Some(reason) => PartitionState::Unusable(held, reason),
        },
        // What is left is still broken to those who use it, and a reset waits for them.
        (PartitionPhase::Error, held) if held.is_some() || !awaits_reset => {
            let said = || status.message.clone().unwrap_or_default();
            PartitionState::Broken(Broken {
                reason: held
                    .as_ref()
                    .map_or_else(said, |held| unusable(status, held)),
                resets: (!awaits_reset).then_some(status.observed_reset_generation),
                held,
            })
        }
        (PartitionPhase::Resetting, Some(held)) => {
            let reason = unusable(status, &held);
            PartitionState::Unusable(held, reason)
        }
        (PartitionPhase::Creating, _) if forms(status) => PartitionState::Forming,
        _ => PartitionState::Waiting(waiting(status)),
    }
}

fn contradiction(held: &Held, selector: Option<&BTreeMap<String, String>>) -> Option<String> {
    let ControllerRef {
        name,
        label_key,
        label_value,
        ..
    } = &held.controller;
    let asked = selector?.get(label_key)?;
    (asked != label_value).then(|| {
        format!(
            "spec.workers.template.spec.nodeSelector requests {label_key}={asked}, but partition \
             {} is on {name}, which nodes with {label_key}={label_value} reach; \
             take the entry out of nodeSelector",
            held.id
        )
    })
}

fn unusable(status: &IPUPartitionStatus, held: &Held) -> String {
    let phase = format!("{:?}", status.phase);
    let said = status.message.as_deref().unwrap_or("nothing more is known");
    format!(
        "partition {} on {}: {phase}: {said}",
        held.id, held.controller.name
    )
}

/// Whether a controller is making it, and nothing is said against that.
fn forms(status: &IPUPartitionStatus) -> bool {
    let mut conditions = status.conditions.iter();
    conditions.any(|ready| {
        ready.reason == partition_conditions::CREATING
            && Some(&ready.message) == status.message.as_ref()
    })
}

/// What keeps a partition from being made; nothing while it is simply on its way, or the job's status
/// would be written at every step of it.
fn waiting(status: &IPUPartitionStatus) -> Vec<String> {
    if status.phase == PartitionPhase::Creating && forms(status) {
        return Vec::new();
    }
    let each: Vec<String> = status
        .waiting
        .iter()
        .map(|waiting| format!("{}: {}", waiting.controller, waiting.reason))
        .collect();
    if each.is_empty() {
        status.message.iter().cloned().collect()
    } else {
        each
    }
}

fn going(status: &IPUPartitionStatus) -> String {
    let place = status
        .controller
        .as_ref()
        .map(|controller| format!(" on {}", controller.name))
        .unwrap_or_default();
    let id = status.partition_id.as_deref().unwrap_or("(no id yet)");
    let said: Vec<String> = waiting(status).into_iter().collect();
    let said = if said.is_empty() {
        String::new()
    } else {
        format!(": {}", said.join("; "))
    };
    format!("partition {id}{place} is being released{said}")
}
