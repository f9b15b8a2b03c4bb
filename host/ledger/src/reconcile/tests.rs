//! The V-IPU user ids in the steps of one reconcile.

use std::time::Duration;

use ipu_api::ipupartition::{Attempt, DecidedBy};
use ipu_api::labels;
use ipu_api::naming::Identity;
use ipu_placement::decision::PlacementDecision;
use ipu_placement::samples;
use serde_json::{Value, json};

use super::*;
use crate::observations::{Answer, HealthState, PartitionHealth, RemoteState};

/// The id that Graphcore's operator gave the partition.
const ADOPTED: &str = "p-mnist-team-0";

fn partition(deleted: Option<&str>, status: &Value) -> IPUPartition {
    serde_json::from_value(json!({
        "apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUPartition",
        "metadata": {
            "name": "mnist", "uid": "u", "finalizers": [labels::PARTITION_FINALIZER],
            "deletionTimestamp": deleted,
        },
        "spec": {
            "owner": {
                "apiVersion": "v1", "kind": "K", "namespace": "team", "name": "mnist", "uid": "o",
            },
            "slot": 0, "ipus": 4, "gcds": 1,
        },
        "status": status,
    }))
    .unwrap()
}

fn next(steps: &mut Steps, partition: &IPUPartition) -> Step {
    let settings = Settings {
        identity: Identity::new("cluster", "here"),
        forming: Duration::from_mins(10),
        grace: Duration::from_mins(1),
        gang_patience: Duration::from_mins(2),
        backfill_limit: Duration::from_mins(10),
    };
    let step = steps.next(partition, &settings, |_| None, Timestamp::UNIX_EPOCH);
    step.unwrap()
}

fn account(attempts: &[Attempt]) -> Option<&str> {
    attempts[0].account.as_deref()
}

#[test]
fn an_attempt_is_recorded_with_the_account_of_its_request() {
    let (mut steps, partition) = (Steps::default(), partition(None, &Value::Null));
    assert_eq!(next(&mut steps, &partition), Step::Place);
    let by = DecidedBy {
        policy: "built-in".to_owned(),
        digest: None,
    };
    steps.observe(Observation::Placed(Answer {
        decision: PlacementDecision::Try(samples::controller(), by),
        account: Some("account".to_owned()),
        nonce: 7,
    }));
    let Step::Record(status, _) = next(&mut steps, &partition) else {
        panic!("a controller was chosen");
    };
    assert_eq!(account(&status.attempts), Some("account"));
}

#[test]
fn the_account_that_was_shown_a_partition_is_noted_before_its_removal() {
    let attempt = json!({"controller": samples::controller(), "id": ADOPTED, "outcome": "created"});
    let status = json!({"phase": "Releasing", "attempts": [attempt]});
    let mut partition = partition(Some("2026-01-01T00:00:00Z"), &status);
    let mut steps = Steps::default();
    assert!(matches!(next(&mut steps, &partition), Step::ReadState(_)));
    steps.observe(Observation::RemoteState {
        id: ADOPTED.to_owned(),
        remote_state: RemoteState::Present(PartitionHealth {
            state: HealthState::Active,
            errors: Vec::new(),
            auto_resets: None,
            first_ipu: None,
            account: Some("account".to_owned()),
        }),
    });
    let Step::Write(status) = next(&mut steps, &partition) else {
        panic!("the account is not noted yet");
    };
    assert_eq!(account(&status.attempts), Some("account"));
    partition.status = Some(*status);
    steps.observe_write(Observation::Written);
    assert!(matches!(next(&mut steps, &partition), Step::CountUsers(_)));
}
