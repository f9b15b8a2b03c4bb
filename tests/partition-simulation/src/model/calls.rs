//! Calls to the V-IPU controllers of the model, and their effects.

use std::collections::BTreeMap;
use std::sync::Arc;

use ipu_api::ipupartition::Attempt;
use ipu_ledger::observations::{Observation, RemoteState};
use vipu_client::model::OperationState;

use super::Small;
use super::replica::check_slot;
use super::state::{Flying, State};
use crate::sim_adapter;
use crate::simulation::controllers::{Call, Then, Verb};
use crate::simulation::invariants::{NOT_ASSIGNED_TWICE, demand};

/// The fault of one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallFault {
    Nothing,
    RequestLost,
    ReplyLost,
    Late,
    Doubled,
    Refused,
}

impl CallFault {
    pub(super) const ALL: [CallFault; 5] = [
        CallFault::RequestLost,
        CallFault::ReplyLost,
        CallFault::Late,
        CallFault::Doubled,
        CallFault::Refused,
    ];
    pub(super) const ONCE: [CallFault; 4] = [
        CallFault::RequestLost,
        CallFault::ReplyLost,
        CallFault::Late,
        CallFault::Refused,
    ];
}

impl Small {
    /// Calls a controller. Returns the result for the caller.
    pub(super) fn call(
        &self,
        state: &mut State,
        attempt: &Attempt,
        verb: Verb,
        call_fault: CallFault,
    ) -> Observation {
        let controller = index(state, attempt);
        let call = Call {
            controller,
            verb,
            id: attempt.id.clone(),
            caller: None,
            is_late: false,
            is_refused: call_fault == CallFault::Refused,
        };
        let id = attempt.id.clone();
        let flying = Flying {
            controller,
            verb,
            id,
        };
        let lost = || Err("deadline exceeded".to_owned());
        match call_fault {
            CallFault::RequestLost => call.observation(lost(), false),
            CallFault::ReplyLost => {
                let _ = self.arrive(state, &flying);
                call.observation(lost(), false)
            }
            CallFault::Late => {
                fly(state, flying);
                call.observation(lost(), false)
            }
            CallFault::Refused => call.observation(Err("resource exhausted".to_owned()), false),
            CallFault::Nothing | CallFault::Doubled => {
                if state.controllers[controller].is_down {
                    return call.observation(Err("connection refused".to_owned()), true);
                }
                let result = self.arrive(state, &flying);
                if call_fault == CallFault::Doubled {
                    fly(state, flying);
                }
                call.observation(result, false)
            }
        }
    }

    /// A call reaches its controller.
    pub(super) fn arrive(&self, state: &mut State, call: &Flying) -> Result<(), String> {
        if state.controllers[call.controller].is_down {
            return Err("connection refused".to_owned());
        }
        let users = state.users(&call.id);
        let result = state
            .controller(call.controller)
            .accept(&call.id, call.verb);
        if result.is_ok() {
            state.history().took_effect(&call.id, call.verb, &users);
            self.check_assigned_once(state, call);
        }
        if let Some(key) = state
            .owners
            .iter()
            .position(|one| one.pod.as_ref() == Some(&call.id))
        {
            check_slot(state, key);
        }
        result.map_err(str::to_owned)
    }

    /// A new partition on a controller does not overlap with lost ones that Pods still use.
    fn check_assigned_once(&self, state: &State, call: &Flying) {
        if !state.faults.assigns_once() || !matches!(call.verb, Verb::Create { .. }) {
            return;
        }
        let controller = &state.controllers[call.controller];
        let is_lost = |id: &str| {
            !controller.made.contains_key(id)
                && state.history.controller_of(id) == Some(controller.reference.name.as_str())
        };
        let pods = state.owners.iter().enumerate();
        let pods = pods.filter(|(_, owner)| owner.attached);
        let lost: BTreeMap<&str, u32> = pods
            .filter_map(|(index, one)| Some((one.pod.as_deref()?, self.bound.wanted[index])))
            .filter(|(id, _)| is_lost(id))
            .collect();
        let taken = controller.inventory().used + lost.values().sum::<u32>();
        demand(taken <= controller.total, NOT_ASSIGNED_TWICE, || {
            format!("{} is made, and Pods use {lost:?}", call.id)
        });
    }

    /// The remote state of an attempt.
    pub(super) fn remote_state(&self, state: &mut State, attempt: &Attempt) -> RemoteState {
        let controller = Arc::clone(&state.controllers[index(state, attempt)]);
        if controller.is_down {
            return RemoteState::Unreachable("connection refused".to_owned());
        }
        if controller.denies {
            return RemoteState::Denied("permission denied".to_owned());
        }
        let found = controller.state(&attempt.id);
        if found.is_none() {
            let now = self.millis(state.clock);
            Arc::make_mut(&mut state.missing).denied(&attempt.id, now);
            state.history().denied(&attempt.id);
        }
        sim_adapter::remote_state(found.as_ref())
    }
}

/// Possible ends of the operations that are under way: success, or failure.
pub(super) fn under_way(state: &State) -> Vec<(usize, String, Then, Then)> {
    let all = state.controllers.iter().enumerate();
    let made =
        all.flat_map(|(index, one)| one.made.iter().map(move |(id, made)| (index, id, made)));
    let goes_on = made.filter_map(|(index, id, made)| {
        let (well, badly) = match made.operation {
            OperationState::Creating | OperationState::Resetting if state.stuck.contains(id) => {
                return None;
            }
            OperationState::Creating => (Then::Formed, Then::FailedToForm),
            OperationState::Removing => (Then::Gone, Then::FailedToGo),
            OperationState::Resetting => (Then::WasReset, Then::FailedToReset),
            OperationState::Idle | OperationState::Failed | OperationState::Undefined => {
                return None;
            }
        };
        Some((index, id.clone(), well, badly))
    });
    goes_on.collect()
}

fn fly(state: &mut State, call: Flying) {
    state.flying.push(call);
    state.flying.sort();
}

fn index(state: &State, attempt: &Attempt) -> usize {
    let mut all = state.controllers.iter();
    let index = all.position(|one| one.reference == attempt.controller);
    index.expect("attempts name controllers of this world")
}
