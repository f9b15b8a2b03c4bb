//! Pure: the state of IPUs, as the map shows it.

use ipu_api::ipujob_status::JobState;
use ipu_api::ipupartition::PartitionPhase;
use serde::Serialize;

use crate::projection::Partition;

/// State of IPUs. It does not depend on their programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// In no partition.
    Free,
    /// Free, but in blocks that are too small for every request that waits.
    Stranded,
    /// In a partition that is being created.
    Forming,
    /// In a partition that is ready.
    Ready,
    /// In a ready partition of an IPUJob that runs.
    Running,
    /// In a partition that is being reset.
    Resetting,
    /// In a partition that is being removed.
    Releasing,
    /// In a partition that is in error.
    Error,
    /// In a partition that the operator has not created.
    Others,
    /// The V-IPU controller does not answer, or the API has no information.
    Unknown,
    /// In no partition yet: the request waits.
    Waiting,
    /// No controller can ever create the partition.
    Rejected,
}

/// State of a partition.
pub(super) fn of(partition: &Partition, job: Option<JobState>) -> State {
    if partition.is_waiting && partition.held.is_empty() {
        return State::Waiting;
    }
    match partition.phase {
        _ if partition.is_terminating => State::Releasing,
        PartitionPhase::Pending | PartitionPhase::Creating => State::Forming,
        PartitionPhase::Ready if job == Some(JobState::Running) => State::Running,
        PartitionPhase::Ready => State::Ready,
        PartitionPhase::Resetting => State::Resetting,
        PartitionPhase::Error => State::Error,
        PartitionPhase::Rejected => State::Rejected,
        PartitionPhase::Releasing => State::Releasing,
    }
}

/// State of a partition's IPUs on one V-IPU controller, which has the partition or may have
/// something of it.
pub(super) fn on(partition: &Partition, address: &str, job: Option<JobState>) -> State {
    if partition.controller.as_deref() == Some(address) {
        return of(partition, job);
    }
    let is_unknown = partition.held.get(address).copied().unwrap_or(false);
    let is_forming = matches!(
        partition.phase,
        PartitionPhase::Pending | PartitionPhase::Creating
    );
    match (partition.controller.is_some(), is_unknown) {
        _ if partition.is_terminating => State::Releasing,
        (false, _) if is_forming => State::Forming,
        // The possible remains of an earlier attempt.
        (_, true) => State::Unknown,
        (_, false) => State::Releasing,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::view::fixture::{attempt, partition, placed};

    fn state(status: Value, address: &str, job: Option<JobState>) -> State {
        on(&partition("a/train", 4, status), address, job)
    }

    #[test]
    fn the_state_follows_from_phase_job_and_attempts() {
        let forming = json!({
            "phase": "Creating", "attempts": [attempt("pod1", "unknown")],
        });
        let moved = json!({
            "phase": "Ready", "controller": placed("pod1", "Ready")["controller"], "partitionId": "p",
            "attempts": [attempt("pod2", "created"), attempt("pod3", "unknown")],
        });
        for (status, on, job, expected) in [
            (placed("pod1", "Ready"), "pod1:8090", None, State::Ready),
            (
                placed("pod1", "Ready"),
                "pod1:8090",
                Some(JobState::Running),
                State::Running,
            ),
            (
                placed("pod1", "Ready"),
                "pod1:8090",
                Some(JobState::Pending),
                State::Ready,
            ),
            (
                placed("pod1", "Resetting"),
                "pod1:8090",
                None,
                State::Resetting,
            ),
            (placed("pod1", "Error"), "pod1:8090", None, State::Error),
            (
                placed("pod1", "Releasing"),
                "pod1:8090",
                None,
                State::Releasing,
            ),
            (forming, "pod1:8090", None, State::Forming),
            (moved.clone(), "pod2:8090", None, State::Releasing),
            (moved, "pod3:8090", None, State::Unknown),
        ] {
            assert_eq!(state(status.clone(), on, job), expected, "{status} on {on}");
        }
    }
}
