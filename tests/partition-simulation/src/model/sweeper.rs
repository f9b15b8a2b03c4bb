//! The sweep of the model, as in `sweep.rs`: it lists the controllers, lists the API server, and
//! performs the tasks of `course.rs`. Other transitions may occur in between.

use std::convert::Infallible;
use std::time::Duration;

use ipu_ledger::sweep::orphans::RemotePartition;
use ipu_ledger::sweep::{Course, Task};
use vipu_client::model::ReadyState;

use super::Small;
use super::state::{Flying, State};
use crate::sim_adapter;
use crate::simulation::controllers::Verb;
use crate::simulation::invariants::{OWNERLESS_ONLY, demand};

/// The tasks of a sweep. Owners delete their own objects in the model, so that its sweep deletes
/// none.
type Tasks = Course<Infallible, Infallible>;

/// The progress of a sweep.
#[derive(Clone, Debug, Hash)]
pub(super) enum Stage {
    /// The controllers were listed.
    Judge(Vec<RemotePartition>),
    /// The next task, and those that follow.
    Perform(Task<Infallible>, Tasks),
}

impl Small {
    /// A replica continues its sweep.
    pub(super) fn sweep(&self, state: &mut State, who: usize) {
        let stage = state.replicas[who].sweep.take();
        state.replicas[who].sweep = match stage {
            None => {
                state.sweeps = state.sweeps.saturating_sub(1);
                Some(Stage::Judge(partitions_on_controllers(state)))
            }
            Some(Stage::Judge(found)) => next(self.judge(state, who, &found)),
            Some(Stage::Perform(task, mut tasks)) => {
                match task {
                    Task::Count(partition) => {
                        let users = state.users(&partition.1).len();
                        tasks.counted(partition, users);
                    }
                    Task::Remove(partition) => self.remove(state, &partition),
                }
                next(tasks)
            }
        };
    }

    /// Finds the partitions without an owner.
    fn judge(&self, state: &mut State, who: usize, found: &[RemotePartition]) -> Tasks {
        let held = sim_adapter::held(state.api.values().map(|one| one.object.as_ref()));
        let suspects = &state.replicas[who].suspects;
        let identity = &self.settings[state.release].identity;
        let now = Duration::from_millis(self.millis(state.clock));
        let orphans = sim_adapter::find_orphans(found, &held, suspects, identity, now);
        state.replicas[who].suspects = orphans.suspects;
        sim_adapter::course(Ok(Vec::new()), orphans.due)
    }

    fn remove(&self, state: &mut State, (name, id): &RemotePartition) {
        let held = sim_adapter::held(state.api.values().map(|one| one.object.as_ref()));
        demand(!held.contains(id), OWNERLESS_ONLY, || {
            format!("{id} on {name} is swept")
        });
        let mut known = state.controllers.iter();
        let controller = known
            .position(|one| one.reference.name == *name)
            .expect("it was listed");
        let made = state.controllers[controller].made.get(id);
        let force = made.is_some_and(|made| made.ready == ReadyState::Error);
        let (id, verb) = (id.clone(), Verb::Remove { force });
        let _ = self.arrive(
            state,
            &Flying {
                controller,
                verb,
                id,
            },
        );
    }
}

/// Every partition on every controller that answers.
fn partitions_on_controllers(state: &State) -> Vec<RemotePartition> {
    let up = state
        .controllers
        .iter()
        .filter(|one| !one.is_down && !one.denies);
    up.flat_map(|one| {
        let name = &one.reference.name;
        one.made.keys().map(move |id| (name.clone(), id.clone()))
    })
    .collect()
}

/// The next stage, as long as there is something left.
fn next(mut tasks: Tasks) -> Option<Stage> {
    let task = tasks.next_task()?;
    Some(Stage::Perform(task, tasks))
}
