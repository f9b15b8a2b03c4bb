//! The transitions of the model: which are enabled in a state, and their results.

use std::sync::Arc;

use ipu_api::ipupartition::{Attempt, AttemptOutcome, IPUPartitionStatus, PartitionPhase};
use ipu_api::partition_conditions;
use ipu_placement::samples;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use vipu_client::model::{OperationState, ReadyState};

use super::Small;
use super::calls::{self, CallFault};
use super::faults::Fault;
use super::owners::{self, Deed};
use super::state::{Copied, Life, Replica, State};
use crate::simulation::api_server::{self, Key};
use crate::simulation::controllers::{Made, Then};
use crate::simulation::trace;

/// The release that is in another cluster.
const ELSEWHERE: usize = 2;

/// One transition.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Move {
    /// A replica begins to reconcile an object.
    Begin(usize, Key),
    /// A reconcile executes its step, with this fault.
    Act(usize, Key, CallFault),
    /// A late call arrives, by its index among them.
    Arrive(usize),
    /// An operation on a controller progresses.
    Progress(usize, String, Then),
    /// An action of an owner.
    Deed(Key, Deed),
    /// A replica continues its sweep.
    Sweep(usize),
    /// Time passes.
    Tick,
    /// A replica crashes and restarts.
    Crash(usize),
    /// The first replica is paused for longer than its lease, and the other one becomes the leader.
    Pause,
    /// Both replicas lead.
    BothLead,
    /// A replica notices that it does not lead any more.
    StepDown(usize),
    /// A controller loses its state.
    Empty(usize),
    /// A controller is unreachable.
    GoDown(usize),
    /// It is reachable again.
    ComeUp(usize),
    /// A controller denies access.
    Deny(usize),
    /// It grants it again.
    Grant(usize),
    /// A controller does not finish an operation.
    Stick(usize, String),
    /// Another release takes over: this one of the settings.
    HandOver(usize),
    /// A client writes the partition of another one into a status.
    Edit(Key, AttemptOutcome),
    /// An owner is deleted.
    DeleteJob(Key),
    /// A requested IPUPartition is deleted.
    DeleteObject(Key),
}

impl Small {
    /// All transitions that are enabled.
    pub(super) fn moves(&self, state: &State, moves: &mut Vec<Move>) {
        for who in 0..2 {
            moves_of_replica(state, who, moves);
        }
        moves.extend((0..state.flying.len()).map(Move::Arrive));
        for (controller, id, well, badly) in calls::under_way(state) {
            if state.faults.may(Fault::Failed) {
                moves.push(Move::Progress(controller, id.clone(), badly));
            }
            moves.push(Move::Progress(controller, id, well));
        }
        for key in 0..state.owners.len() {
            let deeds = self.deeds(state, key).into_iter();
            moves.extend(deeds.map(|deed| Move::Deed(key, deed)));
        }
        if state.ticks > 0 && self.is_due(state) {
            moves.push(Move::Tick);
        }
        faults(state, moves);
    }

    /// Whether a timeout or deadline is pending: otherwise the passing of time would change only
    /// times that are compared with nothing. Assigned capacity is requested before.
    fn is_due(&self, state: &State) -> bool {
        let is_assigning = state.replicas.iter().any(|one| !one.assigned.is_empty());
        let has_suspects = state.replicas.iter().any(|one| !one.suspects.is_empty());
        let statuses = state
            .api
            .values()
            .filter_map(|one| one.object.status.as_ref());
        let mut statuses = statuses.filter(|status| self.has_deadline(status));
        !is_assigning && (has_suspects || statuses.next().is_some())
    }

    fn has_deadline(&self, status: &IPUPartitionStatus) -> bool {
        let is_disturbed = |one: &Condition| {
            [partition_conditions::BUSY, partition_conditions::MISSING]
                .contains(&one.type_.as_str())
                || one.reason == partition_conditions::DISTURBED
        };
        let forms = status.phase == PartitionPhase::Creating;
        let refused = |one: &Attempt| one.outcome == AttemptOutcome::Refused;
        status.conditions.iter().any(is_disturbed)
            || status.attempts.iter().any(refused)
            || forms && self.bound.tick >= self.settings[0].forming
    }

    /// The result of a transition.
    pub(super) fn make(&self, state: &mut State, action: &Move) {
        match action {
            Move::Begin(who, key) => self.begin(state, *who, *key),
            Move::Act(who, key, call_fault) => self.act(state, (*who, *key), *call_fault),
            Move::Arrive(index) => {
                let call = state.flying.remove(*index);
                let _ = self.arrive(state, &call);
            }
            Move::Progress(controller, id, then) => {
                if matches!(
                    then,
                    Then::FailedToForm | Then::FailedToGo | Then::FailedToReset
                ) {
                    state.faults.spend(Fault::Failed);
                }
                state.controller(*controller).progress(id, *then);
            }
            Move::Deed(key, deed) => self.deed(state, *key, *deed),
            Move::Sweep(who) => self.sweep(state, *who),
            Move::Tick => {
                state.clock += 1;
                state.ticks = state.ticks.saturating_sub(1);
            }
            _ => self.make_fault(state, action),
        }
        let controllers = &state.controllers;
        let is_there = |id: &String| controllers.iter().any(|one| one.made.contains_key(id));
        state.stuck.retain(is_there);
        for (key, owner) in state.owners.iter_mut().enumerate() {
            let is_empty = owner.pod.is_none() && !state.api.contains_key(&key);
            if owner.life == Life::Ending && is_empty {
                owner.life = Life::Away;
            }
        }
    }

    fn make_fault(&self, state: &mut State, action: &Move) {
        match action {
            Move::Crash(who) => {
                state.faults.spend(Fault::Crashed);
                restart(state, *who);
            }
            Move::Pause => pause(state),
            Move::BothLead => {
                state.faults.spend(Fault::BothLead);
                state.replicas[1].acts = true;
            }
            Move::StepDown(who) => {
                state.dropped(*who);
                state.replicas[*who] = Replica::default();
            }
            Move::Empty(controller) => {
                state.faults.spend(Fault::Emptied);
                let history = Arc::clone(&state.history);
                let made = &mut state.controller(*controller).made;
                made.retain(|id, _| !history.is_ours(id));
            }
            Move::GoDown(controller) => {
                state.faults.spend(Fault::Down);
                state.controller(*controller).is_down = true;
            }
            Move::ComeUp(controller) => state.controller(*controller).is_down = false,
            Move::Deny(controller) => {
                state.faults.spend(Fault::Denied);
                state.controller(*controller).denies = true;
            }
            Move::Grant(controller) => state.controller(*controller).denies = false,
            Move::Stick(controller, id) => {
                state.faults.spend(Fault::Stuck);
                stick(state, *controller, id);
            }
            Move::Edit(key, outcome) => {
                state.faults.spend(Fault::Edited);
                edit(state, *key, *outcome);
            }
            Move::HandOver(release) => {
                state.faults.spend(Fault::HandedOver);
                state.release = *release;
                state.history().cluster = u64::from(*release == ELSEWHERE);
                restart(state, 0);
                restart(state, 1);
            }
            Move::DeleteJob(key) => {
                state.faults.spend(Fault::JobDeleted);
                state.owners[*key].life = Life::Ending;
            }
            Move::DeleteObject(key) => {
                state.faults.spend(Fault::ObjectDeleted);
                owners::delete(state, *key, Time(self.time(state.clock)));
            }
            _ => {}
        }
    }
}

/// The first replica sees the present state for as long as it is paused, and the second one is
/// active.
fn pause(state: &mut State) {
    state.faults.spend(Fault::Paused);
    let copied = |(key, version): (&Key, &_)| {
        let version = Clone::clone(version);
        (
            *key,
            Copied {
                version,
                is_current: true,
            },
        )
    };
    let copies = state.api.iter().map(copied).collect();
    state.replicas[0].frozen = Some(copies);
    state.replicas[1].acts = true;
}

fn moves_of_replica(state: &State, who: usize, moves: &mut Vec<Move>) {
    let replica = &state.replicas[who];
    for (key, task) in &replica.tasks {
        moves.push(Move::Act(who, *key, CallFault::Nothing));
        let call_faults = CallFault::of(&task.step).iter();
        let call_faults = call_faults.filter(|one| state.faults.may(one.fault()));
        moves.extend(call_faults.map(|one| Move::Act(who, *key, *one)));
    }
    if replica.sweep.is_some() || replica.acts && state.sweeps > 0 {
        moves.push(Move::Sweep(who));
    }
    if !replica.acts {
        return;
    }
    let keys: Vec<Key> = match &replica.frozen {
        Some(copies) => copies.keys().copied().collect(),
        None => state.api.keys().copied().collect(),
    };
    let idle = keys
        .into_iter()
        .filter(|key| !replica.tasks.contains_key(key));
    moves.extend(idle.map(|key| Move::Begin(who, key)));
    if state.replicas[1 - who].acts && (replica.frozen.is_some() || who == 0) {
        moves.push(Move::StepDown(who));
    }
}

/// A process that starts has listed everything, and has no other state.
fn restart(state: &mut State, who: usize) {
    state.dropped(who);
    let acts = state.replicas[who].acts;
    state.replicas[who] = Replica {
        acts,
        ..Replica::default()
    };
}

/// The faults that may occur now.
fn faults(state: &State, moves: &mut Vec<Move>) {
    let may = |fault| state.faults.may(fault);
    let both_act = state.replicas.iter().all(|one| one.acts);
    for who in 0..2 {
        // A replica that executes nothing loses nothing.
        if may(Fault::Crashed) && !state.replicas[who].tasks.is_empty() {
            moves.push(Move::Crash(who));
        }
    }
    if may(Fault::Paused) && !both_act {
        moves.push(Move::Pause);
    }
    if may(Fault::BothLead) && !both_act {
        moves.push(Move::BothLead);
    }
    for (index, controller) in state.controllers.iter().enumerate() {
        let ours = controller
            .made
            .iter()
            .filter(|(id, _)| state.history.is_ours(id));
        if may(Fault::Emptied) && ours.clone().next().is_some() {
            moves.push(Move::Empty(index));
        }
        if may(Fault::Stuck) {
            let can_stick = ours.filter(|(_, made)| can_stick(made));
            moves.extend(can_stick.map(|(id, _)| Move::Stick(index, id.clone())));
        }
        if may(Fault::Down) && !controller.is_down {
            moves.push(Move::GoDown(index));
        }
        if controller.is_down {
            moves.push(Move::ComeUp(index));
        }
        if may(Fault::Denied) && !controller.denies {
            moves.push(Move::Deny(index));
        }
        if controller.denies {
            moves.push(Move::Grant(index));
        }
    }
    if may(Fault::HandedOver) {
        moves.extend([1, ELSEWHERE].map(Move::HandOver));
    }
    for (key, owner) in state.owners.iter().enumerate() {
        if may(Fault::JobDeleted) && owner.life == Life::There {
            moves.push(Move::DeleteJob(key));
        }
        let object = state.api.get(&key);
        if may(Fault::ObjectDeleted)
            && object.is_some_and(|one| !api_server::is_deleted(&one.object))
        {
            moves.push(Move::DeleteObject(key));
        }
        if may(Fault::Edited) && object.is_some() {
            let outcomes = [AttemptOutcome::Unknown, AttemptOutcome::Created];
            moves.extend(outcomes.map(|outcome| Move::Edit(key, outcome)));
        }
    }
}

/// The name of a transition in a trace.
pub(super) fn describe(state: &State, action: &Move) -> String {
    let Move::Act(who, key, call_fault) = action else {
        return format!("{action:?}");
    };
    let task = state.replicas[*who].tasks.get(key);
    let step = task
        .map(|task| trace::brief(&task.step))
        .unwrap_or_default();
    format!("Act({who}, {key}, {call_fault:?}): {step}")
}

fn can_stick(made: &Made) -> bool {
    match made.operation {
        OperationState::Creating | OperationState::Resetting => true,
        OperationState::Idle => made.ready == ReadyState::Active,
        OperationState::Removing | OperationState::Failed | OperationState::Undefined => false,
    }
}

/// A controller does not finish its operation on a partition, or begins a reset that does not
/// finish.
fn stick(state: &mut State, controller: usize, id: &str) {
    state.stuck.insert(id.to_owned());
    let Some(made) = state.controller(controller).made.get_mut(id) else {
        return;
    };
    if made.operation == OperationState::Idle {
        made.ready = ReadyState::Pending;
        made.operation = OperationState::Resetting;
    }
}

/// A client writes the partition that another one has on the first controller into a status.
fn edit(state: &mut State, key: Key, outcome: AttemptOutcome) {
    let controller = state.controllers[0].reference.clone();
    owners::update(state, key, |object| {
        let status = object.status.get_or_insert_default();
        status
            .attempts
            .push(samples::attempt(controller, &super::foreign(0), outcome));
    });
}
