//! Pure: decides on the next step for one IPUPartition.
//!
//! `next` returns one step for the object and the observations of this reconcile. The executor
//! carries it out, adds the observation, and asks again, until nothing is left to do.
//!
//! The first page of the package states the guarantees.

use ipu_api::ipupartition::IPUPartition;
use ipu_api::labels;
use jiff::Timestamp;

use crate::observations::Observations;
use crate::step::{Requeue, Settings, Step, write_if_changed};
use crate::{deleted, desired, state_unknown, status, unsettled_attempts};

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
    if is_ours && let Some(status) = unsettled_attempts::disowned(partition, now) {
        return Step::Write(Box::new(status));
    }
    let status = partition.status.as_ref();
    if let Some(status) = status.and_then(|status| status::with_accounts(status, observations)) {
        return Step::Write(Box::new(status));
    }
    match (partition.metadata.deletion_timestamp.is_some(), is_ours) {
        (false, false) => Step::AddFinalizer,
        (false, true) => desired::next(partition, observations, settings, now),
        (true, true) => deleted::next(partition, observations, now),
        (true, false) => Step::Done(Requeue::Never),
    }
}
