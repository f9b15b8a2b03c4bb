//! Pure: removes the partitions of a deleted object from their controllers, then its finalizer.

use ipu_api::ipupartition::{Attempt, IPUPartition};
use ipu_api::labels;
use jiff::Timestamp;

use super::observations::Observations;
use super::step::{Requeue, Step, write_if_changed};
use crate::status;
use crate::unsettled_attempts::{self, Blocker, Settlement};

/// The next step for a deleted object.
///
/// The deletion timestamp records the removal before its call: it never goes, and its owner creates
/// no more Pods for the partition. A status follows only if something blocks the removal. With
/// forced release, only blocked attempts are abandoned: the others are removed first.
pub fn next(partition: &IPUPartition, observations: &Observations, now: Timestamp) -> Step {
    let status = partition.status.clone().unwrap_or_default();
    let blockers = match unsettled_attempts::settle_attempts(partition, observations, false, now) {
        Settlement::Do(step) => return without_last_outcome(*step),
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

/// The outcome of the last attempt needs no status: the object goes with it. A reconcile that is
/// killed in between reads the state of the partition again.
fn without_last_outcome(step: Step) -> Step {
    match step {
        Step::Write(status) if !status.attempts.iter().any(Attempt::is_held) => {
            let abandoned = Vec::new();
            Step::RemoveFinalizer { abandoned }
        }
        step => step,
    }
}

fn is_forced(partition: &IPUPartition) -> bool {
    partition
        .metadata
        .annotations
        .iter()
        .flatten()
        .any(|(key, value)| key == labels::FORCE_ANNOTATION && value == "true")
}

#[cfg(test)]
mod tests;
