//! The queue as a replica sees it: its order, and when requests are evaluated.

use std::time::Duration;

use ipu_api::ipupartition::{ControllerRef, IPUPartition};
use ipu_api::uid::Uid;

use super::api_server::Key;
use super::coverage::CoveragePoint;
use super::sim_adapter;
use super::world::World;
use crate::eviction::EvictionState;
use crate::observations::Answer;
use crate::placement_request::{Candidates, QueueView};
use crate::queue::QueueEntry;

/// Delay between a release of capacity and the evaluation of waiting requests, in milliseconds.
const BATCH_DELAY: u64 = 200;

/// Lifetime of a capacity reservation, in milliseconds.
const RESERVATION_LIFETIME: u64 = 15_000;

impl World {
    /// The placement decision of a replica for this object: with the queue as it sees it, and inventories that may be
    /// old.
    pub(super) fn place(&mut self, who: usize, object: &IPUPartition) -> Answer {
        let is_old = self.rng.permille(self.fault_rates.calls);
        let now = self.timestamp();
        let held = sim_adapter::allocations(self.replicas[who].seen());
        let removed = self.replicas[who].removed.iter();
        let removed: Vec<Uid> = removed.map(|id| Uid::of(id)).collect();
        let listed = self.controllers.iter().filter(|one| one.is_listed);
        let views = listed.clone().map(|one| {
            let (inventory, view) = one.view(is_old);
            let known = removed.iter().fold(inventory, |read, id| read.without(*id));
            sim_adapter::withheld((known, view), &held)
        });
        let controllers: Vec<ControllerRef> = listed.map(|one| one.reference.clone()).collect();
        let replica = &self.replicas[who];
        let entries =
            sim_adapter::queue(replica.seen(), |entry| self.set_precedence(who, entry), now);
        let uid = object.metadata.uid.clone().unwrap_or_default();
        let evaluated = self.event_queue.now();
        let reservations = replica.reservations.iter().filter(|(other, (told, ..))| {
            **other != uid && evaluated - told < RESERVATION_LIFETIME
        });
        let reservations: Vec<(String, u32)> = reservations
            .map(|(_, (_, name, ipus))| (name.clone(), *ipus))
            .collect();
        let found = Candidates::of(views.collect(), self.cordons.clone());
        let queue = QueueView {
            reservations: &reservations,
            entries: &entries,
            held: sim_adapter::held_by_owner(object, replica.seen()),
            backfill_limit: self.settings.backfill_limit,
        };
        let answer = sim_adapter::place(object, found, queue, &controllers, now);
        if let Answer::Try(controller, _) = &answer {
            let told = (evaluated, controller.name.clone(), object.spec.ipus);
            self.replicas[who].reservations.insert(uid.clone(), told);
        }
        self.replicas[who].evaluated.insert(uid, evaluated);
        if matches!(answer, Answer::Later(_)) {
            self.cover(CoveragePoint::WaitedForEarlier);
        }
        answer
    }

    /// After a release of IPUs, evaluates all waiting requests again.
    pub(super) fn capacity_released(&mut self, who: usize) {
        if !self.replicas[who].acts {
            return;
        }
        self.replicas[who].released_at = self.event_queue.now();
        let seen = self.replicas[who].objects();
        let waiting: Vec<Key> = seen
            .filter(|(_, object)| object.is_waiting())
            .map(|(key, _)| key)
            .collect();
        for key in waiting {
            self.requeue_soon(who, key, BATCH_DELAY);
        }
    }

    /// Evaluates the eviction of an object.
    pub(super) fn evaluate_eviction(&mut self, object: &IPUPartition) -> EvictionState {
        self.cover(CoveragePoint::EvictionEvaluated);
        let others = self.api.list().map(|(_, stored)| stored.object.as_ref());
        let others: Vec<&IPUPartition> = others.collect();
        let held = sim_adapter::allocations(others.iter().copied());
        let listed = self.controllers.iter().filter(|one| one.is_listed);
        let views = listed.map(|one| one.view(false));
        let views: Vec<_> = views
            .map(|said| sim_adapter::withheld(said, &held))
            .collect();
        let (others, now) = (others.into_iter(), self.timestamp());
        let limit = self.settings.backfill_limit;
        sim_adapter::evaluate_eviction(object, others, views, &self.cordons, limit, now)
    }

    fn set_precedence(&self, who: usize, entry: &mut QueueEntry) {
        let ago = |time: u64| Duration::from_millis(self.event_queue.now() - time);
        let replica = &self.replicas[who];
        let evaluated = replica.evaluated.get(&entry.uid).copied();
        entry.set_precedence(evaluated.map(ago), ago(replica.released_at));
    }
}
