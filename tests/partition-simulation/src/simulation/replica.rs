//! The replicas of the controller: their caches, and the schedule of their reconciles.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ipu_api::ipupartition::{ControllerRef, IPUPartition};
use ipu_ledger::executor;
use ipu_ledger::observations::Observation;
use ipu_ledger::step::{Requeue, Step};
use ipu_ledger::sweep::orphans::Suspects;
use ipu_partitions::controllers::duplicates::Duplicates;
use ipu_placement::cycle::Places;
use ipu_placement::known_sizes::KnownSizes;
use ipu_placement::refusals::Refusals;
use ipu_placement::requests::{Ended, PlacementQueue};

use super::api_server::{Key, Stored};
use super::coverage::CoveragePoint;
use super::event_queue::{Event, Reply, Ticket};
use super::evidence::Evidence;
use super::job_controller::JobController;
use super::queue::uid;
use super::sim_adapter;
use super::world::World;
use crate::sim_reconcile::{EffectResult, Failure, Reconcile};

/// One replica: a process with a cache, reconciles that are under way, and a sweep.
#[derive(Debug, Default)]
pub(super) struct Replica {
    /// Whether it considers itself the leader.
    pub acts: bool,
    /// It is paused up to this time.
    pub stands_until: u64,
    /// It is down up to this time.
    pub dead_until: u64,
    /// Additional delay of its watch.
    pub lag: u64,
    /// The number of its process; results for an earlier process are dropped.
    pub life: u64,
    pub suspects: Suspects,
    pub tasks: BTreeMap<Key, Task>,
    /// The partitions that need a controller.
    pub requests: PlacementQueue,
    /// What fitted on each controller at the end of the last pass.
    pub places: Places,
    /// Whether IPUs were released since then.
    pub has_released: bool,
    /// Removals that controllers have accepted.
    pub removed: BTreeSet<String>,
    /// Sizes that controllers have refused.
    pub refusals: Refusals,
    /// The most IPUs that controllers have reported.
    pub sizes: KnownSizes,
    /// Comparison of the partitions of all entries of the list.
    pub duplicates: Duplicates,
    /// The second names that it has found, each with the first entry of the controller.
    pub second_names: BTreeMap<String, ControllerRef>,
    /// The reconciler of jobs, since it became the leader.
    pub jobs: Option<JobController>,
    cache: BTreeMap<Key, Stored>,
    /// Changes of the log that its watch has delivered.
    position: usize,
    wakes: BTreeMap<Key, u64>,
    idle_rounds: BTreeMap<Key, u32>,
}

/// A reconcile that is under way.
#[derive(Debug)]
pub(super) struct Task {
    pub serial: u64,
    pub core: Reconcile,
    pub evidence: Evidence,
    /// The step that it has decided on and not executed yet.
    pub step: Option<Step>,
    /// Whether its replica was paused between decision and execution.
    pub stood: bool,
    /// Whether the object has changed since it began.
    again: bool,
}

impl Replica {
    /// The objects of its watch cache.
    pub(super) fn objects(&self) -> impl Iterator<Item = (Key, &IPUPartition)> + Clone {
        let cache = self.cache.iter();
        cache.map(|(key, stored)| (*key, stored.object.as_ref()))
    }

    /// The same without their names.
    pub(super) fn seen(&self) -> impl Iterator<Item = &IPUPartition> + Clone {
        self.objects().map(|(_, object)| object)
    }
}

impl World {
    /// The process crashes: all state in memory is lost.
    pub(super) fn crash(&mut self, who: usize, downtime: u64) {
        self.cover(CoveragePoint::Crashed);
        let replica = &mut self.replicas[who];
        let was_at_work = !replica.tasks.is_empty();
        let jobs = replica.jobs.as_ref();
        let were_jobs_at_work = jobs.is_some_and(JobController::is_at_work);
        *replica = Replica {
            acts: replica.acts,
            life: replica.life + 1,
            dead_until: self.event_queue.now() + downtime,
            ..Replica::default()
        };
        if was_at_work {
            self.cover(CoveragePoint::CrashedAtWork);
        }
        if were_jobs_at_work {
            self.cover(CoveragePoint::JobCrashedAtWork);
        }
    }

    /// The process has started and has listed all objects.
    pub(super) fn start(&mut self, who: usize) {
        let replica = &mut self.replicas[who];
        replica.dead_until = 0;
        replica.position = self.api.log().len();
        replica.cache = self
            .api
            .list()
            .map(|(key, stored)| (key, stored.clone()))
            .collect();
        let keys: Vec<Key> = replica.cache.keys().copied().collect();
        for key in keys {
            self.trigger(who, key, 0);
        }
        if self.replicas[who].acts {
            self.begin_jobs(who);
        }
        self.read_sizes(who);
        self.schedule_sweep(who, 0);
        self.schedule_refresh(who);
    }

    pub(super) fn is_dead(&self, who: usize) -> bool {
        self.replicas[who].dead_until > 0
    }

    /// The watch delivers the log up to this index.
    pub(super) fn watch(&mut self, who: usize, upto: usize) {
        if self.is_dead(who) {
            return;
        }
        let from = self.replicas[who].position.min(upto);
        self.replicas[who].position = self.replicas[who].position.max(upto);
        for index in from..upto {
            let change = &self.api.log()[index];
            let key = change.key;
            let replica = &mut self.replicas[who];
            let (before, is_freed) = if let Some(stored) = &change.now {
                sim_adapter::clear_owned(&mut replica.suspects, &stored.object);
                (replica.cache.insert(key, stored.clone()), false)
            } else {
                replica.idle_rounds.remove(&key);
                let gone = replica.cache.remove(&key);
                let forget = |gone: &Stored| replica.requests.forget(uid(&gone.object));
                let is_freed = gone.as_ref().is_some_and(forget);
                (gone, is_freed)
            };
            let status = |stored: &Stored| stored.object.status.clone().unwrap_or_default();
            let after = change.now.as_ref().map(status).unwrap_or_default();
            let releases =
                before.is_some_and(|before| sim_adapter::releases(&status(&before), &after));
            if let Some(task) = replica.tasks.get_mut(&key) {
                task.again = true;
            } else if replica.cache.contains_key(&key) {
                self.trigger(who, key, 0);
            }
            if releases || is_freed {
                self.capacity_released(who);
            }
        }
    }

    /// Schedules a reconcile of an object after these milliseconds, or again once the present one
    /// has ended.
    pub(super) fn requeue_soon(&mut self, who: usize, key: Key, delay: u64) {
        match self.replicas[who].tasks.get_mut(&key) {
            Some(task) => task.again = true,
            None => self.trigger(who, key, delay),
        }
    }

    /// Schedules a reconcile of an object after these milliseconds, instead of any earlier
    /// schedule.
    fn trigger(&mut self, who: usize, key: Key, delay: u64) {
        self.numbers += 1;
        let number = self.numbers;
        self.replicas[who].wakes.insert(key, number);
        self.event_queue
            .add(delay, Event::Wake { who, key, number });
    }

    /// Reconciles an object, unless that was deferred. If it is under way, another one follows it.
    pub(super) fn wake(&mut self, who: usize, key: Key, number: u64) {
        let replica = &mut self.replicas[who];
        if replica.wakes.get(&key) != Some(&number) {
            return;
        }
        replica.wakes.remove(&key);
        if let Some(task) = replica.tasks.get_mut(&key) {
            task.again = true;
            return;
        }
        if !replica.acts {
            // The next leader reconciles everything when it starts to lead.
            return;
        }
        let Some(read) = replica.cache.get(&key).cloned() else {
            return;
        };
        replica.requests.begin_reconcile(uid(&read.object));
        let is_old = self.api.get(key).map(|one| one.version) != Some(read.version);
        self.numbers += 1;
        let serial = self.numbers;
        let task = Task {
            serial,
            core: Reconcile::begin(read.version, read.object),
            evidence: Evidence::default(),
            step: None,
            stood: false,
            again: false,
        };
        self.replicas[who].tasks.insert(key, task);
        if is_old {
            self.cover(CoveragePoint::StaleRead);
        }
        self.decide(Ticket { who, key, serial });
    }

    /// Reconciles everything: the replica has become the leader.
    pub(super) fn become_leader(&mut self, who: usize) {
        if self.replicas[who].acts {
            return;
        }
        let replica = &mut self.replicas[who];
        replica.acts = true;
        replica.requests = PlacementQueue::default();
        self.read_sizes(who);
        self.cover(CoveragePoint::TookOver);
        let keys: Vec<Key> = self.replicas[who].cache.keys().copied().collect();
        for key in keys {
            self.trigger(who, key, 0);
        }
        if !self.is_dead(who) {
            self.begin_jobs(who);
        }
        self.schedule_sweep(who, 0);
        self.schedule_refresh(who);
    }

    /// The reconcile of this ticket, if it is still under way.
    pub(super) fn task(&mut self, ticket: Ticket) -> Option<&mut Task> {
        let task = self.replicas[ticket.who].tasks.get_mut(&ticket.key);
        task.filter(|task| task.serial == ticket.serial)
    }

    /// Asks the core for the next step, which is executed a moment later.
    fn decide(&mut self, ticket: Ticket) {
        let now = self.timestamp();
        let (settings, renamed) = (self.settings.clone(), self.known_renames(ticket.who));
        let Some(task) = self.task(ticket) else {
            return;
        };
        match task.core.decide(&settings, &renamed, now) {
            Step::Done(_) => {
                self.cover(CoveragePoint::Rested);
                self.answered(ticket, EffectResult::Nothing);
            }
            step => {
                task.step = Some(step);
                let pause = self.rng.between(0, 2);
                self.event_queue.add(pause, Event::Send(ticket));
            }
        }
    }

    /// A reply has arrived: the reconcile continues.
    pub(super) fn reply(&mut self, ticket: Ticket, reply: Reply) {
        let Some(task) = self.task(ticket) else {
            return;
        };
        match reply {
            Reply::Observed(observation) => self.observed(ticket, *observation),
            Reply::Wrote(version, object, observation) => {
                task.evidence.note(&observation);
                self.answered(ticket, EffectResult::Wrote(version, object));
            }
            Reply::Released => self.answered(ticket, EffectResult::Released),
            Reply::Conflict => self.answered(ticket, EffectResult::Failed(Failure::Conflict)),
            Reply::Broken => self.answered(ticket, EffectResult::Failed(Failure::Broken)),
        }
    }

    fn observed(&mut self, ticket: Ticket, observation: Observation) {
        let Some(task) = self.task(ticket) else {
            return;
        };
        task.evidence.note(&observation);
        let object = Arc::clone(task.core.object());
        self.note_refusals(ticket.who, &object, &observation);
        let replica = &mut self.replicas[ticket.who];
        if let Observation::Removed { id, error: None } = &observation {
            replica.removed.insert(id.clone());
        }
        if matches!(observation, Observation::Created { .. }) {
            replica.requests.requested(uid(&object));
        }
        let releases_capacity = matches!(observation, Observation::Removed { .. });
        self.answered(ticket, EffectResult::Observed(observation));
        if releases_capacity {
            self.capacity_released(ticket.who);
        }
    }

    /// The executor has the answer to its step. The reconcile goes on or ends.
    pub(super) fn answered(&mut self, ticket: Ticket, answer: EffectResult) {
        let Some(task) = self.task(ticket) else {
            return;
        };
        match task.core.answer(answer) {
            Ok(None) => self.decide(ticket),
            Ok(Some(executor::Ended::Done(requeue))) => {
                self.requeue(ticket, requeue, Ended::Well);
            }
            Ok(Some(executor::Ended::Postponed)) => {
                self.requeue(ticket, Requeue::ForCapacity, Ended::Postponed);
            }
            Ok(Some(executor::Ended::Released)) => {
                self.finish(ticket, None, Ended::Well);
                self.capacity_released(ticket.who);
            }
            Err(Failure::Conflict) => self.finish(ticket, Some(100), Ended::Conflict),
            Err(Failure::Broken) => self.requeue(ticket, Requeue::Blocked, Ended::Failed),
        }
    }

    fn requeue(&mut self, ticket: Ticket, requeue: Requeue, ended: Ended) {
        let has_worked = self.task(ticket).is_some_and(|task| task.core.has_worked());
        let idle_rounds = self.replicas[ticket.who]
            .idle_rounds
            .entry(ticket.key)
            .or_default();
        *idle_rounds = if has_worked { 0 } else { *idle_rounds + 1 };
        let pause = sim_adapter::pause(requeue, *idle_rounds);
        self.finish(ticket, pause, ended);
    }

    /// A reconcile has ended. The next one follows after this delay, or at the next change.
    fn finish(&mut self, ticket: Ticket, pause: Option<u64>, ended: Ended) {
        let Ticket { who, key, .. } = ticket;
        let task = self.replicas[who].tasks.remove(&key);
        if let Some(task) = &task {
            self.end_request(who, task.core.object(), ended);
        }
        if task.is_some_and(|task| task.again) {
            self.trigger(who, key, 0);
        } else if let Some(pause) = pause {
            self.trigger(who, key, pause);
        }
    }
}
