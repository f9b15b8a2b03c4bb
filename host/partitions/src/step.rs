//! Pure: what is to be done next for one IPUPartition.
//!
//! Flow: `next` looks at the object and at what this reconcile has learned, and names one step. The
//! shell carries it out, adds the fact that it yields, and asks again, until the step is to rest.
//!
//! Guarantees, whatever crashes, is late or is lost (`simulation.rs` tries them all):
//! a controller is asked for an id only by the reconcile that wrote the id down; one slot never has
//! two usable partitions; nothing is removed that a live Pod uses; of an id that the operator did not
//! give, or take over for this object, nothing is asked; the finalizer goes last.

use std::time::Duration;

use ipu_api::ipupartition::{Attempt, IPUPartition, IPUPartitionStatus};
use ipu_api::labels;
use ipu_api::naming::Identity;
use jiff::Timestamp;

use super::observations::{Intent, Observations};
use super::{leftovers, release, state_unknown, wanted};

/// One thing to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Put the finalizer on the object, before anything is made for it.
    AddFinalizer,
    /// Write this status with the resource version that was read; a conflict ends the reconcile.
    Write(Box<IPUPartitionStatus>),
    /// As `Write`, and remember that the intent was written down by this reconcile.
    Record(Box<IPUPartitionStatus>, Intent),
    /// Ask the attempt's controller to make its id.
    Create(Attempt),
    /// Ask the attempt's controller what it has of its id.
    ReadState(Attempt),
    /// List the live Pods that carry this id.
    CountUsers(String),
    /// Ask the attempt's controller to remove its id.
    Remove {
        /// Whose id is removed.
        attempt: Attempt,
        /// Whether the controller is to ignore errors, since the partition is in error already.
        force: bool,
    },
    /// Ask the attempt's controller to reset its id.
    Reset(Attempt),
    /// Ask the placement policy where to make the partition.
    Place,
    /// Look at what else its owner has, and whether its controller is to be emptied.
    LookAround,
    /// Nothing is left: let the object go. Attempts that were given up by force are named.
    RemoveFinalizer {
        /// What may still be on controllers that did not answer; the sweep removes it later.
        abandoned: Vec<Attempt>,
    },
    /// Nothing to do for now.
    Rest(Pace),
}

/// How soon to look again where nothing happens before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// A controller is at work: within seconds.
    Soon,
    /// No room: after about ten seconds, or once something was given back.
    ForRoom,
    /// Something is in the way: with growing pauses.
    Blocked,
    /// All is well: look after it now and then.
    Steady,
    /// Nothing ever happens unless the object changes.
    Never,
}

/// What the decisions need to know of this installation.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Marks the ids that are given.
    pub identity: Identity,
    /// How long a partition may take to become active.
    pub forming: Duration,
    /// How long a partition in use may be in error before it counts as lost.
    pub grace: Duration,
    /// How long a partition that is of use only with others is held while they find no room.
    pub gang_patience: Duration,
    /// How long somebody who waits is passed by smaller ones.
    pub backfill_limit: Duration,
}

/// The next step for `partition`.
pub fn next(
    partition: &IPUPartition,
    observations: &Observations,
    settings: &Settings,
    now: Timestamp,
) -> Step {
    let metadata = &partition.metadata;
    let is_ours = metadata
        .finalizers
        .iter()
        .flatten()
        .any(|name| name == labels::PARTITION_FINALIZER);
    let step = wished(partition, is_ours, observations, settings, now);
    let marked = |status| state_unknown::marked(status, observations, now);
    match (step, &partition.status) {
        (Step::Write(status), _) => Step::Write(Box::new(marked(&status))),
        (Step::Rest(pace), Some(status)) => write_or_rest(partition, marked(status), pace),
        (step, _) => step,
    }
}

fn wished(
    partition: &IPUPartition,
    is_ours: bool,
    observations: &Observations,
    settings: &Settings,
    now: Timestamp,
) -> Step {
    if is_ours && let Some(status) = leftovers::disowned(partition, now) {
        return Step::Write(Box::new(status));
    }
    match (partition.metadata.deletion_timestamp.is_some(), is_ours) {
        (false, false) => Step::AddFinalizer,
        (false, true) => wanted::next(partition, observations, settings, now),
        (true, true) => release::next(partition, observations, now),
        (true, false) => Step::Rest(Pace::Never),
    }
}

/// Writes `wished` where it differs from what is there, else rests.
pub(super) fn write_or_rest(
    partition: &IPUPartition,
    wished: IPUPartitionStatus,
    pace: Pace,
) -> Step {
    if partition.status.as_ref() == Some(&wished) {
        Step::Rest(pace)
    } else {
        Step::Write(Box::new(wished))
    }
}
