//! Pure: the steps of one reconcile, and its observations.

mod next_step;

use ipu_api::ipupartition::{ControllerRef, IPUPartition};
use jiff::Timestamp;

use super::observations::{Observation, Observations};
use super::step::{Settings, Step};
use crate::status;

/// Most steps of one reconcile. Every path through the state machine is shorter; this bounds a
/// mistake in it.
const STEPS_MAX: u32 = 256;

/// The steps repeat without end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the reconcile did not end within {STEPS_MAX} steps; this is a fault of the operator")]
pub struct StepLimit;

/// One reconcile of one IPUPartition. The executor carries out each step and adds the observation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Steps {
    observations: Observations,
    taken: u32,
    has_worked: bool,
}

impl Steps {
    /// The next step for the object as it is now. `current` returns the entry of a controller in
    /// the list. A new name is recorded first: no controller answers at the old one.
    pub fn next(
        &mut self,
        partition: &IPUPartition,
        settings: &Settings,
        current: impl Fn(&ControllerRef) -> Option<ControllerRef>,
        now: Timestamp,
    ) -> Result<Step, StepLimit> {
        if self.taken == STEPS_MAX {
            return Err(StepLimit);
        }
        self.taken += 1;
        let status = partition.status.as_ref();
        let updated = status.and_then(|status| status::with_current_entries(status, current));
        if let Some(updated) = updated {
            return Ok(Step::Write(Box::new(updated)));
        }
        Ok(next_step::next(
            partition,
            &self.observations,
            settings,
            now,
        ))
    }

    /// Adds the observation of a step.
    pub fn observe(&mut self, observation: Observation) {
        self.observations.observe(observation);
    }

    /// Adds the observation of a step that has written the object.
    pub fn observe_write(&mut self, observation: Observation) {
        self.has_worked = true;
        // The object may be on another controller now.
        self.observations.forget_eviction();
        self.observe(observation);
    }

    /// Whether anything was written.
    pub fn has_worked(&self) -> bool {
        self.has_worked
    }
}

#[cfg(test)]
mod tests;
