//! Pure: resets that the owner of a partition requests: recorded first, carried out while no Pod
//! uses the partition, and followed to their end.

use ipu_api::ipupartition::{Attempt, IPUPartition, IPUPartitionStatus};
use jiff::Timestamp;

use super::{BUSY_LIMIT, is_busy_for_long, write};
use crate::observations::{HealthState, Intent, Observations, PartitionHealth, live_pods};
use crate::status;
use crate::step::{Requeue, Step, write_if_changed};

/// Whether the owner requests a reset that was not carried out.
pub(super) fn is_requested(partition: &IPUPartition, status: &IPUPartitionStatus) -> bool {
    partition.spec.reset_generation > status.observed_reset_generation
}

/// Records a reset. It waits until no live Pod uses the partition, because it would end the
/// programs of Pods.
pub(super) fn begin(
    partition: &IPUPartition,
    status: &IPUPartitionStatus,
    observations: &Observations,
    now: Timestamp,
) -> Step {
    let id = status.partition_id.clone().unwrap_or_default();
    match observations.users(&id) {
        None => Step::CountUsers(id),
        Some([]) => Step::Record(Box::new(status::resetting(status, now)), Intent::Reset(id)),
        Some(pods) => {
            let message = waits(&id, pods);
            write_if_changed(
                partition,
                status::with_message(status, message),
                Requeue::ForPods,
            )
        }
    }
}

/// Carries out the reset that this reconcile recorded. It counts the Pods again, and finds one that
/// started just before the reset was recorded.
pub(super) fn act(
    partition: &IPUPartition,
    status: &IPUPartitionStatus,
    attempt: &Attempt,
    observations: &Observations,
) -> Option<Step> {
    let id = attempt.id.as_str();
    if observations.reset(id) == Some(None) && is_requested(partition, status) {
        let observed = partition.spec.reset_generation;
        return Some(write(status::reset_observed(status, observed)));
    }
    if !observations.may(&Intent::Reset(id.to_owned())) {
        return None;
    }
    Some(match observations.users(id) {
        None => Step::CountUsers(id.to_owned()),
        Some([]) => Step::Reset(attempt.clone()),
        Some(pods) => write(status::reset_put_off(status, waits(id, pods))),
    })
}

/// Follows a recorded reset. If its reply was lost, the reset may still arrive while the next Pods
/// run. Therefore a new partition with another id, which a late reset cannot affect, replaces this
/// one.
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
        return write(status::replaced(status, why, now));
    }
    match health.state {
        HealthState::Active => write(status::with_health(status, health, now)),
        HealthState::Busy if is_busy_for_long(status, now) => {
            let message = format!(
                "the reset of partition {id} did not end within {} min; replacing it",
                BUSY_LIMIT.as_secs() / 60
            );
            write(status::replaced(status, message, now))
        }
        HealthState::Busy => write_if_changed(partition, status::busy(status, now), Requeue::Soon),
        HealthState::Failed | HealthState::Removing => {
            let message = format!("partition {id} is in error after a reset; replacing it");
            write(status::replaced(status, message, now))
        }
    }
}

fn waits(id: &str, pods: &[String]) -> String {
    format!(
        "the reset of partition {id} waits for {} that use it",
        live_pods(pods)
    )
}
