//! Pure: decides on the next step for one IPUPartition.
//!
//! `next` returns one step for the object and the observations of this reconcile. The executor carries it out, adds the
//! observation, and asks again, until nothing is left to do.
//!
//! Guarantees after any crash, delay or lost message (`simulation.rs` tests them): only the reconcile that has recorded
//! an id requests its partition; a slot never has two usable partitions; a partition in use is never removed; the
//! operator never touches an id that it has neither generated nor adopted for this object; the finalizer goes last.

use ipu_api::ipupartition::IPUPartition;
use ipu_api::labels;
use jiff::Timestamp;

use super::observations::Observations;
use super::step::{Requeue, Settings, Step, write_if_changed};
use super::{finalize, lifecycle, lost_replies, state_unknown};

/// Returns the next step for `partition`.
pub(super) fn next(
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
    let step = decide(partition, is_ours, observations, settings, now);
    let marked = |status| state_unknown::marked(status, observations, now);
    match (step, &partition.status) {
        (Step::Write(status), _) => Step::Write(Box::new(marked(&status))),
        (Step::Done(requeue), Some(status)) => write_if_changed(partition, marked(status), requeue),
        (step, _) => step,
    }
}

fn decide(
    partition: &IPUPartition,
    is_ours: bool,
    observations: &Observations,
    settings: &Settings,
    now: Timestamp,
) -> Step {
    if is_ours && let Some(status) = lost_replies::disowned(partition, now) {
        return Step::Write(Box::new(status));
    }
    match (partition.metadata.deletion_timestamp.is_some(), is_ours) {
        (false, false) => Step::AddFinalizer,
        (false, true) => lifecycle::next(partition, observations, settings, now),
        (true, true) => finalize::next(partition, observations, now),
        (true, false) => Step::Done(Requeue::Never),
    }
}
