//! The model check: explores every order of events in a small model with the partition core, two
//! replicas of it, V-IPU controllers of few IPUs, owners of one slot, and a bounded number of
//! faults.
//!
//! The simulation samples large models, and this exhausts a small one. Both call the core through
//! `sim_adapter.rs`, use the same V-IPU controllers, and check the same invariants; stateright
//! explores the states. `IPU_OPERATOR_MODEL=large` also explores the large bounds, and with the
//! name of a bound only that one is explored.
//!
//! Not modelled: a watch that is late although its replica is not paused, and the clock of the
//! queue.

mod bounds;
mod calls;
mod faults;
mod moves;
mod owners;
mod replica;
mod settle;
mod state;
mod sweeper;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

use ipu_ledger::step::Settings;
use jiff::{SignedDuration, Timestamp};
use stateright::{Checker, HasDiscoveries, Model, Path, Property};
use vipu_client::model::{OperationState, ReadyState};

use super::sim_adapter;
use super::simulation::controllers::Controller;
use super::simulation::invariants::{LIVENESS, RunHistory};
use super::simulation::missing::Missing;
use bounds::{Bound, LARGE, SMALL};
use faults::Faults;
use moves::Move;
use state::{Life, Owner, Replica, State};

/// The small world, within its bound.
struct Small {
    bound: Bound,
    /// Of each release.
    settings: [Settings; 3],
    /// States from which everything comes to a good end.
    proven: Mutex<HashSet<u64>>,
}

impl Small {
    fn new(bound: Bound) -> Self {
        let release = |cluster, namespace| Settings {
            identity: sim_adapter::identity(cluster, namespace),
            ..sim_adapter::settings()
        };
        Self {
            bound,
            settings: [
                sim_adapter::settings(),
                release(0, "another-release"),
                release(1, "another-release"),
            ],
            proven: Mutex::default(),
        }
    }

    fn millis(&self, clock: u16) -> u64 {
        let tick = u64::try_from(self.bound.tick.as_millis()).expect("a tick is short");
        u64::from(clock) * tick
    }

    fn time(&self, clock: u16) -> Timestamp {
        let since = i64::try_from(self.millis(clock)).expect("a run is short");
        Timestamp::UNIX_EPOCH
            + SignedDuration::from_secs(1_700_000_000)
            + SignedDuration::from_millis(since)
    }

    /// The state after a move. A rule that is broken becomes part of it.
    fn after(&self, state: &State, action: &Move) -> State {
        let mut next = state.clone();
        let made = panic::catch_unwind(AssertUnwindSafe(|| self.make(&mut next, action)));
        if let Err(cause) = made {
            let text = cause.downcast_ref::<String>().cloned();
            let text = text.or_else(|| cause.downcast_ref::<&str>().map(ToString::to_string));
            next.broken = Some(text.unwrap_or_default());
        }
        next
    }
}

/// A controller on which others have one IPU.
fn controller(index: usize, total: u32) -> Arc<Controller> {
    let mut controller = Controller::new(index, total);
    controller.insert(foreign(index), 1, ReadyState::Active, OperationState::Idle);
    Arc::new(controller)
}

/// The id of what others have made on a controller.
fn foreign(controller: usize) -> String {
    format!("handmade-{controller}")
}

impl Small {
    /// The rule that is broken at the end of this path, and the moves that lead to it.
    fn describe(&self, path: Path<State, Move>) -> String {
        let last = path.last_state().clone();
        let mut moves = path.into_actions();
        let why = match self.stuck(&last) {
            Some(stuck) => {
                moves.extend(stuck.moves);
                stuck.why
            }
            None => last.broken.unwrap_or_default(),
        };
        let mut state = self.init_states().remove(0);
        let mut lines = vec![why];
        for one in moves {
            lines.push(moves::describe(&state, &one));
            state = self.after(&state, &one);
        }
        lines.join("\n")
    }
}

impl Model for Small {
    type State = State;
    type Action = Move;

    fn init_states(&self) -> Vec<State> {
        let controllers = self.bound.controllers.iter().enumerate();
        let owner = Owner {
            life: Life::There,
            pod: None,
            attached: false,
            starts: if self.bound.careless { STARTS } else { 0 },
            used: None,
            made: 0,
        };
        let leader = Replica {
            acts: true,
            ..Replica::default()
        };
        let mut state = State {
            clock: 0,
            ticks: self.bound.ticks,
            sweeps: self.bound.sweeps,
            faults: Faults::of(self.bound.faults, self.bound.most),
            api: BTreeMap::new(),
            replicas: [leader, Replica::default()],
            controllers: controllers
                .map(|(index, total)| controller(index, *total))
                .collect(),
            stuck: BTreeSet::new(),
            flying: Vec::new(),
            owners: vec![owner; self.bound.wanted.len()],
            history: Arc::new(RunHistory::default()),
            missing: Arc::new(Missing::default()),
            release: 0,
            broken: None,
        };
        for key in 0..state.owners.len() {
            self.deed(&mut state, key, owners::Deed::Ask);
        }
        vec![state]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Move>) {
        if state.broken.is_none() {
            self.moves(state, actions);
        }
    }

    fn next_state(&self, last: &State, action: Move) -> Option<State> {
        Some(self.after(last, &action))
    }

    fn within_boundary(&self, state: &State) -> bool {
        let mut objects = state.api.values();
        objects.all(|one| {
            let status = one.object.status.as_ref();
            status.is_none_or(|status| status.generation <= self.bound.attempts)
        })
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(SAFETY, |_, state: &State| state.broken.is_none()),
            Property::always(LIVENESS, |model: &Small, state: &State| {
                model.stuck(state).is_none()
            }),
            Property::sometimes(SERVED, |_, state: &State| {
                state.owners.iter().all(|owner| owner.pod.is_some())
            }),
            Property::sometimes(SPENT, |_, state: &State| state.faults.is_spent()),
        ]
    }
}

/// Pods that a careless owner starts, at most.
const STARTS: u8 = 3;

/// No rule of `simulation/invariants.rs` that can be broken at one moment is.
const SAFETY: &str = "no rule is broken";

/// The world is not so small that nothing happens in it.
const SERVED: &str = "the Pods of all owners run";
const SPENT: &str = "as many faults have occurred as may";

/// Explores the small world within a bound.
fn explore(bound: &Bound, threads: usize) {
    let began = Instant::now();
    let checker = Small::new(*bound).checker().threads(threads);
    let checker = checker.finish_when(HasDiscoveries::AnyFailures);
    let checker = checker.spawn_bfs().join();
    println!(
        "{:>9} states, {:>9} with repetitions, depth {:>3}, {:>6.1} s: {}",
        checker.unique_state_count(),
        checker.state_count(),
        checker.max_depth(),
        began.elapsed().as_secs_f64(),
        bound.name,
    );
    for rule in [SAFETY, LIVENESS] {
        if let Some(path) = checker.discovery(rule) {
            panic!("{}: {}", bound.name, checker.model().describe(path));
        }
    }
    for point in [SERVED, SPENT] {
        checker.assert_any_discovery(point);
    }
}

#[test]
fn no_order_of_events_breaks_a_rule() {
    let size = std::env::var("IPU_OPERATOR_MODEL").unwrap_or_default();
    let processors = thread::available_parallelism().map_or(1, Into::into);
    let is_of_size = |bound: &&Bound| match size.as_str() {
        "" => SMALL.iter().any(|one| one.name == bound.name),
        "large" => true,
        name => bound.name == name,
    };
    let bounds: Vec<&Bound> = SMALL.iter().chain(LARGE).filter(is_of_size).collect();
    assert!(
        !bounds.is_empty(),
        "IPU_OPERATOR_MODEL is \"{size}\": give large, or the name of a bound"
    );
    for bound in bounds {
        explore(bound, if size.is_empty() { 1 } else { processors });
    }
}
