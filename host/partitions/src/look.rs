//! Pure: what the state that a controller reports means for an IPUPartition.

use ipu_api::ipupartition::{Attempt, AttemptOutcome};
use vipu_client::model::{OperationState, PartitionState, ReadyState};

use super::knowledge::{Seen, SeenState, Truth};
use super::placing::shortened;

/// What to do about a controller that does not answer and is not in the admin's list.
const NOT_LISTED: &str = "it is not in the admin's list of controllers any more: list it again or, in the \
    ConfigMap with the list, name it under `renamed` (old=new) or, if it is gone for good, under `gone`";

/// Errors of one partition that are kept.
const ERRORS_MAX: usize = 4;

/// What is seen of a partition in this state.
pub(super) fn seen(state: &PartitionState) -> Seen {
    Seen {
        state: condense(state.ready_state, state.operation_state),
        errors: state
            .errors
            .iter()
            .take(ERRORS_MAX)
            .map(|error| shortened(error))
            .collect(),
        auto_resets: state.auto_resets.clone(),
    }
}

/// What is known of a partition whose controller has not told, for this reason.
pub(super) fn untold(reason: &str, is_denied: bool, is_listed: bool) -> Truth {
    let reason = shortened(reason);
    match (is_denied, is_listed) {
        (true, _) => Truth::Denied(reason),
        (false, true) => Truth::Unreachable(reason),
        (false, false) => Truth::NotListed(format!("{reason}; {NOT_LISTED}")),
    }
}

/// Whether this truth says that what was made is gone, so that the controller has more free than it said
/// before.
pub(super) fn is_gone(attempt: &Attempt, truth: &Truth) -> bool {
    attempt.outcome == AttemptOutcome::Created && *truth == Truth::Absent
}

/// An active partition can be used although an operation on it failed (a reset that was refused);
/// one that is being reset cannot, and nothing is wrong with it.
fn condense(ready: ReadyState, operation: OperationState) -> SeenState {
    match (ready, operation) {
        (ReadyState::Removed, _) | (_, OperationState::Removing) => SeenState::Removing,
        (_, OperationState::Creating | OperationState::Resetting) => SeenState::Busy,
        (ReadyState::Error, _) => SeenState::Failed,
        (
            ReadyState::Active,
            OperationState::Idle | OperationState::Undefined | OperationState::Failed,
        ) => SeenState::Active,
        (ReadyState::Pending | ReadyState::Undefined, OperationState::Failed) => SeenState::Failed,
        (
            ReadyState::Pending | ReadyState::Undefined,
            OperationState::Idle | OperationState::Undefined,
        ) => SeenState::Busy,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_means_something() {
        use OperationState as Op;
        use ReadyState as Ready;
        let cases = [
            (Ready::Active, Op::Idle, SeenState::Active),
            (Ready::Active, Op::Undefined, SeenState::Active),
            (Ready::Active, Op::Failed, SeenState::Active),
            (Ready::Active, Op::Resetting, SeenState::Busy),
            (Ready::Active, Op::Removing, SeenState::Removing),
            (Ready::Pending, Op::Creating, SeenState::Busy),
            (Ready::Pending, Op::Idle, SeenState::Busy),
            (Ready::Pending, Op::Failed, SeenState::Failed),
            (Ready::Undefined, Op::Undefined, SeenState::Busy),
            (Ready::Error, Op::Idle, SeenState::Failed),
            (Ready::Error, Op::Resetting, SeenState::Busy),
            (Ready::Error, Op::Removing, SeenState::Removing),
            (Ready::Removed, Op::Idle, SeenState::Removing),
        ];
        for (ready, operation, expected) in cases {
            assert_eq!(
                condense(ready, operation),
                expected,
                "{ready:?} {operation:?}"
            );
        }
    }

    #[test]
    fn a_flood_of_errors_is_cut() {
        let state = PartitionState {
            ready_state: ReadyState::Error,
            operation_state: OperationState::Idle,
            errors: vec!["x".repeat(100_000); 1_000],
            auto_resets: None,
        };
        let seen = seen(&state);
        assert_eq!(seen.errors.len(), ERRORS_MAX);
        assert!(seen.errors.iter().all(|error| error.chars().count() <= 513));
    }
}
