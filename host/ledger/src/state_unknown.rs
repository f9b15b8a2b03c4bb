//! Pure: the condition StateUnknown: the state of a partition on its V-IPU controller cannot be
//! read.

use ipu_api::ipupartition::{Attempt, IPUPartitionStatus};
use ipu_api::partition_conditions;
use jiff::Timestamp;

use super::observations::{Observations, RemoteState};

/// Condition: the state of an attempt on its controller is unknown. The attempt never counts as
/// gone.
pub const STATE_UNKNOWN: &str = "StateUnknown";

/// Reason: the controller denies access.
pub const ACCESS_DENIED: &str = "AccessDenied";

/// Reason: the controller has left the admin's list and does not answer.
pub const CONTROLLER_NOT_LISTED: &str = "ControllerNotListed";

/// Reason: the controller does not answer.
pub const UNREACHABLE: &str = "Unreachable";

/// All reasons.
pub const REASONS: [&str; 3] = [ACCESS_DENIED, CONTROLLER_NOT_LISTED, UNREACHABLE];

/// The status with the condition from the observations. States that were not read do not change it.
pub fn marked(
    status: &IPUPartitionStatus,
    observations: &Observations,
    now: Timestamp,
) -> IPUPartitionStatus {
    let held = || status.attempts.iter().filter(|one| one.is_held());
    let reasons: Vec<_> = held()
        .filter_map(|attempt| unknown_reason(attempt, observations.remote_state(&attempt.id)?))
        .collect();
    // A reason that needs an admin takes precedence over one that may disappear by itself.
    let first = reasons
        .iter()
        .min_by_key(|(reason, _)| *reason == UNREACHABLE);
    let mut next = status.clone();
    match first {
        Some((reason, message)) => {
            let said = (*reason, message.clone());
            partition_conditions::renew(&mut next, STATE_UNKNOWN, said, now);
        }
        None if held().all(|one| observations.remote_state(&one.id).is_some()) => {
            next.conditions.retain(|one| one.type_ != STATE_UNKNOWN);
        }
        None => {}
    }
    next
}

fn unknown_reason(attempt: &Attempt, remote_state: &RemoteState) -> Option<(&'static str, String)> {
    let (id, controller) = (&attempt.id, &attempt.controller.name);
    let reason = reason(remote_state)?;
    let why = remote_state.unknown()?;
    let message = format!("whether {controller} has partition {id} is not known: {why}");
    Some((reason, message))
}

fn reason(remote_state: &RemoteState) -> Option<&'static str> {
    match remote_state {
        RemoteState::Absent | RemoteState::Present(_) => None,
        RemoteState::Unreachable(_) => Some(UNREACHABLE),
        RemoteState::Denied(_) => Some(ACCESS_DENIED),
        RemoteState::NotListed(_) => Some(CONTROLLER_NOT_LISTED),
    }
}

/// The reason of the condition in a status.
pub fn of(status: &IPUPartitionStatus) -> Option<&'static str> {
    let mut conditions = status.conditions.iter();
    let found = conditions.find(|one| one.type_ == STATE_UNKNOWN && one.status == "True")?;
    REASONS.into_iter().find(|reason| *reason == found.reason)
}

/// Reason and message of the condition in a status, if they need an admin.
pub fn to_fix(status: &IPUPartitionStatus) -> Option<(&'static str, &str)> {
    let reason = of(status).filter(|reason| *reason != UNREACHABLE)?;
    let mut conditions = status.conditions.iter();
    let found = conditions.find(|one| one.type_ == STATE_UNKNOWN)?;
    Some((reason, &found.message))
}

#[cfg(test)]
mod tests {
    use ipu_api::ipupartition::AttemptOutcome;
    use ipu_placement::samples;

    use super::*;
    use crate::observations::Observation;

    fn status(ids: &[&str]) -> IPUPartitionStatus {
        let attempts = ids.iter().map(|id| Attempt {
            controller: samples::controller(),
            id: (*id).to_owned(),
            outcome: AttemptOutcome::Created,
            reason: None,
            exhausted: None,
            started: None,
            decided_by: None,
            account: None,
        });
        IPUPartitionStatus {
            attempts: attempts.collect(),
            ..IPUPartitionStatus::default()
        }
    }

    fn knowing(remote_states: Vec<(&str, RemoteState)>) -> Observations {
        let mut observations = Observations::default();
        for (id, remote_state) in remote_states {
            let id = id.to_owned();
            observations.observe(Observation::RemoteState { id, remote_state });
        }
        observations
    }

    #[test]
    fn the_state_names_the_fix_for_an_admin_until_it_is_known_again() {
        let now = Timestamp::UNIX_EPOCH;
        let down = || RemoteState::Unreachable("connection refused".to_owned());
        let denied = || RemoteState::Denied("no such user (Unauthenticated)".to_owned());
        let observations = knowing(vec![("p-1", down()), ("p-2", denied())]);
        let unknown = marked(&status(&["p-1", "p-2"]), &observations, now);
        assert_eq!(
            to_fix(&unknown),
            Some((
                ACCESS_DENIED,
                "whether pod1:8090 has partition p-2 is not known: no such user (Unauthenticated)"
            ))
        );
        let asked_of_one = knowing(vec![("p-1", RemoteState::Absent)]);
        assert_eq!(
            marked(&unknown, &asked_of_one, now),
            unknown,
            "p-2 was not asked"
        );
        let left = marked(
            &unknown,
            &knowing(vec![("p-1", down()), ("p-2", RemoteState::Absent)]),
            now,
        );
        assert_eq!((of(&left), to_fix(&left)), (Some(UNREACHABLE), None));
        let known = knowing(vec![
            ("p-1", RemoteState::Absent),
            ("p-2", RemoteState::Absent),
        ]);
        assert_eq!(marked(&left, &known, now).conditions, []);
    }
}
