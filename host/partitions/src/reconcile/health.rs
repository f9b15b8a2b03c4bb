//! Pure: derives the health of an IPUPartition from the state that its controller reports.

use ipu_api::ipupartition::{Attempt, AttemptOutcome};
use ipu_ledger::observations::{HealthState, PartitionHealth, RemoteState};
use ipu_placement::guest_call::values::shortened;
use vipu_client::model::{OperationState, PartitionState, ReadyState};

/// Remedy for a controller that does not answer and is not in the admin's list.
const NOT_LISTED: &str = "it is not in the admin's list of controllers any more: list it again or, in the \
    ConfigMap with the list, name it under `renamed` (old=new) or, if it is gone for good, under `gone`";

/// Errors of one partition that are stored.
const ERRORS_MAX: usize = 4;

/// The health of a partition in this state.
pub fn health(state: &PartitionState) -> PartitionHealth {
    PartitionHealth {
        state: condense(state.ready_state, state.operation_state),
        errors: state
            .errors
            .iter()
            .take(ERRORS_MAX)
            .map(|error| shortened(error))
            .collect(),
        auto_resets: state.auto_resets.clone(),
        first_ipu: None,
        account: None,
    }
}

/// The remote state if the controller has not reported it, for this reason.
pub fn without_answer(reason: &str, is_denied: bool, is_listed: bool) -> RemoteState {
    let reason = shortened(reason);
    match (is_denied, is_listed) {
        (true, _) => RemoteState::Denied(reason),
        (false, true) => RemoteState::Unreachable(reason),
        (false, false) => RemoteState::NotListed(format!("{reason}; {NOT_LISTED}")),
    }
}

/// Whether a created partition is gone, so that the controller has more free IPUs than it reported
/// before.
pub fn is_gone(attempt: &Attempt, remote_state: &RemoteState) -> bool {
    attempt.outcome == AttemptOutcome::Created && *remote_state == RemoteState::Absent
}

/// An active partition can be used although an operation on it failed (a refused reset). A
/// partition that is being reset cannot be used, but has not failed.
fn condense(ready: ReadyState, operation: OperationState) -> HealthState {
    match (ready, operation) {
        (ReadyState::Removed, _) | (_, OperationState::Removing) => HealthState::Removing,
        (_, OperationState::Creating | OperationState::Resetting) => HealthState::Busy,
        (ReadyState::Error, _) => HealthState::Failed,
        (
            ReadyState::Active,
            OperationState::Idle | OperationState::Undefined | OperationState::Failed,
        ) => HealthState::Active,
        (ReadyState::Pending | ReadyState::Undefined, OperationState::Failed) => {
            HealthState::Failed
        }
        (
            ReadyState::Pending | ReadyState::Undefined,
            OperationState::Idle | OperationState::Undefined,
        ) => HealthState::Busy,
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
            (Ready::Active, Op::Idle, HealthState::Active),
            (Ready::Active, Op::Undefined, HealthState::Active),
            (Ready::Active, Op::Failed, HealthState::Active),
            (Ready::Active, Op::Resetting, HealthState::Busy),
            (Ready::Active, Op::Removing, HealthState::Removing),
            (Ready::Pending, Op::Creating, HealthState::Busy),
            (Ready::Pending, Op::Idle, HealthState::Busy),
            (Ready::Pending, Op::Failed, HealthState::Failed),
            (Ready::Undefined, Op::Undefined, HealthState::Busy),
            (Ready::Error, Op::Idle, HealthState::Failed),
            (Ready::Error, Op::Resetting, HealthState::Busy),
            (Ready::Error, Op::Removing, HealthState::Removing),
            (Ready::Removed, Op::Idle, HealthState::Removing),
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
        let health = health(&state);
        assert_eq!(health.errors.len(), ERRORS_MAX);
        assert!(
            health
                .errors
                .iter()
                .all(|error| error.chars().count() <= 513)
        );
    }
}
