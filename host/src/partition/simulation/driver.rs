//! The one file of the simulation that calls the core: what it decides, learns, and is asked.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::api_server::Stored;
use crate::api::ipupartition::{Attempt, ControllerRef, IPUPartition};
use crate::names;
use crate::partition::knowledge::{Answer, Fact, Knowledge, Truth};
use crate::partition::orphans::{self, Orphans, Place};
use crate::partition::reconcile::STEPS_MAX;
use crate::partition::step::{self, Pace, Settings, Step};
use crate::partition::surroundings::{self, Surroundings};
use crate::partition::{look, pace, placing, record};
use crate::vipu::closed::Closed;
use crate::vipu::model::PartitionState;
use crate::wasm;
use crate::wasm::model::ControllerView;

/// Name of the installation that is simulated.
pub(super) const INSTALLATION: &str = "here";

/// How long the sweep leaves a partition without an owner alone.
pub(super) const GRACE: SignedDuration = SignedDuration::from_secs(30);

/// One reconcile of one object.
#[derive(Debug)]
pub(super) struct Reconcile {
    pub object: Rc<IPUPartition>,
    pub version: u64,
    knowledge: Knowledge,
    steps: u32,
}

impl Reconcile {
    pub(super) fn begin(read: Stored) -> Self {
        Reconcile {
            object: read.object,
            version: read.version,
            knowledge: Knowledge::default(),
            steps: 0,
        }
    }

    pub(super) fn decide(&mut self, settings: &Settings, now: Timestamp) -> Step {
        self.steps += 1;
        assert!(
            self.steps <= STEPS_MAX,
            "broken invariant: every reconcile comes to rest: {:?}",
            self.object.status
        );
        step::next(&self.object, &self.knowledge, settings, now)
    }

    pub(super) fn learn(&mut self, fact: Fact) {
        self.knowledge.learn(fact);
    }
}

pub(super) fn settings() -> Settings {
    Settings {
        installation: INSTALLATION.to_owned(),
        forming: Duration::from_mins(5),
        grace: Duration::from_secs(30),
        gang_patience: Duration::from_mins(2),
        overtaking_limit: Duration::from_mins(10),
    }
}

/// What surrounds an object, among all objects and the controllers as they are.
pub(super) fn surroundings<'a>(
    object: &IPUPartition,
    others: impl Iterator<Item = &'a IPUPartition> + Clone,
    views: &[ControllerView],
    closed: &Closed,
    now: Timestamp,
) -> Surroundings {
    let open = views.iter().filter(|view| !closed.contains_key(&view.name));
    let open: Vec<ControllerView> = open.cloned().collect();
    surroundings::of(object, others, closed, &open, now)
}

/// What a reconcile learns from a state that a controller tells.
pub(super) fn truth(state: Option<&PartitionState>) -> Truth {
    state.map_or(Truth::Absent, |state| Truth::Present(look::seen(state)))
}

/// The answer of the built-in placement policy.
pub(super) fn place(
    object: &IPUPartition,
    views: &[ControllerView],
    controllers: &[ControllerRef],
) -> Answer {
    let status = object.status.clone().unwrap_or_default();
    let request = placing::request(object, Default::default(), 0, Timestamp::UNIX_EPOCH);
    let decision = wasm::serial_walk(&request, views, &placing::tried(&status));
    placing::answer(decision, controllers)
}

/// How many milliseconds a reconcile rests; none where it waits for a change.
pub(super) fn pause(pace: Pace, rests: u32) -> Option<u64> {
    let pause = pace::rest(pace, rests)?;
    Some(pause.as_millis().try_into().expect("a pause is short"))
}

/// What a sweep is to remove, and what it suspects.
pub(super) fn orphans(
    found: &[Place],
    held: &BTreeSet<String>,
    suspects: &BTreeMap<Place, Timestamp>,
    now: Timestamp,
) -> Orphans {
    orphans::tell(found, held, suspects, INSTALLATION, GRACE, now)
}

/// Every id that these objects answer for.
pub(super) fn held<'a>(objects: impl IntoIterator<Item = &'a IPUPartition>) -> BTreeSet<String> {
    orphans::held(objects)
}

pub(super) fn is_held(attempt: &Attempt) -> bool {
    record::is_held(attempt)
}

pub(super) fn is_ours(id: &str) -> bool {
    names::is_of_installation(id, INSTALLATION)
}
