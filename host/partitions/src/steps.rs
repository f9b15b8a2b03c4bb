//! Pure: the steps of one reconcile, one after the other, and what it has learned on the way.

use std::collections::BTreeMap;

use ipu_api::ipupartition::{ControllerRef, IPUPartition};
use jiff::Timestamp;

use super::knowledge::{Fact, Knowledge};
use super::record;
use super::step::{self, Settings, Step};

/// Steps of one reconcile. No way through the state machine is longer; this bounds a mistake in it.
const STEPS_MAX: u32 = 256;

/// The steps went round in a circle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("failed to come to rest within {STEPS_MAX} steps")]
pub(super) struct Circle;

/// One reconcile of one IPUPartition. The shell carries each step out and adds what it yields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Steps {
    knowledge: Knowledge,
    taken: u32,
    has_worked: bool,
}

impl Steps {
    /// The next step for the object as it is now. `renamed` are controllers that have another name now, which
    /// is written down first: nobody answers at the old one.
    pub(super) fn next(
        &mut self,
        partition: &IPUPartition,
        settings: &Settings,
        renamed: &BTreeMap<String, ControllerRef>,
        now: Timestamp,
    ) -> Result<Step, Circle> {
        if self.taken == STEPS_MAX {
            return Err(Circle);
        }
        self.taken += 1;
        let status = partition.status.as_ref();
        if let Some(moved) = status.and_then(|status| record::moved(status, renamed)) {
            return Ok(Step::Write(Box::new(moved)));
        }
        Ok(step::next(partition, &self.knowledge, settings, now))
    }

    /// Takes in what a step has yielded.
    pub(super) fn learn(&mut self, fact: Fact) {
        self.knowledge.learn(fact);
    }

    /// The same of a step that wrote the object.
    pub(super) fn wrote(&mut self, fact: Fact) {
        self.has_worked = true;
        // They were read for what the object was: it may be on another controller now.
        self.knowledge.forget_surroundings();
        self.learn(fact);
    }

    /// Whether anything was written.
    pub(super) fn has_worked(&self) -> bool {
        self.has_worked
    }
}
