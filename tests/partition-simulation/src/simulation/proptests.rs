//! Gives the core random statuses, and those that once harmed it.

use std::collections::BTreeSet;

use ipu_api::ipupartition::{AttemptOutcome, IPUPartition, IPUPartitionStatus, PartitionPhase};
use ipu_api::labels;
use ipu_ledger::observations::HealthState;
use ipu_placement::samples;
use jiff::Timestamp;
use proptest::prelude::*;

use crate::cooperative_env::{CooperativeEnv, controller, run_to_completion};
use crate::proptests::{case, spec};
use crate::sim_adapter;

fn config() -> ProptestConfig {
    let cases = super::variable("IPU_OPERATOR_FUZZ_CASES").unwrap_or(2_000);
    ProptestConfig {
        cases: u32::try_from(cases).unwrap_or(u32::MAX),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_random_status_harms_nothing_and_its_reconcile_ends(case in case()) {
        case.check();
    }
}

/// The result for a status, if every controller obeys and no partition is in use.
fn rested(status: IPUPartitionStatus) -> IPUPartitionStatus {
    let there = status.partition_id.iter().cloned().collect();
    rested_among(status, there, BTreeSet::new())
}

/// The result for a status, with these existing partitions and those in use.
fn rested_among(
    status: IPUPartitionStatus,
    there: BTreeSet<String>,
    in_use: BTreeSet<String>,
) -> IPUPartitionStatus {
    let there = there.into_iter();
    let mut env = CooperativeEnv {
        in_use,
        there: there.map(|id| (id, HealthState::Active)).collect(),
        unreachable: BTreeSet::new(),
        refuses: false,
    };
    let mut object = IPUPartition::new("default.mnist-0", spec((4, 1, 1)));
    object.metadata.finalizers = Some(vec![labels::PARTITION_FINALIZER.to_owned()]);
    object.status = Some(status);
    run_to_completion(&mut object, &mut env, Vec::new(), Timestamp::UNIX_EPOCH);
    object.status.unwrap()
}

#[test]
fn a_partition_that_is_not_its_own_is_let_go_whatever_its_attempt_says() {
    use AttemptOutcome::{Created, Refused, Removed, Unknown};
    for outcome in [Created, Refused, Removed, Unknown] {
        let status = rested(IPUPartitionStatus {
            phase: PartitionPhase::Ready,
            partition_id: Some("handmade".to_owned()),
            attempts: vec![samples::attempt(controller(0), "handmade", outcome)],
            ..IPUPartitionStatus::default()
        });
        assert_ne!(status.partition_id.as_deref(), Some("handmade"));
    }
}

#[test]
fn none_is_offered_while_live_pods_use_the_one_before() {
    use AttemptOutcome::{Created, Unknown};
    let spec = spec((4, 1, 0));
    let id =
        |generation| sim_adapter::identity(0, "a").partition_id(&spec.owner, 0, "", generation, 0);
    let attempt = |generation, outcome| {
        let controller = controller(usize::try_from(generation).unwrap());
        samples::attempt(controller, &id(generation), outcome)
    };
    for attempts in [
        vec![attempt(1, Unknown), attempt(2, Created)],
        vec![attempt(2, Created), attempt(1, Unknown)],
    ] {
        let status = IPUPartitionStatus {
            generation: 2,
            attempts,
            ..IPUPartitionStatus::default()
        };
        let there = || BTreeSet::from([id(1), id(2)]);
        let while_used = rested_among(status.clone(), there(), BTreeSet::from([id(2)]));
        assert_eq!(while_used.partition_id, None);
        let message = while_used.message.unwrap();
        assert!(message.contains("1 live Pods use partition"), "{message}");
        let later = rested_among(status, there(), BTreeSet::new());
        assert_eq!(later.partition_id, Some(id(1)));
    }
}

#[test]
fn no_attempt_follows_the_last_generation() {
    let status = rested(IPUPartitionStatus {
        generation: i64::MAX,
        ..IPUPartitionStatus::default()
    });
    assert_eq!(status.phase, PartitionPhase::Rejected);
    assert!(status.attempts.is_empty());
    let message = status.message.unwrap();
    assert!(
        message.starts_with("status.generation is 9223372036854775807"),
        "{message}"
    );
}
