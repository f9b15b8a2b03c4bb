//! Pure: the steps of an IPUPartition, and the settings that decide on them.

use std::time::Duration;

use ipu_api::ipupartition::{Attempt, IPUPartition, IPUPartitionStatus};
use ipu_api::naming::Identity;
use ipu_api::vipu_controller::CordonStates;
use ipu_placement::drain::{self, RequiredData};

use super::observations::Intent;

/// One step.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Add the finalizer, before anything is created for the object.
    AddFinalizer,
    /// Write this status with the resource version that was read. A conflict ends the reconcile.
    Write(Box<IPUPartitionStatus>),
    /// As `Write`, and store that this reconcile has recorded the intent.
    Record(Box<IPUPartitionStatus>, Intent),
    /// Create the partition of the attempt.
    Create(Attempt),
    /// Read the state of the attempt's partition.
    ReadState(Attempt),
    /// List the live Pods with this id.
    CountUsers(String),
    /// Remove the partition of the attempt.
    Remove {
        /// The attempt.
        attempt: Attempt,
        /// Whether the controller ignores errors, because the partition is in error.
        force: bool,
    },
    /// Reset the partition of the attempt.
    Reset(Attempt),
    /// Ask the placement guest for a controller.
    Place,
    /// Evaluate its eviction: the other partitions of its owner, and whether its controller is
    /// drained.
    EvaluateEviction,
    /// Remove the finalizer: nothing is left.
    RemoveFinalizer {
        /// Attempts that forced release abandons. The sweep removes their partitions later.
        abandoned: Vec<Attempt>,
    },
    /// Nothing is left to do for now.
    Done(Requeue),
}

impl Step {
    /// The name of the controller that this step of `partition` calls, or the step after it. An
    /// intent is recorded once its call can follow.
    pub fn controller<'a>(
        &'a self,
        partition: &'a IPUPartition,
        cordons: &CordonStates,
    ) -> Option<&'a str> {
        let attempt = match self {
            Step::Record(status, Intent::Create(id) | Intent::Reset(id)) => {
                status.attempts.iter().find(|attempt| attempt.id == *id)?
            }
            Step::Create(attempt)
            | Step::ReadState(attempt)
            | Step::Remove { attempt, .. }
            | Step::Reset(attempt) => attempt,
            // It reads all controllers, and only for a partition on a drained one.
            Step::EvaluateEviction => match drain::required_data(partition, cordons) {
                RequiredData::Everything(controller) => return Some(controller),
                RequiredData::Siblings | RequiredData::Nothing => return None,
            },
            Step::AddFinalizer
            | Step::Write(_)
            | Step::CountUsers(_)
            | Step::Place
            | Step::RemoveFinalizer { .. }
            | Step::Done(_) => return None,
        };
        Some(&attempt.controller.name)
    }
}

/// Requeue delay, unless an event arrives before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requeue {
    /// A controller is forming a partition, for which Pods wait: within half a second.
    Forming,
    /// A controller is working: within seconds.
    Soon,
    /// Live Pods use the partition: when one of them ends. With growing delays in case that nobody
    /// reports it.
    ForPods,
    /// No free capacity, and attempts of the past that count until they are forgotten or settled:
    /// after about ten seconds.
    ForCapacity,
    /// Blocked: with growing delays.
    Blocked,
    /// Steady state: a periodic check.
    Steady,
    /// Only when the object changes.
    Never,
}

/// Settings of this release.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Marks the ids of this cluster.
    pub identity: Identity,
    /// Time limit until a new partition is active.
    pub forming: Duration,
    /// Grace period of a partition in use that is in error or missing.
    pub grace: Duration,
    /// Time for which a gang holds a part of its partitions while the others find no capacity.
    pub gang_patience: Duration,
    /// Waiting time after which capacity is reserved for a request.
    pub backfill_limit: Duration,
}

/// Writes `desired` if it differs from the current status.
pub(crate) fn write_if_changed(
    partition: &IPUPartition,
    desired: IPUPartitionStatus,
    requeue: Requeue,
) -> Step {
    if partition.status.as_ref() == Some(&desired) {
        Step::Done(requeue)
    } else {
        Step::Write(Box::new(desired))
    }
}
