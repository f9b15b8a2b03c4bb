//! Pure: the end of a partition: removed from its controllers, then let go.

use ipu_api::ipupartition::{Attempt, IPUPartition, PartitionPhase};
use ipu_api::labels;
use jiff::Timestamp;

use super::leftovers::{self, Obstacle, Settling};
use super::observations::Observations;
use super::record;
use super::step::{Pace, Step, write_or_rest};

/// The next step for a partition that is to go.
///
/// By force, only what is in the way is left behind: what can be removed is removed first.
pub(super) fn next(partition: &IPUPartition, observations: &Observations, now: Timestamp) -> Step {
    let status = partition.status.clone().unwrap_or_default();
    let is_held = status.attempts.iter().any(Attempt::is_held);
    if is_held && status.phase != PartitionPhase::Releasing {
        let message = "the partition is being removed".to_owned();
        return Step::Write(Box::new(record::releasing(&status, message, now)));
    }
    let obstacles = match leftovers::settle(partition, observations, false, now) {
        Settling::Do(step) => return *step,
        Settling::Done(obstacles) => obstacles,
    };
    if obstacles.is_empty() || is_forced(partition) {
        let abandoned = status
            .attempts
            .into_iter()
            .filter(Attempt::is_held)
            .collect();
        return Step::RemoveFinalizer { abandoned };
    }
    let each: Vec<String> = obstacles.iter().map(Obstacle::describe).collect();
    let pace = if obstacles.iter().any(Obstacle::is_short) {
        Pace::Soon
    } else {
        Pace::Blocked
    };
    write_or_rest(
        partition,
        record::releasing(&status, each.join("; "), now),
        pace,
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
