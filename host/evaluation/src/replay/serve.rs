//! Pure: serves waiting requests with the placement of the operator, as its placement loop does.

use std::cmp::Reverse;

use ipu_api::guest::placement::{ControllerView, PlacementRequest};
use ipu_api::ipupartition::{ControllerRef, DecidedBy};
use ipu_api::ipupolicy::BUILT_IN;
use ipu_api::vipu_controller::CordonStates;
use ipu_placement::decision::PlacementDecision;
use ipu_placement::guest_call::values::partition_request;
use ipu_placement::guest_call::{self, Candidates, Placement, QueueView};

use super::{Decided, Event, Order, Outcome, Run, timestamp};
use crate::pool::Block;

/// Outcome of a request.
pub(super) enum Served {
    /// It has its partition.
    Placed,
    /// It waits. `fits` is false if no controller that it may use has enough free IPUs, apart from
    /// those that have just refused it.
    Waits { fits: bool },
    /// Its job was rejected.
    Rejected,
}

/// The answer to a request, and whether a controller that it may use has enough free IPUs.
enum Reply {
    PlacementDecision(PlacementDecision, bool),
    /// The policy was called before, and no capacity for the request has become free since.
    Unchanged,
}

impl<P: FnMut(u64, PlacementRequest) -> Decided> Run<'_, P> {
    /// Serves the waiting requests, in order, after a release of IPUs. It passes over those that
    /// cannot get a partition whatever the policy decides: a controller without a block of their
    /// size would refuse it. What one request cannot use, later ones of its size cannot use either,
    /// because they may use less.
    pub(super) fn serve_queue(&mut self, now: u64) {
        if self.settings.order == Order::FairShare {
            // The shares have changed.
            self.sort_queue();
        }
        let (mut position, mut too_large) = (0, u32::MAX);
        while let Some(entry) = self.queue.get(position) {
            let ipus = entry.ipus;
            let (index, slot) = self.slots[&entry.name];
            if ipus >= too_large || !self.pool.has_block(ipus) {
                position += 1;
                continue;
            }
            match self.serve(index, slot, now) {
                // The next request has moved to its position.
                Served::Placed => {}
                Served::Rejected => (position, too_large) = (0, u32::MAX),
                Served::Waits { fits } => {
                    position += 1;
                    if !fits {
                        too_large = ipus;
                    }
                }
            }
        }
    }

    /// Serves one request: repeats the decision until the request has a partition, waits, or is
    /// rejected.
    pub(super) fn serve(&mut self, index: usize, slot: usize, now: u64) -> Served {
        let ipus = self.jobs[index].ipus;
        loop {
            let (answer, fits) = match self.ask(index, slot, now) {
                Reply::PlacementDecision(answer, fits) => (answer, fits),
                Reply::Unchanged => {
                    if let Some(requested) = self.requested.get_mut(&index) {
                        requested.end_round(slot);
                    }
                    return Served::Waits { fits: false };
                }
            };
            match answer {
                PlacementDecision::Try(controller, _) => {
                    let choice = self.settings.block_choice;
                    if let Some(block) = self.pool.create(&controller.name, ipus, choice) {
                        self.placed((index, slot), (controller, block), now);
                        return Served::Placed;
                    }
                    self.counts.refused += 1;
                    if let Some(requested) = self.requested.get_mut(&index) {
                        requested.refuse(slot, controller, timestamp(now));
                    }
                }
                PlacementDecision::Wait(reasons) => {
                    if let Some(requested) = self.requested.get_mut(&index) {
                        requested.wait(slot, reasons, timestamp(now));
                    }
                    return Served::Waits { fits };
                }
                PlacementDecision::Reject(why) => {
                    self.reject(index, why);
                    return Served::Rejected;
                }
            }
        }
    }

    /// Chooses a controller as the operator does: by the queue first, then by the policy.
    fn ask(&mut self, index: usize, slot: usize, now: u64) -> Reply {
        let time = timestamp(now);
        let requested = &self.requested[&index];
        let (partition, held) = (requested.partition(slot), requested.held(slot));
        let found = Candidates::of(
            self.pool.views(self.settings.exact_blocks),
            CordonStates::new(),
        );
        let queue = QueueView {
            entries: &self.queue,
            assigned: &[],
            held,
            backfill_limit: self.settings.backfill_limit,
        };
        let request = match guest_call::prepare(partition, found, queue, time) {
            Placement::Decided(answer) => return Reply::PlacementDecision(answer, true),
            Placement::Ask(request) => request,
        };
        let spec = &partition.spec;
        let is_open = |view: &ControllerView| {
            let mut tried = request.tried.iter();
            tried.all(|attempt| attempt.controller != view.name)
        };
        let fits = |view: &ControllerView| view.largest_free >= spec.ipus && is_open(view);
        let fits = request.views().iter().any(fits);
        let status = partition.status.as_ref();
        if !fits && status.is_some_and(|status| !status.waiting.is_empty()) {
            return Reply::Unchanged;
        }
        let known = self.usages.known(&spec.owner.namespace, spec.ipus);
        let policy_request = PlacementRequest {
            request: partition_request(partition, known, request.waiting.clone(), held, time),
            controllers: request.views().to_vec(),
            attempts: request.tried.clone(),
        };
        let decided = (self.place)(now, policy_request);
        self.counts.decisions += 1;
        if let Some(why) = decided.overruled {
            self.counts.overruled += 1;
            self.counts.first_overruled.get_or_insert(why);
        }
        let by = DecidedBy {
            policy: BUILT_IN.to_owned(),
            digest: None,
        };
        let answer = request.conclude(decided.decision, by, self.pool.refs());
        Reply::PlacementDecision(answer, fits)
    }

    /// A request has its partition. The job starts with its last one.
    fn placed(
        &mut self,
        (index, slot): (usize, usize),
        partition: (ControllerRef, Block),
        now: u64,
    ) {
        self.leave_queue(|one| one == (index, slot));
        let job = &self.jobs[index];
        self.usages.add_placed(&job.namespace, job.ipus);
        let requested = self.requested.get_mut(&index);
        let is_complete = requested.is_some_and(|one| one.place(slot, partition, timestamp(now)));
        let (after, event) = if is_complete {
            self.outcomes[index] = Outcome::Ran { started: now };
            self.running_jobs += 1;
            self.running_ipus += job.all_ipus();
            (job.duration, Event::End(index))
        } else {
            let patience = self.settings.gang_patience.as_secs();
            (patience, Event::GangTimeout(index))
        };
        self.events
            .push(Reverse((now.saturating_add(after), event)));
    }

    /// A job never gets its partitions.
    fn reject(&mut self, index: usize, why: String) {
        self.outcomes[index] = Outcome::Rejected(why);
        self.leave_queue(|(of, _)| of == index);
        self.remove(index);
    }

    /// Removes the requests with such a job and slot from the queue.
    fn leave_queue(&mut self, is_it: impl Fn((usize, usize)) -> bool) {
        let (jobs, slots, usages) = (self.jobs, &mut self.slots, &mut self.usages);
        self.queue.retain(|entry| {
            let Some(&place) = slots.get(&entry.name).filter(|place| is_it(**place)) else {
                return true;
            };
            let job = &jobs[place.0];
            usages.remove_waiting(&job.namespace, job.ipus);
            slots.remove(&entry.name);
            false
        });
    }
}
