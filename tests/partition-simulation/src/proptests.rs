//! Strategies of property tests: random objects, and observations in any order.

use ipu_api::ipupartition::{
    Attempt, AttemptOutcome, ControllerRef, DecidedBy, IPUPartition, IPUPartitionSpec,
    IPUPartitionStatus, PartitionOptions, PartitionOwner, PartitionPhase,
};
use ipu_api::labels;
use ipu_ledger::observations::{HealthState, Intent, Observation, RemoteState, Reply};
use ipu_placement::decision::PlacementDecision;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use proptest::prelude::*;

use super::cooperative_env::{self, Case, CooperativeEnv, health};
use super::sim_adapter;

/// Ids of this owner, of others, and none at all.
const IDS: [&str; 8] = [
    "p-other-lj2j-0000000004",
    "p-mnist-lj2j-0000000001",
    "p-mnist-lj2j-0000000002",
    "p-mnist-lj2j-0000000003",
    "p-mnist-default-0",
    "p-mnist-default-1",
    "handmade",
    "",
];

fn id() -> impl Strategy<Value = String> {
    prop::sample::select(&IDS[..]).prop_map(str::to_owned)
}

fn number() -> impl Strategy<Value = i64> {
    prop_oneof![
        4 => 0..4_i64,
        1 => prop::sample::select(&[i64::MIN, -1, i64::MAX - 1, i64::MAX][..]),
        1 => any::<i64>(),
    ]
}

fn time() -> impl Strategy<Value = Time> {
    prop_oneof![
        Just(Timestamp::MIN),
        Just(Timestamp::MAX),
        (0..4_000_000_000_i64).prop_map(|second| {
            Timestamp::from_second(second).expect("so few seconds are a time")
        }),
    ]
    .prop_map(Time)
}

fn controller() -> impl Strategy<Value = ControllerRef> {
    (0..3_usize).prop_map(cooperative_env::controller)
}

fn attempt() -> impl Strategy<Value = Attempt> {
    use AttemptOutcome::{Created, Refused, Removed, Unknown};
    let outcome = prop::sample::select(&[Unknown, Created, Refused, Removed][..]);
    let reason = prop::option::of(Just("a reason".to_owned()));
    let started = prop::option::of(time());
    (controller(), id(), outcome, reason, started).prop_map(
        |(controller, id, outcome, reason, started)| Attempt {
            controller,
            id,
            outcome,
            reason,
            exhausted: None,
            started,
            decided_by: None,
            account: None,
        },
    )
}

fn condition() -> impl Strategy<Value = Condition> {
    let words = ["Ready", "Disturbed", "Waiting", "True", "False", ""];
    let word = || prop::sample::select(words.to_vec()).prop_map(str::to_owned);
    (word(), word(), word(), time()).prop_map(|(type_, status, reason, last_transition_time)| {
        Condition {
            type_,
            status,
            reason,
            last_transition_time,
            message: String::new(),
            observed_generation: None,
        }
    })
}

fn phase() -> impl Strategy<Value = PartitionPhase> {
    use PartitionPhase::{Creating, Error, Pending, Ready, Rejected, Releasing, Resetting};
    prop::sample::select(
        &[
            Pending, Creating, Ready, Resetting, Error, Rejected, Releasing,
        ][..],
    )
}

fn status() -> impl Strategy<Value = IPUPartitionStatus> {
    (
        phase(),
        prop::option::of(controller()),
        prop::option::of(id()),
        number(),
        prop::collection::vec(attempt(), 0..6),
        number(),
        prop::collection::vec(condition(), 0..3),
    )
        .prop_map(
            |(phase, controller, partition_id, generation, attempts, observed, conditions)| {
                IPUPartitionStatus {
                    phase,
                    controller,
                    partition_id,
                    generation,
                    attempts,
                    observed_reset_generation: observed,
                    conditions,
                    ..IPUPartitionStatus::default()
                }
            },
        )
}

pub(super) fn spec((ipus, gcds, reset_generation): (u32, u32, i64)) -> IPUPartitionSpec {
    let owner = PartitionOwner {
        api_version: String::new(),
        kind: "Unknown".to_owned(),
        namespace: "default".to_owned(),
        name: "mnist".to_owned(),
        uid: String::new(),
    };
    IPUPartitionSpec {
        owner,
        slot: 0,
        ipus,
        gcds,
        options: PartitionOptions::default(),
        owner_metadata: Default::default(),
        reset_generation,
    }
}

fn object() -> impl Strategy<Value = IPUPartition> {
    let sizes = || prop::sample::select(&[0, 1, 2, 3, 4, u32::MAX][..]);
    (
        prop::option::of(status()),
        (sizes(), sizes(), number()),
        any::<[bool; 3]>(),
        prop::option::of(Just("uid-1".to_owned())),
    )
        .prop_map(|(status, sizes, [is_ours, is_deleted, is_forced], uid)| {
            let mut object = IPUPartition::new("default.mnist-0", spec(sizes));
            object.metadata.uid = uid;
            object.metadata.finalizers =
                is_ours.then(|| vec![labels::PARTITION_FINALIZER.to_owned()]);
            object.metadata.deletion_timestamp = is_deleted.then_some(Time(Timestamp::MIN));
            object.metadata.annotations = is_forced
                .then(|| [(labels::FORCE_ANNOTATION.to_owned(), "true".to_owned())].into());
            object.status = status;
            object
        })
}

fn state() -> impl Strategy<Value = HealthState> {
    use HealthState::{Active, Busy, Failed, Removing};
    prop::sample::select(&[Active, Busy, Failed, Removing][..])
}

fn env() -> impl Strategy<Value = CooperativeEnv> {
    (
        prop::collection::btree_set(id(), 0..3),
        prop::collection::btree_map(id(), state(), 0..4),
        prop::collection::btree_set(id(), 0..2),
        any::<bool>(),
    )
        .prop_map(|(in_use, there, unreachable, refuses)| CooperativeEnv {
            in_use,
            there,
            unreachable,
            refuses,
        })
}

/// An earlier observation of a reconcile, true or not. The users of partitions are always true.
fn observation() -> impl Strategy<Value = Observation> {
    let error = || prop::option::of(Just("no".to_owned()));
    let reply = prop_oneof![
        Just(Reply::Done),
        Just(Reply::NotSent("down".to_owned())),
        Just(Reply::Exhausted("full".to_owned())),
        Just(Reply::Failed("no".to_owned())),
    ];
    let remote_state = prop_oneof![
        Just(RemoteState::Absent),
        Just(RemoteState::Unreachable("down".to_owned())),
        state().prop_map(|state| RemoteState::Present(health(state))),
    ];
    let answer = prop_oneof![
        controller().prop_map(|controller| {
            let by = DecidedBy {
                policy: "somebody".to_owned(),
                digest: None,
            };
            PlacementDecision::Try(controller, by)
        }),
        Just(PlacementDecision::Wait(Vec::new())),
        Just(PlacementDecision::Reject("never".to_owned())),
    ];
    prop_oneof![
        Just(Observation::Written),
        id().prop_map(|id| Observation::Recorded(Intent::Create(id))),
        id().prop_map(|id| Observation::Recorded(Intent::Reset(id))),
        (id(), reply).prop_map(|(id, reply)| Observation::Created { id, reply }),
        (id(), remote_state)
            .prop_map(|(id, remote_state)| Observation::RemoteState { id, remote_state }),
        (id(), error()).prop_map(|(id, error)| Observation::Removed { id, error }),
        (id(), error()).prop_map(|(id, error)| Observation::Reset { id, error }),
        answer.prop_map(|answer| Observation::Placed(sim_adapter::answer(answer, None, 0))),
    ]
}

/// Any case.
pub(super) fn case() -> impl Strategy<Value = Case> {
    let observations = prop::collection::vec(observation(), 0..4);
    (object(), observations, env(), time()).prop_map(|(object, observations, env, now)| Case {
        object,
        observations,
        env,
        now: now.0,
    })
}
