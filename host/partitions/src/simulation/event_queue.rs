//! The virtual clock, and the queue of future events.

use std::collections::BTreeMap;
use std::sync::Arc;

use ipu_api::ipupartition::IPUPartition;

use super::api_server::Key;
use super::controllers::{Call, Then};
use super::repair::Repair;
use super::sweeper::Stage;
use crate::observations::Observation;

/// Which reconcile of which replica waits for a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Ticket {
    /// The replica.
    pub who: usize,
    /// The object that is reconciled.
    pub key: Key,
    /// Which reconcile it is; no two have the same number.
    pub serial: u64,
}

/// What comes back to a reconcile.
#[derive(Debug)]
pub(super) enum Reply {
    Observed(Box<Observation>),
    Wrote(u64, Arc<IPUPartition>, Box<Observation>),
    Released,
    Conflict,
    Broken,
}

impl Reply {
    pub(super) fn observed(observation: Observation) -> Self {
        Self::Observed(Box::new(observation))
    }
}

/// Something that happens at its time.
#[derive(Debug)]
pub(super) enum Event {
    /// A replica's watch delivers the changes up to this one.
    Watch { who: usize, upto: usize },
    /// A replica looks at an object again.
    Wake { who: usize, key: Key, number: u64 },
    /// A reconcile carries out the step that it has decided on.
    Send(Ticket),
    /// A reconcile gets its reply.
    Reply(Ticket, Reply),
    /// A call reaches its V-IPU controller.
    Arrive(Call),
    /// A V-IPU controller has got on with something.
    Progress {
        controller: usize,
        id: String,
        then: Then,
    },
    /// A replica gets on with its sweep.
    Sweep { who: usize, life: u64, stage: Stage },
    /// The owner of partitions looks at them.
    Tick(usize),
    /// What becomes of a job.
    Fate(usize, Fate),
    /// A Pod has ended.
    PodEnds(u64),
    /// A fault is injected.
    Fault,
    /// A fault ends.
    Repair(Repair),
}

/// What becomes of a job besides its plain course.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It begins.
    Come,
    /// It wants so many partitions from now on.
    Scale(usize),
    /// It is deleted, and cleans up.
    Delete,
    /// It is gone at once, with nothing cleaned up.
    Vanish,
    /// It asks for a reset, whatever uses its partitions.
    AskReset,
}

/// Events in the order of their times; those of the same time in the order in which they were added.
#[derive(Debug, Default)]
pub(super) struct EventQueue {
    now: u64,
    added: u64,
    events: BTreeMap<(u64, u64), Event>,
}

impl EventQueue {
    /// Milliseconds since the run began.
    pub(super) fn now(&self) -> u64 {
        self.now
    }

    /// Adds what happens in so many milliseconds.
    pub(super) fn add(&mut self, delay: u64, event: Event) {
        self.added += 1;
        self.events.insert((self.now + delay, self.added), event);
    }

    /// The next event up to this time, to which the clock moves on. Without one it moves to `until`.
    pub(super) fn next(&mut self, until: u64) -> Option<Event> {
        match self.events.first_entry() {
            Some(first) if first.key().0 <= until => {
                self.now = first.key().0;
                Some(first.remove())
            }
            _ => {
                self.now = until;
                None
            }
        }
    }

    /// The calls to controllers that are still on their way.
    pub(super) fn calls(&self) -> impl Iterator<Item = &Call> {
        self.events.values().filter_map(|event| match event {
            Event::Arrive(call) => Some(call),
            _ => None,
        })
    }
}
