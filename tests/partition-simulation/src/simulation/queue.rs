//! The queue as a replica sees it, and its passes.

use std::sync::Arc;

use ipu_api::ipupartition::{ControllerRef, IPUPartition};
use ipu_api::uid::Uid;
use ipu_ledger::observations::{Observation, Reply};
use ipu_placement::cycle::Pass;
use ipu_placement::decision::PlacementDecision;
use ipu_placement::drain::EvictionState;
use ipu_placement::guest_call::Candidates;
use ipu_placement::requests::Ended;

use super::coverage::CoveragePoint;
use super::event_queue::{Event, Ticket};
use super::sim_adapter;
use super::world::World;
use crate::sim_reconcile::EffectResult;

/// Delay between a release of capacity and the next pass, in milliseconds.
const BATCH_DELAY: u64 = 50;

/// Period at which decisions to wait are refreshed, in milliseconds.
const REFRESH: u64 = 10_000;

impl World {
    /// Executes the step of a reconcile that needs a controller.
    pub(super) fn place(&mut self, ticket: Ticket, object: &IPUPartition) {
        self.cover(CoveragePoint::Placed);
        match self.ask(ticket.who, object) {
            Some(answer) => {
                // The weakest random numbers that are sufficient: they differ where the API server
                // was restored.
                let nonce = self.restores;
                let account = Some(self.account());
                self.observe(
                    ticket,
                    Observation::Placed(sim_adapter::answer(answer, account, nonce)),
                );
            }
            None => self.answered(ticket, EffectResult::Undecided),
        }
    }

    /// A reconcile asks for a controller. `None`: it is triggered with the decision of the next
    /// pass.
    fn ask(&mut self, who: usize, object: &IPUPartition) -> Option<PlacementDecision> {
        let now = self.timestamp();
        let used = self.used_entries(who).map(|(entry, _)| entry);
        let open = used.filter(|entry| !self.cordons.contains_key(&entry.name));
        let open: Vec<ControllerRef> = open.cloned().collect();
        let replica = &mut self.replicas[who];
        let entries = sim_adapter::queue(replica.seen(), now);
        let me = sim_adapter::own_entry(object, &entries, now);
        let reply = replica
            .requests
            .ask(object, Some(object), &me, |controller| {
                open.contains(controller)
            });
        if reply.is_freed {
            self.capacity_released(who);
        }
        if reply.answer.is_none() {
            self.schedule_pass(who, 0);
        }
        reply.answer
    }

    fn schedule_pass(&mut self, who: usize, delay: u64) {
        let life = self.replicas[who].life;
        self.event_queue.add(delay, Event::Pass { who, life });
    }

    /// A replica decides on the partitions that need a controller.
    pub(super) fn pass(&mut self, who: usize, life: u64) {
        if self.replicas[who].life != life || self.is_dead(who) || !self.replicas[who].acts {
            return;
        }
        let is_released = std::mem::take(&mut self.replicas[who].has_released);
        let requests = &self.replicas[who].requests;
        if !(requests.has_undecided() || is_released && requests.has_waiting()) {
            return;
        }
        let now = self.timestamp();
        let mut pass = self.begin_pass(who);
        let has_grown = pass.has_grown(&self.replicas[who].places);
        let may_have_grown = is_released || has_grown || pass.has_due_attempt();
        let requests = &mut self.replicas[who].requests;
        if requests.decide_again(may_have_grown, |entry| pass.may_fit(entry, now)) {
            pass.complete(requests, now);
        }
        let used = self.used_entries(who);
        let controllers: Vec<ControllerRef> = used.map(|(entry, _)| entry.clone()).collect();
        let (mut decided, mut round) = (0, None);
        while let Some(turn) = self.replicas[who].requests.next_turn() {
            if round.is_some_and(|round| round != turn.round) {
                self.schedule_pass(who, 0);
                break;
            }
            (decided, round) = (decided + 1, Some(turn.round));
            let may_fit = |entry: &_| pass.may_fit(entry, now);
            if self.replicas[who].requests.keep(&turn, may_fit) {
                continue;
            }
            let replica = &self.replicas[who];
            let cached = replica.objects().find(|(_, one)| uid(one) == turn.uid);
            let Some((key, cached)) = cached else {
                self.replicas[who].requests.withdraw(turn.uid);
                continue;
            };
            let object = turn.partition.clone();
            let object = object.unwrap_or_else(|| Arc::new(cached.clone()));
            let slots = replica
                .requests
                .placed_slots(Uid::of(&object.spec.owner.uid));
            let held = sim_adapter::held_with(&object, replica.seen(), &slots);
            let answer = sim_adapter::place_in(&mut pass, &object, held, &controllers, now);
            if let PlacementDecision::Try(controller, _) = &answer {
                let refusals = &mut self.replicas[who].refusals;
                refusals.tried(&controller.name, object.spec.ipus, now);
            }
            let is_new = self.replicas[who].requests.decided(&turn, answer, false);
            if is_new == Some(true) {
                self.requeue_soon(who, key, 0);
            }
        }
        self.replicas[who].places = pass.places();
        if decided > 1 {
            self.cover(CoveragePoint::DecidedSeveral);
        }
    }

    pub(super) fn schedule_refresh(&mut self, who: usize) {
        let life = self.replicas[who].life;
        self.event_queue.add(REFRESH, Event::Refresh { who, life });
    }

    /// All decisions to wait are refreshed, as the operator does with a few requests.
    pub(super) fn refresh(&mut self, who: usize, life: u64) {
        let replica = &mut self.replicas[who];
        if replica.life != life || replica.dead_until > 0 || !replica.acts {
            return;
        }
        replica.requests.expire();
        replica.requests.refresh(usize::MAX);
        self.find_second_names(who);
        self.note_sizes(who);
        self.publish_sizes(who);
        self.pass(who, life);
        self.schedule_refresh(who);
    }

    /// A pass with the queue as the replica sees it, and inventories that may be old.
    fn begin_pass(&mut self, who: usize) -> Pass {
        let is_old = self.rng.permille(self.fault_rates.calls);
        let now = self.timestamp();
        let account = self.account();
        self.find_second_names(who);
        self.note_sizes(who);
        let sizes = self.known_sizes(who);
        let replica = &mut self.replicas[who];
        for one in &self.controllers {
            let (inventory, _) = one.view(is_old);
            let name = &one.reference.name;
            replica.refusals.listed(name, inventory.listed);
        }
        let refusals = replica.refusals.standing(now);
        let held = sim_adapter::allocations(replica.seen());
        let removed: Vec<Uid> = replica.removed.iter().map(|id| Uid::of(id)).collect();
        let views = self.used_entries(who).map(|(entry, controller)| {
            let (inventory, view) = controller.view_as(entry, is_old);
            let known = removed.iter().fold(inventory, |read, id| read.without(*id));
            sim_adapter::withheld((known, view), &held, Some(&account))
        });
        let views: Vec<_> = views.collect();
        let replica = &self.replicas[who];
        let mut entries = sim_adapter::queue(replica.seen(), now);
        for entry in &mut entries {
            entry.is_stalled = replica.requests.is_blocked(entry.uid);
        }
        replica.requests.complete(&mut entries, now);
        let assignments = replica.requests.assignments().collect();
        let found = Candidates::of(views, self.cordons.clone())
            .refusing(refusals)
            .expecting(sizes, self.list_problem.clone());
        Pass::new(found, entries, assignments, self.settings.backfill_limit)
    }

    /// Notes what the reply of a controller says about the sizes that it refuses, as the executor
    /// does.
    pub(super) fn note_refusals(
        &mut self,
        who: usize,
        object: &IPUPartition,
        observation: &Observation,
    ) {
        let (Observation::Created { id, .. } | Observation::Removed { id, .. }) = observation
        else {
            return;
        };
        let mut attempts = object.status.iter().flat_map(|status| &status.attempts);
        let Some(attempt) = attempts.find(|attempt| attempt.id == *id) else {
            return;
        };
        let (name, ipus, now) = (&attempt.controller.name, object.spec.ipus, self.timestamp());
        let uid = object.metadata.uid.as_deref().unwrap_or_default();
        let refusals = &mut self.replicas[who].refusals;
        match observation {
            Observation::Created {
                reply: Reply::Done, ..
            } => {
                refusals.created(name, ipus);
            }
            Observation::Created {
                reply: Reply::Exhausted(reason),
                ..
            } => refusals.refused(name, uid, ipus, reason, now),
            Observation::Removed { error: None, .. } => refusals.released(name),
            _ => {}
        }
    }

    /// After a release of IPUs, all waiting requests are decided again.
    pub(super) fn capacity_released(&mut self, who: usize) {
        if !self.replicas[who].acts {
            return;
        }
        self.replicas[who].has_released = true;
        self.schedule_pass(who, BATCH_DELAY);
    }

    /// A reconcile of this object ends. A request that it did not need is withdrawn.
    pub(super) fn end_request(&mut self, who: usize, object: &IPUPartition, ended: Ended) {
        let requests = &mut self.replicas[who].requests;
        if requests.end_reconcile(uid(object), ended) {
            self.capacity_released(who);
        }
    }

    /// Evaluates the eviction of an object.
    pub(super) fn evaluate_eviction(&mut self, who: usize, object: &IPUPartition) -> EvictionState {
        self.cover(CoveragePoint::EvictionEvaluated);
        let others = self.api.list().map(|(_, stored)| stored.object.as_ref());
        let others: Vec<&IPUPartition> = others.collect();
        let held = sim_adapter::allocations(others.iter().copied());
        let account = self.account();
        let used = self.used_entries(who);
        let views: Vec<_> = used
            .map(|(entry, controller)| controller.view_as(entry, false))
            .map(|said| sim_adapter::withheld(said, &held, Some(&account)))
            .collect();
        let (others, now) = (others.into_iter(), self.timestamp());
        let limit = self.settings.backfill_limit;
        sim_adapter::evaluate_eviction(object, others, views, &self.cordons, limit, now)
    }
}

/// The UID of an object.
pub(super) fn uid(object: &IPUPartition) -> Uid {
    Uid::of(object.metadata.uid.as_deref().unwrap_or_default())
}
