//! The virtual clock, and the queue of future events.

use std::collections::BTreeMap;
use std::sync::Arc;

use ipu_api::ipupartition::IPUPartition;
use ipu_ledger::observations::Observation;

use super::api_server::Key;
use super::controllers::{Call, Then};
use super::job_watches::Kind;
use super::job_writes::JobReply;
use super::kubelet::PodStage;
use super::repair::Repair;
use super::sweeper::Stage;

/// A reconcile of a replica that waits for a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Ticket {
    /// The replica.
    pub who: usize,
    /// The object that is reconciled.
    pub key: Key,
    /// The unique number of the reconcile.
    pub serial: u64,
}

/// A reconcile of a job that waits for a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct JobTicket {
    /// The replica.
    pub who: usize,
    /// The job that is reconciled.
    pub job: usize,
    /// The unique number of the reconcile.
    pub serial: u64,
}

/// A reply to a reconcile.
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

/// An event with its time.
#[derive(Debug)]
pub(super) enum Event {
    /// A replica's watch delivers the changes up to this one.
    Watch { who: usize, upto: usize },
    /// A replica reconciles an object again.
    Wake { who: usize, key: Key, number: u64 },
    /// A reconcile executes the step that it has decided on.
    Send(Ticket),
    /// A reconcile receives its reply.
    Reply(Ticket, Reply),
    /// A call reaches its V-IPU controller.
    Arrive(Call),
    /// An operation on a V-IPU controller progresses.
    Progress {
        controller: usize,
        id: String,
        then: Then,
    },
    /// A replica continues its sweep.
    Sweep { who: usize, life: u64, stage: Stage },
    /// A replica decides on the partitions that need a controller.
    Pass { who: usize, life: u64 },
    /// A replica decides again on those that wait.
    Refresh { who: usize, life: u64 },
    /// A watch of the reconciler of jobs delivers the changes of a kind up to this one.
    JobWatch { who: usize, kind: Kind, upto: usize },
    /// A replica reconciles a job again.
    JobWake { who: usize, job: usize, number: u64 },
    /// A reconcile of a job carries out the effect that it has asked for.
    JobSend(JobTicket),
    /// A reconcile of a job receives its reply.
    JobReply(JobTicket, Box<JobReply>),
    /// Something happens to a Pod of a job.
    Kubelet(u64, PodStage),
    /// An owner of an unknown kind reconciles its partitions.
    Tick(usize),
    /// A change of a job.
    Fate(usize, Fate),
    /// The program of a Pod has ended.
    PodEnds(u64),
    /// A fault is injected.
    Fault,
    /// A fault ends.
    Repair(Repair),
}

/// A change of a job by its user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It is created.
    Come,
    /// It requests this number of partitions from now on.
    Scale(usize),
    /// It is deleted, and cleans up.
    Delete,
    /// It is gone at once, without cleanup.
    Vanish,
    /// It requests a reset, even of partitions in use.
    AskReset,
}

/// Events in the order of their times; those of the same time in the order in which they were
/// added.
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

    /// Adds what happens after these milliseconds.
    pub(super) fn add(&mut self, delay: u64, event: Event) {
        self.added += 1;
        self.events.insert((self.now + delay, self.added), event);
    }

    /// The next event up to this time, to which the clock advances. Without one it advances to
    /// `until`.
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

    /// The calls to controllers that are in flight.
    pub(super) fn calls(&self) -> impl Iterator<Item = &Call> {
        self.events.values().filter_map(|event| match event {
            Event::Arrive(call) => Some(call),
            _ => None,
        })
    }
}
