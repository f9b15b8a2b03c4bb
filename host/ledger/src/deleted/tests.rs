//! The writes of a removal.

use ipu_api::ipupartition::{AttemptOutcome, IPUPartitionStatus, PartitionPhase};
use ipu_placement::samples;
use serde_json::{Value, json};

use super::*;
use crate::observations::{HealthState, Observation, PartitionHealth, RemoteState};

/// A deleted object in use until now, with these attempts.
fn deleted(attempts: &Value) -> IPUPartition {
    serde_json::from_value(json!({
        "apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUPartition",
        "metadata": {
            "name": "mnist", "uid": "u", "finalizers": [labels::PARTITION_FINALIZER],
            "deletionTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {
            "owner": {
                "apiVersion": "v1", "kind": "K", "namespace": "team", "name": "mnist", "uid": "o",
            },
            "slot": 0, "ipus": 4, "gcds": 1,
        },
        "status": {
            "phase": "Ready", "partitionId": "p-1", "controller": samples::controller(),
            "attempts": attempts,
        },
    }))
    .unwrap()
}

fn attempt(id: &str, outcome: &str) -> Value {
    json!({"controller": samples::controller(), "id": id, "outcome": outcome})
}

/// The next step after these observations.
fn step(partition: &IPUPartition, observed: impl IntoIterator<Item = Observation>) -> Step {
    let mut observations = Observations::default();
    for observation in observed {
        observations.observe(observation);
    }
    next(partition, &observations, Timestamp::UNIX_EPOCH)
}

fn users(pods: &[&str]) -> Observation {
    Observation::Users {
        id: "p-1".to_owned(),
        pods: pods.iter().map(|&pod| pod.to_owned()).collect(),
    }
}

fn state(remote_state: RemoteState) -> Observation {
    Observation::RemoteState {
        id: "p-1".to_owned(),
        remote_state,
    }
}

fn present(state: HealthState) -> RemoteState {
    RemoteState::Present(PartitionHealth {
        state,
        errors: Vec::new(),
        auto_resets: None,
        first_ipu: None,
        account: None,
    })
}

fn removed() -> Observation {
    Observation::Removed {
        id: "p-1".to_owned(),
        error: None,
    }
}

fn written(step: Step) -> IPUPartitionStatus {
    match step {
        Step::Write(status) => *status,
        step => panic!("{step:?} is no write"),
    }
}

#[test]
fn a_removal_that_nothing_blocks_only_takes_the_finalizer() {
    let partition = deleted(&json!([attempt("p-1", "created")]));
    let is_active = || state(present(HealthState::Active));
    assert!(matches!(step(&partition, []), Step::ReadState(_)));
    let counts = step(&partition, [is_active()]);
    assert_eq!(counts, Step::CountUsers("p-1".to_owned()));
    let removes = step(&partition, [is_active(), users(&[])]);
    assert!(matches!(removes, Step::Remove { .. }), "{removes:?}");
    let before = [is_active(), users(&[]), removed()];
    assert!(matches!(step(&partition, before), Step::ReadState(_)));
    let gone = [
        is_active(),
        users(&[]),
        removed(),
        state(RemoteState::Absent),
    ];
    let abandoned = Vec::new();
    assert_eq!(step(&partition, gone), Step::RemoveFinalizer { abandoned });
}

#[test]
fn a_status_reports_what_blocks_a_removal() {
    let partition = deleted(&json!([attempt("p-1", "created")]));
    let active = || state(present(HealthState::Active));
    let removing = state(present(HealthState::Removing));
    let unreachable = state(RemoteState::Unreachable("no route".to_owned()));
    for (observed, expected) in [
        (vec![active(), users(&["team/a"])], "team/a"),
        (
            vec![active(), users(&[]), removed(), removing],
            "removes partition p-1",
        ),
        (vec![unreachable, users(&[])], "does not answer (no route)"),
        // The controller has lost it, and Pods still use its IPUs.
        (
            vec![state(RemoteState::Absent), users(&["team/a"])],
            "has lost it",
        ),
    ] {
        let status = written(step(&partition, observed));
        assert_eq!(status.phase, PartitionPhase::Releasing);
        let message = status.message.unwrap();
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn the_outcome_of_one_of_several_attempts_is_recorded() {
    let attempts = json!([attempt("p-1", "created"), attempt("p-2", "unknown")]);
    let gone = [state(RemoteState::Absent), users(&[])];
    let status = written(step(&deleted(&attempts), gone));
    let outcomes: Vec<AttemptOutcome> = status
        .attempts
        .iter()
        .map(|attempt| attempt.outcome)
        .collect();
    assert_eq!(outcomes, [AttemptOutcome::Removed, AttemptOutcome::Unknown]);
}
