//! Pure: resets that a partition's owner asks for: written down first, carried out while nothing uses the
//! partition, and followed to their end.

use ipu_api::ipupartition::{Attempt, IPUPartition, IPUPartitionStatus};
use jiff::Timestamp;

use super::{BUSY_LIMIT, is_busy_for_long, write};
use crate::observations::{HealthState, Intent, Observations, PartitionHealth};
use crate::record;
use crate::step::{Pace, Step, write_or_rest};

/// Whether its owner asked for a reset that was not carried out.
pub(super) fn is_wanted(partition: &IPUPartition, status: &IPUPartitionStatus) -> bool {
    partition.spec.reset_generation > status.observed_reset_generation
}

/// A reset under a live Pod would end its program, so it waits until none is left.
pub(super) fn begin(
    partition: &IPUPartition,
    status: &IPUPartitionStatus,
    observations: &Observations,
    now: Timestamp,
) -> Step {
    let id = status.partition_id.clone().unwrap_or_default();
    match observations.users(&id) {
        None => Step::CountUsers(id),
        Some([]) => Step::Record(Box::new(record::resetting(status, now)), Intent::Reset(id)),
        Some(pods) => {
            let message = waits(&id, pods);
            write_or_rest(partition, record::noted(status, message), Pace::Soon)
        }
    }
}

/// Carries out the reset that this reconcile wrote down. The Pods are counted once more: one that
/// was started just before the word was written is seen now.
pub(super) fn act(
    partition: &IPUPartition,
    status: &IPUPartitionStatus,
    attempt: &Attempt,
    observations: &Observations,
) -> Option<Step> {
    let id = attempt.id.as_str();
    if observations.reset(id) == Some(None) && is_wanted(partition, status) {
        let observed = partition.spec.reset_generation;
        return Some(write(record::reset_observed(status, observed)));
    }
    if !observations.may(&Intent::Reset(id.to_owned())) {
        return None;
    }
    Some(match observations.users(id) {
        None => Step::CountUsers(id.to_owned()),
        Some([]) => Step::Reset(attempt.clone()),
        Some(pods) => write(record::reset_put_off(status, waits(id, pods))),
    })
}

/// A reset was written down. Whether one that was not answered took place cannot be asked, and it
/// might still come, late, under the next Pods: then a fresh partition with a new id takes the
/// place of this one, which a late reset cannot hit.
pub(super) fn follow(
    partition: &IPUPartition,
    status: &IPUPartitionStatus,
    health: &PartitionHealth,
    observations: &Observations,
    now: Timestamp,
) -> Step {
    let id = status.partition_id.as_deref().unwrap_or_default();
    if status.observed_reset_generation < partition.spec.reset_generation {
        let why = match observations.reset(id).flatten() {
            Some(error) => format!("the reset of partition {id} failed ({error}); replacing it"),
            None => format!("whether partition {id} was reset is not known; replacing it"),
        };
        return write(record::replaced(status, why, now));
    }
    match health.state {
        HealthState::Active => write(record::with_health(status, health, now)),
        HealthState::Busy if is_busy_for_long(status, now) => {
            let message = format!(
                "the reset of partition {id} did not end within {} min; replacing it",
                BUSY_LIMIT.as_secs() / 60
            );
            write(record::replaced(status, message, now))
        }
        HealthState::Busy => write_or_rest(partition, record::busy(status, now), Pace::Soon),
        HealthState::Failed | HealthState::Removing => {
            let message = format!("partition {id} is in error after a reset; replacing it");
            write(record::replaced(status, message, now))
        }
    }
}

fn waits(id: &str, pods: &[String]) -> String {
    format!(
        "the reset of partition {id} waits for {} live Pods that use it",
        pods.len()
    )
}
