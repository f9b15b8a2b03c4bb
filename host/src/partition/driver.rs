//! The one file by which the simulation and the nonsense call the core: what it decides, learns, and
//! is asked.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::api::ipupartition::{Attempt, ControllerRef, DecidedBy, IPUPartition, WaitingReason};
use crate::api::ipupolicy::BUILT_IN;
use crate::names;
use crate::partition::knowledge::{Answer, Fact, Knowledge, Truth};
use crate::partition::line::{self, Waiter};
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
    pub(super) fn begin(version: u64, object: Rc<IPUPartition>) -> Self {
        Reconcile {
            object,
            version,
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
    let asked = others.clone().flat_map(surroundings::asked_for);
    let line = line(others.clone(), |_| {}, now);
    let open = line::spared(&line, asked, open.cloned().collect());
    surroundings::of(object, others, closed, &open, now)
}

/// Those who wait, in order; `stand` says of each how it stands.
pub(super) fn line<'a>(
    objects: impl Iterator<Item = &'a IPUPartition> + Clone,
    stand: impl Fn(&mut Waiter),
    now: Timestamp,
) -> Vec<Waiter> {
    let mut line = line::line(objects, now);
    line.iter_mut().for_each(stand);
    line
}

/// What a reconcile learns from a state that a controller tells.
pub(super) fn truth(state: Option<&PartitionState>) -> Truth {
    state.map_or(Truth::Absent, |state| Truth::Present(look::seen(state)))
}

/// What is known where an object looks for a controller.
pub(super) struct Offer<'a> {
    /// The controllers, open and closed, as they were read.
    pub views: Vec<ControllerView>,
    pub closed: &'a Closed,
    pub line: &'a [Waiter],
    /// What others were told to take of each controller, and is not made yet.
    pub taken: &'a [(String, u32)],
    /// How many partitions the object's owner has.
    pub held: u32,
    pub controllers: &'a [ControllerRef],
}

/// The answer of the line and of the built-in placement policy.
pub(super) fn place(
    object: &IPUPartition,
    offer: Offer<'_>,
    settings: &Settings,
    now: Timestamp,
) -> Answer {
    let me = line::me(object, offer.line, now);
    if let Some(why) = line::never_fits(&me, offer.views.iter()) {
        return Answer::Reject(why);
    }
    let is_shut = |view: &ControllerView| offer.closed.contains_key(&view.name);
    let (shut, open): (Vec<_>, Vec<_>) = offer.views.into_iter().partition(is_shut);
    let limit = SignedDuration::try_from(settings.overtaking_limit).expect("a limit is short");
    let room = line::room(&me, offer.line, offer.taken, offer.held, open, limit, now);
    let later = |reasons| {
        if room.is_promised {
            Answer::Later(reasons)
        } else {
            Answer::Wait(reasons)
        }
    };
    if let Some(why) = &room.too_small {
        let (controller, reason) = ("every controller".to_owned(), why.clone());
        return later(vec![WaitingReason { controller, reason }]);
    }
    let status = object.status.clone().unwrap_or_default();
    let request = placing::request(object, Default::default(), offer.held, now);
    let decision = wasm::serial_walk(&request, &room.views, &placing::tried(&status));
    let shut_out = shut
        .iter()
        .map(|view| placing::shut_out(view, offer.closed));
    let by = DecidedBy {
        policy: BUILT_IN.to_owned(),
        digest: None,
    };
    match placing::answer(decision, by, offer.controllers) {
        Answer::Wait(reasons) => {
            let mut reasons = line::explained(reasons, &room);
            reasons.extend(shut_out);
            later(reasons)
        }
        Answer::Reject(_) if shut.iter().any(|view| view.total_ipus >= request.ipus) => {
            Answer::Wait(shut_out.collect())
        }
        answer => answer,
    }
}

/// How many partitions the owner of `object` has, or is getting.
pub(super) fn held_by_owner<'a>(
    object: &IPUPartition,
    others: impl Iterator<Item = &'a IPUPartition>,
) -> u32 {
    surroundings::held(object, others)
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
    let found = found.iter().map(|(name, id)| (name.as_str(), id.as_str()));
    orphans::tell(
        found,
        |id| held.contains(id),
        suspects,
        INSTALLATION,
        GRACE,
        now,
    )
}

/// Takes from the suspects what this object, which a watch has shown, answers for.
pub(super) fn spare(suspects: &mut BTreeMap<Place, Timestamp>, object: &IPUPartition) {
    orphans::spare(suspects, object);
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

/// Whether the operator can have given this id to this object, or taken it over for it.
pub(super) fn is_of(id: &str, object: &IPUPartition) -> bool {
    let spec = &object.spec;
    names::is_of_owner(id, INSTALLATION, &spec.owner)
        || id == names::inherited_partition(&spec.owner, spec.slot)
}

/// Whether this truth says that the room of what was made is free.
pub(super) fn gives_room(attempt: &Attempt, truth: &Truth) -> bool {
    look::gives_room(attempt, truth)
}
