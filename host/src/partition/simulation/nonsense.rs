//! Feeds the core with objects that nobody can have written in earnest, and facts in any order: it
//! never panics, harms nothing that is in use, and comes to rest once it is answered honestly.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use proptest::prelude::*;

use super::api_server::Stored;
use super::controllers::Controller;
use super::driver::{self, Reconcile};
use crate::api::ipupartition::{
    Attempt, AttemptOutcome, ControllerRef, DecidedBy, IPUPartition, IPUPartitionSpec,
    IPUPartitionStatus, PartitionOptions, PartitionOwner, PartitionPhase,
};
use crate::names;
use crate::partition::knowledge::{Answer, Fact, Intent, Reply, Seen, SeenState, Truth};
use crate::partition::step::Step;
use crate::partition::surroundings::Surroundings;
use crate::vipu::closed::Closed;

/// Ids of this installation, of others, and none at all.
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

/// What is true of the world that the core meets.
#[derive(Clone, Debug)]
struct Honest {
    in_use: BTreeSet<String>,
    there: BTreeMap<String, SeenState>,
    unreachable: BTreeSet<String>,
    refuses: bool,
}

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
        (0..4_000_000_000_i64).prop_map(|second| Timestamp::from_second(second).unwrap()),
    ]
    .prop_map(Time)
}

fn controller() -> impl Strategy<Value = ControllerRef> {
    (0..3_usize).prop_map(|index| Controller::new(index, 4).reference)
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
            started,
            decided_by: None,
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

fn spec((ipus, gcds, reset_generation): (u32, u32, i64)) -> IPUPartitionSpec {
    let owner = PartitionOwner {
        api_version: String::new(),
        kind: "Nonsense".to_owned(),
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
        about: Default::default(),
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
                is_ours.then(|| vec![names::PARTITION_FINALIZER.to_owned()]);
            object.metadata.deletion_timestamp = is_deleted.then_some(Time(Timestamp::MIN));
            object.metadata.annotations =
                is_forced.then(|| [(names::FORCE_ANNOTATION.to_owned(), "true".to_owned())].into());
            object.status = status;
            object
        })
}

fn state() -> impl Strategy<Value = SeenState> {
    use SeenState::{Active, Busy, Failed, Removing};
    prop::sample::select(&[Active, Busy, Failed, Removing][..])
}

fn honest() -> impl Strategy<Value = Honest> {
    (
        prop::collection::btree_set(id(), 0..3),
        prop::collection::btree_map(id(), state(), 0..4),
        prop::collection::btree_set(id(), 0..2),
        any::<bool>(),
    )
        .prop_map(|(in_use, there, unreachable, refuses)| Honest {
            in_use,
            there,
            unreachable,
            refuses,
        })
}

/// A fact that a reconcile may have learned before, true or not; who uses what is always true.
fn fact() -> impl Strategy<Value = Fact> {
    let error = || prop::option::of(Just("no".to_owned()));
    let reply = prop_oneof![
        Just(Reply::Done),
        Just(Reply::NotSent("down".to_owned())),
        Just(Reply::Failed("no".to_owned())),
    ];
    let truth = prop_oneof![
        Just(Truth::Absent),
        Just(Truth::Unreachable("down".to_owned())),
        state().prop_map(|state| Truth::Present(seen(state))),
    ];
    let answer = prop_oneof![
        controller().prop_map(|controller| {
            let by = DecidedBy {
                policy: "somebody".to_owned(),
                digest: None,
            };
            Answer::Try(controller, by)
        }),
        controller()
            .prop_map(|controller| Answer::TakeOver(controller, "p-mnist-default-0".to_owned())),
        Just(Answer::Wait(Vec::new())),
        Just(Answer::Reject("never".to_owned())),
    ];
    prop_oneof![
        Just(Fact::Written),
        id().prop_map(|id| Fact::Recorded(Intent::Create(id))),
        id().prop_map(|id| Fact::Recorded(Intent::Reset(id))),
        (id(), reply).prop_map(|(id, reply)| Fact::Created { id, reply }),
        (id(), truth).prop_map(|(id, truth)| Fact::Truth { id, truth }),
        (id(), error()).prop_map(|(id, error)| Fact::Removed { id, error }),
        (id(), error()).prop_map(|(id, error)| Fact::Reset { id, error }),
        answer.prop_map(Fact::Placed),
    ]
}

fn seen(state: SeenState) -> Seen {
    Seen {
        state,
        errors: Vec::new(),
        auto_resets: None,
    }
}

impl Honest {
    fn truth(&self, id: &str) -> Truth {
        if self.unreachable.contains(id) {
            return Truth::Unreachable("down".to_owned());
        }
        let found = self.there.get(id);
        found.map_or(Truth::Absent, |state| Truth::Present(seen(*state)))
    }

    fn users(&self, id: &str) -> Vec<String> {
        let is_used = self.in_use.contains(id);
        is_used
            .then(|| "default/pod".to_owned())
            .into_iter()
            .collect()
    }

    /// Does what the core wants and tells what came of it; nothing once it rests.
    fn carry_out(&mut self, object: &mut IPUPartition, step: Step) -> Option<Fact> {
        let refusal = self.refuses.then(|| "no".to_owned());
        Some(match step {
            Step::Rest(_) | Step::RemoveFinalizer { .. } => return None,
            Step::AddFinalizer => {
                object.metadata.finalizers = Some(vec![names::PARTITION_FINALIZER.to_owned()]);
                Fact::Written
            }
            Step::Write(status) => {
                object.status = Some(*status);
                Fact::Written
            }
            Step::Record(status, intent) => {
                object.status = Some(*status);
                Fact::Recorded(intent)
            }
            Step::Create(attempt) => {
                if !self.refuses {
                    self.there.insert(attempt.id.clone(), SeenState::Busy);
                }
                let reply = refusal.map_or(Reply::Done, Reply::Failed);
                Fact::Created {
                    id: attempt.id,
                    reply,
                }
            }
            Step::AskTruth(attempt) => Fact::Truth {
                truth: self.truth(&attempt.id),
                id: attempt.id,
            },
            Step::CountUsers(id) => Fact::Users {
                pods: self.users(&id),
                id,
            },
            Step::Remove { attempt, .. } => {
                let id = attempt.id;
                assert!(!self.in_use.contains(&id), "{id} is removed under a Pod");
                assert!(driver::is_of(&id, object), "{id} is not its own");
                if !self.refuses {
                    self.there.remove(&id);
                }
                Fact::Removed { id, error: refusal }
            }
            Step::Reset(attempt) => {
                let id = attempt.id;
                assert!(!self.in_use.contains(&id), "{id} is reset under a Pod");
                assert!(driver::is_of(&id, object), "{id} is not its own");
                Fact::Reset { id, error: refusal }
            }
            Step::LookAround => Fact::Surroundings(Surroundings::default()),
            Step::Place => {
                let all: Vec<Controller> = (0..3).map(|index| Controller::new(index, 4)).collect();
                let views: Vec<_> = all.iter().map(|one| one.view(false)).collect();
                let references: Vec<_> = all.into_iter().map(|one| one.reference).collect();
                let offer = driver::Offer {
                    views,
                    closed: &Closed::new(),
                    line: &[],
                    taken: &[],
                    held: 0,
                    controllers: &references,
                };
                let (settings, now) = (driver::settings(), Timestamp::UNIX_EPOCH);
                Fact::Placed(driver::place(object, offer, &settings, now))
            }
        })
    }
}

/// Reconciles until nothing is to be done; that the steps come to an end, `decide` demands itself.
fn come_to_rest(object: &mut IPUPartition, honest: &mut Honest, facts: Vec<Fact>, now: Timestamp) {
    let mut reconcile = Reconcile::begin(Stored {
        version: 0,
        object: object.clone().into(),
    });
    for fact in facts {
        reconcile.learn(fact);
    }
    loop {
        let step = reconcile.decide(&driver::settings(), now);
        let Some(fact) = honest.carry_out(object, step) else {
            return;
        };
        reconcile.object = object.clone().into();
        reconcile.learn(fact);
    }
}

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
    fn nonsense_written_by_hand_harms_nothing_and_comes_to_rest(
        object in object(),
        facts in prop::collection::vec(fact(), 0..4),
        honest in honest(),
        now in time(),
    ) {
        let (mut object, mut honest) = (object, honest);
        come_to_rest(&mut object, &mut honest, facts, now.0);
    }
}

/// What becomes of a status that asks for a reset, where every controller does as it is told.
fn rested(status: IPUPartitionStatus) -> IPUPartitionStatus {
    let there = status.partition_id.iter().cloned();
    let mut honest = Honest {
        in_use: BTreeSet::new(),
        there: there.map(|id| (id, SeenState::Active)).collect(),
        unreachable: BTreeSet::new(),
        refuses: false,
    };
    let mut object = IPUPartition::new("default.mnist-0", spec((4, 1, 1)));
    object.metadata.finalizers = Some(vec![names::PARTITION_FINALIZER.to_owned()]);
    object.status = Some(status);
    come_to_rest(&mut object, &mut honest, Vec::new(), Timestamp::UNIX_EPOCH);
    object.status.unwrap()
}

#[test]
fn a_partition_that_is_not_its_own_is_let_go_whatever_its_attempt_says() {
    use AttemptOutcome::{Created, Refused, Removed, Unknown};
    for outcome in [Created, Refused, Removed, Unknown] {
        let status = rested(IPUPartitionStatus {
            phase: PartitionPhase::Ready,
            partition_id: Some("handmade".to_owned()),
            attempts: vec![Attempt {
                controller: Controller::new(0, 4).reference,
                id: "handmade".to_owned(),
                outcome,
                reason: None,
                started: None,
                decided_by: None,
            }],
            ..IPUPartitionStatus::default()
        });
        assert_ne!(status.partition_id.as_deref(), Some("handmade"));
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
