//! The replicas of the model: one reconcile after the other, and one step of it at a time.
//!
//! A step and its reply are one transition: the time between them affects only the reconcile
//! itself, which waits. A read that depends on nothing else and the decision after it are one
//! transition, too.

use std::collections::BTreeMap;
use std::sync::Arc;

use ipu_api::guest::placement::ControllerView;
use ipu_api::ipupartition::{ControllerRef, IPUPartition, IPUPartitionStatus};
use ipu_api::labels;
use ipu_api::vipu_controller::CordonStates;
use ipu_ledger::observations::{Intent, Observation, RemoteState};
use ipu_ledger::step::Step;
use ipu_placement::backfill::Assigned;
use ipu_placement::decision::PlacementDecision;
use ipu_placement::guest_call::{Candidates, QueueView};

use super::Small;
use super::calls::CallFault;
use super::faults::Fault;
use super::state::{State, Task, Version, ticket};
use crate::sim_adapter;
use crate::sim_reconcile::{EffectResult, Reconcile};
use crate::simulation::api_server::{self, Key};
use crate::simulation::controllers::Verb;
use crate::simulation::evidence::Evidence;
use crate::simulation::invariants::{ONE_USABLE, Release, StatusWrite, demand};

/// The result of a step.
pub(super) enum Outcome {
    /// The reconcile receives this reply.
    Observed(Observation),
    /// It has written its object, and receives this reply.
    Wrote(Version, Observation),
    /// It has ended.
    Over,
}

impl Small {
    /// A replica begins to reconcile an object. Triggers are not modelled: it may begin at any
    /// time.
    pub(super) fn begin(&self, state: &mut State, who: usize, key: Key) {
        let copies = state.replicas[who].frozen.as_ref();
        let found = match copies {
            Some(copies) => copies
                .get(&key)
                .map(|one| (one.version.clone(), one.is_current)),
            None => state.api.get(&key).map(|one| (one.clone(), true)),
        };
        let Some((version, is_current)) = found else {
            return;
        };
        let task = Task {
            core: Reconcile::begin(version.print, version.object),
            evidence: Evidence::default(),
            is_current,
            step: Step::Place,
            decided: 0,
        };
        self.decide(state, (who, key), task);
    }

    /// Asks the core for the next step, which is executed at any time from now on.
    fn decide(&self, state: &mut State, (who, key): (usize, Key), mut task: Task) {
        let now = self.time(state.clock);
        let settings = &self.settings[state.release];
        task.step = task.core.decide(settings, &BTreeMap::new(), now);
        task.decided = state.clock;
        match task.step {
            Step::Done(_) => state.ended(who, key),
            Step::EvaluateEviction => {
                let objects: Vec<_> = state.api.values().map(|one| one.object.clone()).collect();
                let views = views(state, &objects);
                let object = task.core.object();
                let objects = objects.iter().map(Arc::as_ref);
                let found = sim_adapter::evaluate_eviction(
                    object,
                    objects,
                    views,
                    &CordonStates::new(),
                    settings.backfill_limit,
                    now,
                );
                let answer = EffectResult::Observed(Observation::Eviction(found));
                self.answer(state, (who, key), task, answer);
            }
            _ => {
                state.replicas[who].tasks.insert(key, Arc::new(task));
            }
        }
    }

    /// A replica executes the step that a reconcile has decided on.
    pub(super) fn act(&self, state: &mut State, (who, key): (usize, Key), call_fault: CallFault) {
        let Some(task) = state.replicas[who].tasks.remove(&key) else {
            return;
        };
        let mut task = Arc::unwrap_or_clone(task);
        if call_fault != CallFault::Nothing {
            state.faults.spend(call_fault.fault());
        }
        match self.carry_out(state, (who, key), &task, call_fault) {
            Outcome::Observed(observation) => {
                if matches!(observation, Observation::Created { .. }) {
                    state.replicas[who].assigned.remove(&key);
                }
                task.evidence.note(&observation);
                self.answer(state, (who, key), task, EffectResult::Observed(observation));
            }
            Outcome::Wrote(version, observation) => {
                task.evidence.note(&observation);
                let answer = EffectResult::Wrote(version.print, version.object);
                self.answer(state, (who, key), task, answer);
            }
            Outcome::Over => state.ended(who, key),
        }
    }

    /// The executor has the answer to its step, and goes on if the reconcile has not ended.
    fn answer(
        &self,
        state: &mut State,
        (who, key): (usize, Key),
        mut task: Task,
        answer: EffectResult,
    ) {
        match task.core.answer(answer) {
            Ok(None) => self.decide(state, (who, key), task),
            Ok(Some(_)) | Err(_) => state.ended(who, key),
        }
    }

    fn carry_out(
        &self,
        state: &mut State,
        (who, key): (usize, Key),
        task: &Task,
        call_fault: CallFault,
    ) -> Outcome {
        let ticket = ticket(who, key);
        match task.step.clone() {
            Step::Done(_) | Step::EvaluateEviction => Outcome::Over,
            Step::AddFinalizer => write(
                state,
                key,
                task,
                call_fault,
                Observation::Written,
                with_finalizer,
            ),
            Step::RemoveFinalizer { .. } => release(state, key, task),
            Step::Write(status) => self.write_status(
                state,
                (who, key),
                task,
                call_fault,
                *status,
                Observation::Written,
            ),
            Step::Record(status, intent) => {
                let observation = Observation::Recorded(intent);
                self.write_status(state, (who, key), task, call_fault, *status, observation)
            }
            Step::Create(attempt) => {
                state.history().create_sent(&attempt, ticket);
                let ipus = task.core.object().spec.ipus;
                let observation = self.call(state, &attempt, Verb::Create { ipus }, call_fault);
                Outcome::Observed(observation)
            }
            Step::Remove { attempt, force } => {
                Outcome::Observed(self.call(state, &attempt, Verb::Remove { force }, call_fault))
            }
            Step::Reset(attempt) => {
                state.history().reset_sent(&attempt.id, ticket);
                Outcome::Observed(self.call(state, &attempt, Verb::Reset, call_fault))
            }
            Step::ReadState(attempt) => {
                let remote_state = if call_fault == CallFault::Nothing {
                    self.remote_state(state, &attempt)
                } else {
                    RemoteState::Unreachable("deadline exceeded".to_owned())
                };
                let id = attempt.id;
                Outcome::Observed(Observation::RemoteState { id, remote_state })
            }
            Step::CountUsers(id) => {
                let pods = state.users(&id);
                Outcome::Observed(Observation::Users { id, pods })
            }
            Step::Place => {
                let answer = self.place(state, (who, key), task.core.object());
                Outcome::Observed(Observation::Placed(sim_adapter::answer(answer, None, 0)))
            }
        }
    }

    /// The placement decision of a replica. In the operator, a pass makes it, and a later reconcile
    /// takes it. Between them, the object may change, as it may here between the decision and the
    /// record of it.
    fn place(
        &self,
        state: &mut State,
        (who, key): (usize, Key),
        object: &IPUPartition,
    ) -> PlacementDecision {
        let now = self.time(state.clock);
        let seen = state.seen(who);
        let entries = sim_adapter::queue(seen.iter().map(Arc::as_ref), now);
        let assigned = state.replicas[who].assigned.iter();
        let assigned: Vec<Assigned> = assigned
            .filter(|(other, _)| **other != key)
            .map(|(_, (controller, ipus))| Assigned {
                controller: controller.clone(),
                ipus: *ipus,
                count: 1,
            })
            .collect();
        let queue = QueueView {
            entries: &entries,
            assigned: &assigned,
            held: sim_adapter::held_by_owner(object, seen.iter().map(Arc::as_ref)),
            backfill_limit: self.settings[state.release].backfill_limit,
        };
        let found = Candidates::of(views(state, &seen), CordonStates::new());
        let known = state.controllers.iter().map(|one| one.reference.clone());
        let known: Vec<ControllerRef> = known.collect();
        let answer = sim_adapter::place(object, found, queue, &known, now);
        if let PlacementDecision::Try(controller, _) = &answer {
            let assigned = (controller.name.clone(), object.spec.ipus);
            state.replicas[who].assigned.insert(key, assigned);
        }
        answer
    }

    fn write_status(
        &self,
        state: &mut State,
        (who, key): (usize, Key),
        task: &Task,
        call_fault: CallFault,
        status: IPUPartitionStatus,
        observation: Observation,
    ) -> Outcome {
        if !task.is_current {
            return Outcome::Over;
        }
        let before = task.core.object().status.clone().unwrap_or_default();
        let after = status.clone();
        let intent = match &observation {
            Observation::Recorded(intent) => Some(intent.clone()),
            _ => None,
        };
        let set = |object: &mut IPUPartition| object.status = Some(status);
        let outcome = write(state, key, task, call_fault, observation, set);
        self.check_status(state, (who, key), task, intent.as_ref(), &before, &after);
        outcome
    }

    fn check_status(
        &self,
        state: &mut State,
        (who, key): (usize, Key),
        task: &Task,
        intent: Option<&Intent>,
        before: &IPUPartitionStatus,
        after: &IPUPartitionStatus,
    ) {
        let grace = self.settings[0].grace.as_millis();
        let grace = u64::try_from(grace).expect("a grace is short");
        let now = self.millis(state.clock);
        let missing = Arc::make_mut(&mut state.missing);
        missing.check(before, after, grace, now);
        for id in &task.evidence.unreachable {
            missing.mark_unread(id);
        }
        state.history().status_written(&StatusWrite {
            ticket: ticket(who, key),
            intent,
            before,
            after,
            evidence: &task.evidence,
        });
        check_slot(state, key);
    }
}

/// The controllers in the view of a replica whose cache has these objects.
fn views(state: &State, objects: &[Arc<IPUPartition>]) -> Vec<ControllerView> {
    let held = sim_adapter::allocations(objects.iter().map(Arc::as_ref));
    let views = state.controllers.iter().map(|one| one.view(false));
    views
        .map(|said| sim_adapter::withheld(said, &held, None))
        .collect()
}

/// A write with the version that was read.
fn write(
    state: &mut State,
    key: Key,
    task: &Task,
    call_fault: CallFault,
    observation: Observation,
    change: impl FnOnce(&mut IPUPartition),
) -> Outcome {
    if !task.is_current {
        return Outcome::Over;
    }
    let mut object = IPUPartition::clone(task.core.object());
    change(&mut object);
    let version = Version::of(object);
    state.changed(key, Some(version.clone()));
    if call_fault == CallFault::Nothing {
        Outcome::Wrote(version, observation)
    } else {
        Outcome::Over
    }
}

fn with_finalizer(object: &mut IPUPartition) {
    let mut all = object.metadata.finalizers.take().unwrap_or_default();
    all.push(labels::PARTITION_FINALIZER.to_owned());
    object.metadata.finalizers = Some(all);
}

fn release(state: &mut State, key: Key, task: &Task) -> Outcome {
    if !task.is_current {
        return Outcome::Over;
    }
    let there: Vec<String> = state
        .controllers
        .iter()
        .flat_map(|one| one.made.keys().cloned())
        .collect();
    let is_there = |id: &str| there.iter().any(|one| one == id);
    let release = Release {
        object: task.core.object(),
        abandoned: &[],
        is_forced: false,
        evidence: &task.evidence,
    };
    state.history().released(key, &release, is_there);
    state.changed(key, None);
    Outcome::Over
}

/// A slot has at most one partition that Pods use or may use.
pub(super) fn check_slot(state: &State, key: Key) {
    let used = state.owners[key].pod.as_deref();
    let is_real = |id: &&str| state.exists(id) && !state.history.was_abandoned(id);
    let mut usable: Vec<&str> = used.filter(is_real).into_iter().collect();
    let object = state.api.get(&key).map(|one| one.object.as_ref());
    usable.extend(object.and_then(api_server::offered));
    usable.dedup();
    demand(usable.len() <= 1, ONE_USABLE, || format!("{usable:?}"));
}

impl CallFault {
    /// The faults that may occur with a step.
    pub(super) fn of(step: &Step) -> &'static [CallFault] {
        match step {
            Step::Create(_) | Step::Remove { .. } => &CallFault::ALL,
            // Only its id could distinguish a second delivery of a reset from the first.
            Step::Reset(_) => &CallFault::ONCE,
            Step::ReadState(_) | Step::AddFinalizer | Step::Write(_) | Step::Record(..) => {
                &[CallFault::ReplyLost]
            }
            Step::RemoveFinalizer { .. }
            | Step::CountUsers(_)
            | Step::EvaluateEviction
            | Step::Place
            | Step::Done(_) => &[],
        }
    }

    pub(super) fn fault(self) -> Fault {
        match self {
            CallFault::Nothing | CallFault::RequestLost | CallFault::ReplyLost => Fault::Lost,
            CallFault::Late => Fault::Late,
            CallFault::Doubled => Fault::Doubled,
            CallFault::Refused => Fault::Refused,
        }
    }
}
