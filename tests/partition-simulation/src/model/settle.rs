//! Progress: from every state, once no more faults occur, all requests are served, all released
//! partitions are removed, and the replicas do not write without end.
//!
//! "Once no more faults occur" is one path among many: calls arrive, controllers finish their
//! operations and reconciles end, one after the other, and time passes only when nothing else is
//! enabled. It consists of transitions, so that it leads through states for which the same was
//! shown before: each state costs a transition or two.

use std::collections::HashSet;

use ipu_api::ipupartition::PartitionPhase;

use super::Small;
use super::calls::{self, CallFault};
use super::moves::Move;
use super::owners::Deed;
use super::state::{Life, State};
use crate::sim_adapter;
use crate::simulation::api_server::{self, Key};
use crate::simulation::invariants::{LIVENESS, STEADY};

/// Ticks after which nothing more changes. A controller may be busy for ten minutes before its
/// partition is released.
const TICKS: u16 = 40;

/// Maximal number of transitions of one path to the end.
const MOVES: usize = 2_000;

/// A state from which progress fails.
#[derive(Debug)]
pub(super) struct Stuck {
    /// The reason.
    pub why: String,
    /// The transitions that show it.
    pub moves: Vec<Move>,
}

impl Small {
    /// Returns why a state makes no progress; none if it does.
    pub(super) fn stuck(&self, from: &State) -> Option<Stuck> {
        if from.broken.is_some() {
            return None;
        }
        let (mut way, mut moves) = (HashSet::new(), Vec::new());
        let mut state = from.clone();
        let last = from.clock + TICKS;
        loop {
            let print = state.print();
            if self.is_proven(print) {
                break;
            }
            if !way.insert(print) {
                let why = broken(STEADY, &statuses(&state).join("; "));
                return Some(Stuck { why, moves });
            }
            let mut next = self.quiet_moves(&state);
            if next.is_empty() {
                let Some(complaint) = complaint(&state) else {
                    break;
                };
                if state.clock >= last || way.len() > MOVES {
                    let why = broken(LIVENESS, &complaint);
                    return Some(Stuck { why, moves });
                }
                next = pass(&state);
            }
            for one in next {
                state = self.after(&state, &one);
                moves.push(one);
            }
            if let Some(why) = state.broken {
                return Some(Stuck { why, moves });
            }
        }
        let mut proven = self.proven.lock().expect("no test panics meanwhile");
        proven.extend(way);
        None
    }

    fn is_proven(&self, print: u64) -> bool {
        let proven = self.proven.lock().expect("no test panics meanwhile");
        proven.contains(&print)
    }

    /// The next transition without faults; none where everything has settled.
    fn quiet_moves(&self, state: &State) -> Vec<Move> {
        if let Some(action) = self.next_move(state) {
            return vec![action];
        }
        let who = leader(state);
        let mut keys = state.api.keys();
        let found = keys.find_map(|key| self.reconcile(state, who, *key));
        found.unwrap_or_default()
    }

    /// The next transition without faults, except for reconciles that are not under way yet.
    fn next_move(&self, state: &State) -> Option<Move> {
        if !state.flying.is_empty() {
            return Some(Move::Arrive(0));
        }
        for (index, controller) in state.controllers.iter().enumerate() {
            if controller.is_down {
                return Some(Move::ComeUp(index));
            }
            if controller.denies {
                return Some(Move::Grant(index));
            }
        }
        if let Some((controller, id, well, _)) = calls::under_way(state).into_iter().next() {
            return Some(Move::Progress(controller, id, well));
        }
        if state.replicas.iter().all(|one| one.acts) {
            return Some(Move::StepDown(0));
        }
        for who in 0..2 {
            let replica = &state.replicas[who];
            if replica.sweep.is_some() {
                return Some(Move::Sweep(who));
            }
            if let Some(key) = replica.tasks.keys().next() {
                return Some(Move::Act(who, *key, CallFault::Nothing));
            }
        }
        let mut keys = 0..state.owners.len();
        keys.find_map(|key| {
            let mut deeds = self.deeds(state, key).into_iter();
            let deed = deeds.find(|deed| match deed {
                Deed::End => is_to_end(state, key),
                Deed::UseAgain => false,
                Deed::Ask | Deed::Start | Deed::Repair | Deed::GiveBack => true,
            })?;
            Some(Move::Deed(key, deed))
        })
    }

    /// The transitions of a whole reconcile, if that changes anything.
    fn reconcile(&self, state: &State, who: usize, key: Key) -> Option<Vec<Move>> {
        let mut moves = vec![Move::Begin(who, key)];
        let mut next = self.after(state, &moves[0]);
        let mut has_written = false;
        while let Some(task) = next.replicas[who].tasks.get(&key) {
            if next.broken.is_some() {
                break;
            }
            has_written |= task.core.has_worked();
            moves.push(Move::Act(who, key, CallFault::Nothing));
            next = self.after(&next, &moves[moves.len() - 1]);
        }
        (has_written || next != *state).then_some(moves)
    }
}

fn leader(state: &State) -> usize {
    usize::from(!state.replicas[0].acts)
}

/// A while passes, then a sweep follows.
fn pass(state: &State) -> Vec<Move> {
    vec![Move::Tick, Move::Sweep(leader(state))]
}

/// Whether the Pod of this owner is to be deleted.
fn is_to_end(state: &State, key: usize) -> bool {
    let owner = &state.owners[key];
    let object = state.api.get(&key).map(|one| one.object.as_ref());
    owner.life != Life::There || object.and_then(api_server::offered) != owner.pod.as_deref()
}

/// Returns the unsettled part of a final state.
fn complaint(state: &State) -> Option<String> {
    let held = sim_adapter::held(state.api.values().map(|one| one.object.as_ref()));
    for controller in &state.controllers {
        let mut made = controller.made.keys();
        if let Some(id) =
            made.find(|id| state.history.is_of_this_cluster(id) && !held.contains(*id))
        {
            return Some(format!("{id} is an orphan"));
        }
    }
    let mut keys = 0..state.owners.len();
    keys.find_map(|key| unserved(state, key).map(|why| format!("{key}: {why}")))
}

fn unserved(state: &State, key: usize) -> Option<String> {
    let found = state.api.get(&key).map(|one| one.object.as_ref());
    match (state.owners[key].life, found) {
        (Life::Away, None) => None,
        (Life::Away | Life::Ending, _) => Some("it does not go".to_owned()),
        (Life::There, None) => Some("there is no object".to_owned()),
        (Life::There, Some(object)) => {
            let is_usable = |id: &str| state.controllers.iter().any(|one| one.is_usable(id));
            let free = state.controllers.iter().map(|one| one.inventory().free());
            let has_capacity = free.max().is_some_and(|free| free >= object.spec.ipus);
            let is_fine = match api_server::phase(object) {
                PartitionPhase::Ready => api_server::offered(object).is_some_and(is_usable),
                PartitionPhase::Pending => !has_capacity,
                _ => false,
            };
            (!is_fine).then(|| format!("{:?}", object.status))
        }
    }
}

fn broken(rule: &str, why: &str) -> String {
    format!("broken invariant: {rule}: {why}")
}

fn statuses(state: &State) -> Vec<String> {
    let objects = state.api.values();
    objects
        .map(|one| format!("{:?}", one.object.status))
        .collect()
}
