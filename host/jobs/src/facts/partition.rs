//! Pure: the state of an IPUPartition, as its job sees it.

use std::collections::BTreeMap;
use std::sync::Arc;

use ipu_api::ipupartition::{ControllerRef, IPUPartition, IPUPartitionStatus, PartitionPhase};
use jiff::Timestamp;
use serde::{Serialize, Serializer};

use ipu_api::partition_conditions;

/// The state of an IPUPartition, as its job sees it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum PartitionState {
    /// It is not requested yet.
    Absent,
    /// It waits, for one reason from each V-IPU controller, or for no known reason.
    Waiting(#[serde(serialize_with = "serialize_shared")] Arc<[String]>),
    /// A V-IPU controller is creating it.
    Forming,
    /// No controller can ever create it, for this reason.
    Rejected(String),
    /// Pods can use it.
    Ready(PlacedPartition),
    /// It exists, but a new Pod must not use it now, for this reason.
    Unusable(PlacedPartition, String),
    /// It is broken or lost. Its Pods restart after it was reset or replaced.
    Broken(Broken),
    /// Its controller is drained, for this reason: it moves to another one as soon as no Pod uses
    /// it.
    Draining(PlacedPartition, String),
    /// It is being released.
    Terminating(String),
}

/// A partition that cannot be used any more.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Broken {
    /// The rest of it on a controller.
    pub placed: Option<PlacedPartition>,
    /// Number of resets that its owner has requested. `None` if another reset is already requested.
    pub resets: Option<i64>,
    /// The controller's reason.
    pub reason: String,
}

/// Times at which a partition was requested and became ready, and whether it is reset, as far as
/// its status records that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartitionTimes {
    /// Time of the request to its V-IPU controller.
    pub requested: Option<Timestamp>,
    /// Since when it can be used.
    pub ready: Option<Timestamp>,
    /// Whether its V-IPU controller resets it, is at work on it, or is about to reset it.
    pub is_resetting: bool,
    /// Since when its V-IPU controller has been doing that.
    pub reset_began: Option<Timestamp>,
    /// Whether its owner has requested a reset that its status does not show as done.
    pub is_reset_pending: bool,
}

/// A partition that exists on a controller.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlacedPartition {
    /// The V-IPU controller.
    #[serde(serialize_with = "serialize_shared")]
    pub controller: Arc<ControllerRef>,
    /// Id of the partition.
    pub id: String,
    /// Number of resets that its owner has requested.
    pub resets: i64,
}

impl PlacedPartition {
    /// Returns a key of the partition between two resets, which shows whether it has been used
    /// since the last reset.
    pub fn use_key(&self) -> String {
        format!("{}/{}", self.id, self.resets)
    }
}

impl PartitionState {
    /// Returns the partition, if it exists.
    pub fn placed(&self) -> Option<&PlacedPartition> {
        match self {
            Self::Ready(placed) | Self::Unusable(placed, _) | Self::Draining(placed, _) => {
                Some(placed)
            }
            Self::Broken(broken) => broken.placed.as_ref(),
            Self::Absent
            | Self::Waiting(_)
            | Self::Forming
            | Self::Rejected(_)
            | Self::Terminating(_) => None,
        }
    }

    /// Returns the partition, if a new Pod can use it now.
    pub fn usable(&self) -> Option<&PlacedPartition> {
        match self {
            Self::Ready(placed) => Some(placed),
            _ => None,
        }
    }

    /// Returns the number of its resets, if it can be reset once more when no Pod uses it.
    pub fn resets(&self) -> Option<i64> {
        match self {
            Self::Ready(placed) => Some(placed.resets),
            Self::Broken(broken) => broken.resets,
            _ => None,
        }
    }

    /// Returns its id, if it exists.
    pub fn id(&self) -> Option<&str> {
        self.placed().map(|placed| placed.id.as_str())
    }

    /// Whether it is being created, without a known reason to wait.
    pub fn is_forming(&self) -> bool {
        match self {
            Self::Absent | Self::Forming => true,
            Self::Waiting(reasons) => reasons.is_empty(),
            Self::Rejected(_)
            | Self::Ready(_)
            | Self::Unusable(..)
            | Self::Broken(_)
            | Self::Draining(..)
            | Self::Terminating(_) => false,
        }
    }

    /// Returns the reason that a user reads if it cannot be used. `None` if it can.
    pub fn unusable_reason(&self) -> Option<String> {
        match self {
            Self::Ready(_) => None,
            Self::Absent => Some("it is being requested".to_owned()),
            Self::Waiting(reasons) if !reasons.is_empty() => Some(reasons.join("; ")),
            Self::Waiting(_) | Self::Forming => Some(
                "it is being created, or will be; kubectl get ipup shows the progress".to_owned(),
            ),
            Self::Rejected(reason)
            | Self::Unusable(_, reason)
            | Self::Draining(_, reason)
            | Self::Terminating(reason) => Some(reason.clone()),
            Self::Broken(broken) => Some(broken.reason.clone()),
        }
    }
}

fn serialize_shared<T: Serialize + ?Sized, S: Serializer>(
    shared: &Arc<T>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    T::serialize(shared, serializer)
}

/// Returns the times of an IPUPartition.
pub fn times(partition: &IPUPartition) -> PartitionTimes {
    let Some(status) = &partition.status else {
        return PartitionTimes::default();
    };
    let reset_pending = partition.spec.reset_generation > status.observed_reset_generation;
    let busy_since = partition_conditions::busy_since(status);
    let (is_resetting, reset_began) = match status.phase {
        PartitionPhase::Resetting => (true, partition_conditions::not_ready_since(status)),
        PartitionPhase::Ready => (reset_pending || busy_since.is_some(), busy_since),
        PartitionPhase::Error => (reset_pending, None),
        PartitionPhase::Pending
        | PartitionPhase::Creating
        | PartitionPhase::Rejected
        | PartitionPhase::Releasing => (false, None),
    };
    let mut attempts = status.attempts.iter();
    let current = attempts.find(|one| Some(&one.id) == status.partition_id.as_ref());
    PartitionTimes {
        requested: current.and_then(|attempt| Some(attempt.started.as_ref()?.0)),
        ready: partition_conditions::ready_since(status),
        is_resetting,
        reset_began,
        is_reset_pending: reset_pending,
    }
}

/// Computes the state of an IPUPartition, for Pods without a node selector.
pub fn state(partition: Option<&IPUPartition>) -> PartitionState {
    let share = |controller: &ControllerRef| Arc::new(controller.clone());
    partition.map_or(PartitionState::Absent, |one| state_with(one, share))
}

/// Computes the state of an existing IPUPartition, with a controller that `share` returns.
pub(super) fn state_with(
    partition: &IPUPartition,
    share: impl FnOnce(&ControllerRef) -> Arc<ControllerRef>,
) -> PartitionState {
    let nothing = IPUPartitionStatus::default();
    let status = partition.status.as_ref().unwrap_or(&nothing);
    if partition.metadata.deletion_timestamp.is_some() {
        return PartitionState::Terminating(release_message(status));
    }
    let placed = status
        .controller
        .as_ref()
        .zip(status.partition_id.clone())
        .map(|(controller, id)| PlacedPartition {
            controller: share(controller),
            id,
            resets: status.observed_reset_generation,
        });
    let reset_pending = partition.spec.reset_generation > status.observed_reset_generation;
    match (status.phase, placed) {
        (PartitionPhase::Rejected, _) => PartitionState::Rejected(
            status
                .message
                .clone()
                .unwrap_or_else(|| "no V-IPU controller can ever create it".to_owned()),
        ),
        (PartitionPhase::Ready, Some(placed)) if reset_pending => {
            let reason = format!("partition {} is about to be reset", placed.id);
            PartitionState::Unusable(placed, reason)
        }
        (PartitionPhase::Ready, Some(placed))
            if partition_conditions::draining_since(status).is_some() =>
        {
            let reason = status.message.clone().unwrap_or_default();
            PartitionState::Draining(placed, reason)
        }
        (PartitionPhase::Ready, Some(placed)) => PartitionState::Ready(placed),
        // The rest of it is still broken for its Pods, and a reset waits until they end.
        (PartitionPhase::Error, placed) if placed.is_some() || !reset_pending => {
            let message = || status.message.clone().unwrap_or_default();
            PartitionState::Broken(Broken {
                reason: placed
                    .as_ref()
                    .map_or_else(message, |placed| unusable_message(status, placed)),
                resets: (!reset_pending).then_some(status.observed_reset_generation),
                placed,
            })
        }
        (PartitionPhase::Resetting, Some(placed)) => {
            let reason = unusable_message(status, &placed);
            PartitionState::Unusable(placed, reason)
        }
        (PartitionPhase::Creating, _) if partition_conditions::is_being_created(status) => {
            PartitionState::Forming
        }
        _ => PartitionState::Waiting(waiting_reasons(status).into()),
    }
}

/// Returns the reason for which Pods with this node selector cannot reach a partition.
pub(super) fn selector_conflict(
    placed: &PlacedPartition,
    selector: &BTreeMap<String, String>,
) -> Option<String> {
    let ControllerRef {
        name,
        label_key,
        label_value,
        ..
    } = &*placed.controller;
    let requested = selector.get(label_key)?;
    (requested != label_value).then(|| {
        format!(
            "spec.workers.template.spec.nodeSelector requests {label_key}={requested}, but partition \
             {} is on {name}, which nodes with {label_key}={label_value} reach; \
             take the entry out of nodeSelector",
            placed.id
        )
    })
}

fn unusable_message(status: &IPUPartitionStatus, placed: &PlacedPartition) -> String {
    let phase = format!("{:?}", status.phase);
    let message = status.message.as_deref().unwrap_or("nothing more is known");
    format!(
        "partition {} on {}: {phase}: {message}",
        placed.id, placed.controller.name
    )
}

/// Returns the reasons that a partition waits for. There are none while it is being created, or
/// each step of the creation would cause a write of the job's status.
fn waiting_reasons(status: &IPUPartitionStatus) -> Vec<String> {
    if status.phase == PartitionPhase::Creating && partition_conditions::is_being_created(status) {
        return Vec::new();
    }
    partition_conditions::waiting_reasons(status)
}

fn release_message(status: &IPUPartitionStatus) -> String {
    let on_controller = status
        .controller
        .as_ref()
        .map(|controller| format!(" on {}", controller.name))
        .unwrap_or_default();
    let id = status.partition_id.as_deref().unwrap_or("(no id yet)");
    let message: Vec<String> = waiting_reasons(status).into_iter().collect();
    let message = if message.is_empty() {
        String::new()
    } else {
        format!(": {}", message.join("; "))
    };
    format!("partition {id}{on_controller} is being released{message}")
}
