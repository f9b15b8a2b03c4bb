//! A cooperative environment, and the rules that the core obeys in it after any status and any
//! observations: it never panics, harms no partition in use, and each reconcile ends.

use std::collections::{BTreeMap, BTreeSet};

use ipu_api::guest::placement::ControllerView;
use ipu_api::ipupartition::{ControllerRef, IPUPartition};
use ipu_api::vipu_controller::CordonStates;
use ipu_api::{labels, naming};
use ipu_ledger::observations::{HealthState, Observation, PartitionHealth, RemoteState, Reply};
use ipu_ledger::step::Step;
use ipu_placement::decision::PlacementDecision;
use ipu_placement::drain::EvictionState;
use ipu_placement::guest_call::{Candidates, QueueView};
use ipu_placement::samples;
use jiff::Timestamp;

use super::sim_adapter;
use super::sim_reconcile::{EffectResult, Reconcile};
use ipu_api::crd::violations::violations;

/// An object, earlier observations of its reconcile, and its environment.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(super) object: IPUPartition,
    pub(super) observations: Vec<Observation>,
    pub(super) env: CooperativeEnv,
    pub(super) now: Timestamp,
}

/// The cases of an object: each kind of environment, for the ids in the object.
pub(crate) fn cases(object: &IPUPartition) -> Vec<Case> {
    let status = object.status.clone().unwrap_or_default();
    let tried = status.attempts.into_iter().map(|attempt| attempt.id);
    let adoptable = naming::adoptable_partition(&object.spec.owner, object.spec.slot);
    let ids: BTreeSet<String> = tried
        .chain(status.partition_id)
        .chain([adoptable])
        .collect();
    let worlds = (0..16_u8).map(|bits| {
        let ids = |bit: u8| ids.iter().filter(move |_| bits & bit != 0).cloned();
        CooperativeEnv {
            in_use: ids(1).collect(),
            there: ids(2).map(|id| (id, HealthState::Active)).collect(),
            unreachable: ids(4).collect(),
            refuses: bits & 8 != 0,
        }
    });
    let case = |env| Case {
        object: object.clone(),
        observations: Vec::new(),
        env,
        now: Timestamp::UNIX_EPOCH,
    };
    worlds.map(case).collect()
}

impl Case {
    /// Runs a reconcile to its end. The API server accepts the result if it accepted the object.
    pub(crate) fn check(self) {
        let Case {
            object: before,
            observations,
            mut env,
            now,
        } = self;
        let mut object = before.clone();
        run_to_completion(&mut object, &mut env, observations, now);
        let faults = violations(&object);
        // Before the year 0 a clock's own time is none to the API server.
        let was_sound = || now >= Timestamp::UNIX_EPOCH && violations(&before).is_empty();
        assert!(
            faults.is_empty() || !was_sound(),
            "{faults:?} in {object:?}, which was {before:?}"
        );
    }
}

/// The state of the environment.
#[derive(Clone, Debug)]
pub(crate) struct CooperativeEnv {
    pub in_use: BTreeSet<String>,
    pub there: BTreeMap<String, HealthState>,
    pub unreachable: BTreeSet<String>,
    pub refuses: bool,
}

pub(super) fn health(state: HealthState) -> PartitionHealth {
    PartitionHealth {
        state,
        errors: Vec::new(),
        auto_resets: None,
        first_ipu: None,
        account: None,
    }
}

impl CooperativeEnv {
    fn remote_state(&self, id: &str) -> RemoteState {
        if self.unreachable.contains(id) {
            return RemoteState::Unreachable("down".to_owned());
        }
        let found = self.there.get(id);
        found.map_or(RemoteState::Absent, |state| {
            RemoteState::Present(health(*state))
        })
    }

    fn users(&self, id: &str) -> Vec<String> {
        let is_used = self.in_use.contains(id);
        is_used
            .then(|| "default/pod".to_owned())
            .into_iter()
            .collect()
    }

    /// Carries out a step and returns the answer.
    fn carry_out(&mut self, object: &mut IPUPartition, step: Step) -> EffectResult {
        let refusal = self.refuses.then(|| "no".to_owned());
        EffectResult::Observed(match step {
            Step::Done(_) => return EffectResult::Nothing,
            Step::RemoveFinalizer { .. } => return EffectResult::Released,
            Step::AddFinalizer => {
                object.metadata.finalizers = Some(vec![labels::PARTITION_FINALIZER.to_owned()]);
                return EffectResult::Wrote(0, object.clone().into());
            }
            Step::Write(status) | Step::Record(status, _) => {
                object.status = Some(*status);
                return EffectResult::Wrote(0, object.clone().into());
            }
            Step::Create(attempt) => {
                if !self.refuses {
                    self.there.insert(attempt.id.clone(), HealthState::Busy);
                }
                let reply = refusal.map_or(Reply::Done, Reply::Failed);
                Observation::Created {
                    id: attempt.id,
                    reply,
                }
            }
            Step::ReadState(attempt) => Observation::RemoteState {
                remote_state: self.remote_state(&attempt.id),
                id: attempt.id,
            },
            Step::CountUsers(id) => Observation::Users {
                pods: self.users(&id),
                id,
            },
            Step::Remove { attempt, .. } => {
                let id = attempt.id;
                assert!(!self.in_use.contains(&id), "{id} is removed under a Pod");
                assert!(sim_adapter::is_of(&id, object), "{id} is not its own");
                if !self.refuses {
                    self.there.remove(&id);
                }
                Observation::Removed { id, error: refusal }
            }
            Step::Reset(attempt) => {
                let id = attempt.id;
                assert!(!self.in_use.contains(&id), "{id} is reset under a Pod");
                assert!(sim_adapter::is_of(&id, object), "{id} is not its own");
                Observation::Reset { id, error: refusal }
            }
            Step::EvaluateEviction => Observation::Eviction(EvictionState::default()),
            Step::Place => Observation::Placed(sim_adapter::answer(placed(object), None, 0)),
        })
    }
}

/// Reconciles until nothing is left to do. `decide` demands that the steps end.
pub(super) fn run_to_completion(
    object: &mut IPUPartition,
    env: &mut CooperativeEnv,
    observations: Vec<Observation>,
    now: Timestamp,
) {
    let mut reconcile = Reconcile::begin(0, object.clone().into());
    for observation in observations {
        reconcile.assume(observation);
    }
    loop {
        let step = reconcile.decide(&sim_adapter::settings(), &BTreeMap::new(), now);
        let answer = env.carry_out(object, step);
        if reconcile.answer(answer).is_ok_and(|ended| ended.is_some()) {
            return;
        }
    }
}

/// The placement decision with three free controllers.
fn placed(object: &IPUPartition) -> PlacementDecision {
    let references: Vec<_> = (0..3).map(controller).collect();
    let found = Candidates::of(references.iter().map(free).collect(), CordonStates::new());
    let queue = QueueView {
        entries: &[],
        assigned: &[],
        held: 0,
        backfill_limit: sim_adapter::settings().backfill_limit,
    };
    sim_adapter::place(object, found, queue, &references, Timestamp::UNIX_EPOCH)
}

/// One of the controllers.
pub(super) fn controller(index: usize) -> ControllerRef {
    let host = format!("pod{}", index + 1);
    ControllerRef {
        name: format!("{host}:8090"),
        label_value: host.clone(),
        host,
        port: 8090,
        label_key: "vipu".to_owned(),
    }
}

fn free(controller: &ControllerRef) -> ControllerView {
    ControllerView {
        label_key: controller.label_key.clone(),
        label_value: controller.label_value.clone(),
        ..samples::view(&controller.name, 4, 0)
    }
}
