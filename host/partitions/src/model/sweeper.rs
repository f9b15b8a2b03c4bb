//! The sweep of the model, in the order of `sweep.rs`: list the controllers, list the API server, then act. Other
//! transitions may occur in between.

use std::time::Duration;

use vipu_client::model::ReadyState;

use super::Small;
use super::state::{Flying, State};
use crate::orphans::RemotePartition;
use crate::sim_adapter;
use crate::simulation::controllers::Verb;
use crate::simulation::invariants::{OWNERLESS_ONLY, demand};

/// The progress of a sweep.
#[derive(Clone, Debug, Hash)]
pub(super) enum Stage {
    /// The controllers were listed.
    Judge(Vec<RemotePartition>),
    /// These are to be removed, one after the other, once they are unused.
    Count(Vec<RemotePartition>),
    /// The first of these was unused a moment ago.
    Remove(Vec<RemotePartition>),
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
            Some(Stage::Judge(found)) => some(Stage::Count, self.judge(state, who, &found)),
            Some(Stage::Count(mut due)) => {
                let is_used = due
                    .last()
                    .is_some_and(|(_, id)| !state.users(id).is_empty());
                if is_used {
                    due.pop();
                    some(Stage::Count, due)
                } else {
                    some(Stage::Remove, due)
                }
            }
            Some(Stage::Remove(mut due)) => {
                if let Some(partition) = due.pop() {
                    self.remove(state, &partition);
                }
                some(Stage::Count, due)
            }
        };
    }

    /// Finds the partitions without an owner.
    fn judge(
        &self,
        state: &mut State,
        who: usize,
        found: &[RemotePartition],
    ) -> Vec<RemotePartition> {
        let held = sim_adapter::held(state.api.values().map(|one| one.object.as_ref()));
        let suspects = &state.replicas[who].suspects;
        let identity = &self.settings[state.release].identity;
        let now = Duration::from_millis(self.millis(state.clock));
        let told = sim_adapter::find_orphans(found, &held, suspects, identity, now);
        state.replicas[who].suspects = told.suspects;
        told.due
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
fn some(
    stage: impl FnOnce(Vec<RemotePartition>) -> Stage,
    due: Vec<RemotePartition>,
) -> Option<Stage> {
    (!due.is_empty()).then(|| stage(due))
}
