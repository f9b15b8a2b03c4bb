//! Pure: removes the partitions of a deleted object from their controllers, then its finalizer.

use ipu_api::ipupartition::{Attempt, IPUPartition, PartitionPhase};
use ipu_api::labels;
use jiff::Timestamp;

use super::observations::Observations;
use super::step::{Requeue, Step, write_if_changed};
use crate::status;
use crate::unsettled_attempts::{self, Blocker, Settlement};

/// The next step for a deleted object.
///
/// With forced release, only blocked attempts are abandoned: the others are removed first.
pub fn next(partition: &IPUPartition, observations: &Observations, now: Timestamp) -> Step {
    let status = partition.status.clone().unwrap_or_default();
    let is_held = status.attempts.iter().any(Attempt::is_held);
    if is_held && status.phase != PartitionPhase::Releasing {
        let message = "the partition is being removed".to_owned();
        return Step::Write(Box::new(status::releasing(&status, message, now)));
    }
    let blockers = match unsettled_attempts::settle_attempts(partition, observations, false, now) {
        Settlement::Do(step) => return *step,
        Settlement::Done(blockers) => blockers,
    };
    if blockers.is_empty() || is_forced(partition) {
        let abandoned = status
            .attempts
            .into_iter()
            .filter(Attempt::is_held)
            .collect();
        return Step::RemoveFinalizer { abandoned };
    }
    let each: Vec<String> = blockers.iter().map(Blocker::describe).collect();
    let requeue = unsettled_attempts::requeue(&blockers).unwrap_or(Requeue::Blocked);
    write_if_changed(
        partition,
        status::releasing(&status, each.join("; "), now),
        requeue,
    )
}

fn is_forced(partition: &IPUPartition) -> bool {
    partition
        .metadata
        .annotations
        .iter()
        .flatten()
        .any(|(key, value)| key == labels::FORCE_ANNOTATION && value == "true")
}
