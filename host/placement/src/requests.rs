//! Pure: the partitions that need a V-IPU controller. They are decided one at a time, in the order
//! of the queue.
//!
//! A reconcile asks for a decision, and ends. A pass decides on all requests that are undecided,
//! and the partitions with a new decision are reconciled again. A chosen controller is assigned
//! until the partition is requested there, so that no other decision counts the same IPUs.

mod request;
mod standing;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use ipu_api::interned::Interned;
use ipu_api::ipupartition::{ControllerRef, IPUPartition};
use ipu_api::uid::Uid;
use jiff::Timestamp;

use super::queue::{self, QueueEntry};
use crate::decision::PlacementDecision;
pub use request::Order;
use request::{Key, Request, State, attempts, input};

/// The requests of all partitions that need a controller.
#[derive(Debug, Default)]
pub struct PlacementQueue {
    requests: BTreeMap<Uid, Request>,
    /// By round and order. In a round each request is decided once, so that earlier ones, which ask
    /// again and again, do not keep later ones waiting.
    undecided: BTreeSet<Key>,
    /// The present round.
    round: u64,
    /// Partitions whose last reconcile needed no controller: they have one, or something else stops
    /// them.
    without_request: BTreeSet<Uid>,
    decisions: Interned<PlacementDecision>,
    /// The last number of a request.
    numbers: u64,
    /// The number of decisions.
    decided: u64,
}

/// End of a reconcile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Without an error.
    Well,
    /// The object was changed meanwhile.
    Conflict,
    /// Before the request of the partition, because its controller is called by too many
    /// reconciles.
    Postponed,
    /// With an error.
    Failed,
}

/// The next request that is decided.
#[derive(Debug)]
pub struct Turn {
    /// UID of the partition.
    pub uid: Uid,
    /// Position and name of the partition.
    pub order: Order,
    /// The partition. `None`: that of the cache.
    pub partition: Option<Arc<IPUPartition>>,
    /// Its round. Each begins with the capacity at that time.
    pub round: u64,
    /// Whether later requests leave it what it needs, if it is postponed.
    pub is_expected: bool,
    number: u64,
}

impl Turn {
    /// Name of the partition.
    pub fn name(&self) -> &str {
        &self.order.1
    }
}

/// IPUs that are assigned to a partition, and not requested yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// UID of the partition.
    pub uid: Uid,
    /// Name of the controller.
    pub controller: String,
    /// The IPUs.
    pub ipus: u32,
}

/// The reply to a reconcile that needs a controller.
#[derive(Debug, PartialEq, Eq)]
pub struct PlacementReply {
    /// The decision. `None`: it follows.
    pub answer: Option<PlacementDecision>,
    /// Whether the IPUs of an earlier decision became free.
    pub is_freed: bool,
}

impl PlacementQueue {
    /// A reconcile begins. It has not asked yet.
    pub fn begin_reconcile(&mut self, uid: Uid) {
        if let Some(request) = self.requests.get_mut(&uid) {
            request.is_needed = false;
        }
    }

    /// A reconcile ends. A request that it did not need is withdrawn. After an error, the next
    /// reconcile gets the same controller: one failed write must not cost a request what it has
    /// waited for. Returns whether IPUs became free.
    pub fn end_reconcile(&mut self, uid: Uid, ended: Ended) -> bool {
        if let Some(request) = self.requests.get_mut(&uid)
            && request.end_reconcile(ended)
        {
            return false;
        }
        // It needs no controller, although an older entry of the queue may say that it waits.
        self.without_request.insert(uid);
        self.withdraw(uid)
    }

    /// Returns the decision for this partition with the queue entry `me`. A controller is returned
    /// once, and only while it is open: a reconcile does not act on an old decision. `newer`: the
    /// partition, if the cache may be older.
    pub fn ask(
        &mut self,
        partition: &IPUPartition,
        newer: Option<&IPUPartition>,
        me: &QueueEntry,
        is_open: impl Fn(&ControllerRef) -> bool,
    ) -> PlacementReply {
        let (uid, input) = (me.uid, input(partition));
        let attempts = attempts(partition);
        self.without_request.remove(&uid);
        let is_same =
            |request: &Request| request.input == input && request.controller().is_none_or(&is_open);
        let known = self.requests.get(&uid);
        if known.is_some_and(|known| is_same(known) && !known.is_over()) {
            let answer = self.ask_again(uid, newer, me, attempts);
            return PlacementReply {
                answer,
                is_freed: false,
            };
        }
        // It has been decided in this round: others come first.
        let round = known.map_or(0, |known| known.round);
        let is_freed = self.withdraw(uid);
        self.numbers += 1;
        let slot = partition.spec.slot;
        let request = Request {
            round: round.max(self.round),
            number: self.numbers,
            input,
            attempts,
            ..Request::new(newer, me, slot)
        };
        self.undecided.insert(request.key(uid));
        self.requests.insert(uid, request);
        PlacementReply {
            answer: None,
            is_freed,
        }
    }

    /// Whether a request is undecided.
    pub fn has_undecided(&self) -> bool {
        !self.undecided.is_empty()
    }

    /// Whether a request has a decision other than a controller.
    pub fn has_waiting(&self) -> bool {
        self.requests.values().any(Request::waits)
    }

    /// The earliest undecided request of the present round, or of the next one.
    pub fn next_turn(&mut self) -> Option<Turn> {
        let Some((round, order, uid)) = self.undecided.first() else {
            // New requests, and those that are decided again, share the next round, in which their
            // order decides.
            self.round += 1;
            return None;
        };
        self.round = *round;
        let request = self.requests.get(uid)?;
        let partition = match &request.state {
            State::Undecided { partition, .. } => partition.clone(),
            State::Decided { .. } | State::Requested => None,
        };
        Some(Turn {
            uid: *uid,
            order: order.clone(),
            partition,
            round: *round,
            is_expected: request.is_expected(),
            number: request.number,
        })
    }

    /// Stores a decision. `is_denied`: the guest denied the request free capacity. Returns whether
    /// a reconcile follows: it waits for the decision, or the decision differs from the one before.
    /// `None`: the request has changed meanwhile.
    pub fn decided(
        &mut self,
        turn: &Turn,
        answer: PlacementDecision,
        is_denied: bool,
    ) -> Option<bool> {
        let request = self.requests.get_mut(&turn.uid)?;
        let State::Undecided {
            before, is_awaited, ..
        } = &request.state
        else {
            return None;
        };
        if request.number != turn.number {
            return None;
        }
        self.undecided.remove(&request.key(turn.uid));
        let alike = before.as_ref().filter(|before| before.is_alike(&answer));
        let is_new = *is_awaited || alike.is_none();
        let answer = if let Some(before) = alike {
            // Thousands of requests share one decision, as long as only figures differ.
            Arc::clone(before)
        } else {
            let known = self.decisions.known(&answer);
            known.unwrap_or_else(|| self.decisions.insert(Arc::new(answer)))
        };
        request.state = State::Decided {
            answer,
            is_taken: !is_new,
        };
        self.decided += 1;
        request.decided = self.decided;
        request.is_pending = false;
        (request.is_stale, request.is_refreshed) = (false, false);
        request.is_denied = is_denied;
        request.round = turn.round + 1;
        Some(is_new)
    }

    /// The partition with this UID is requested now: its controller reports the IPUs, unless the
    /// request fails.
    pub fn requested(&mut self, uid: Uid) {
        let request = self.requests.get_mut(&uid);
        if let Some(request) = request.filter(|one| one.controller().is_some()) {
            request.state = State::Requested;
        }
    }

    /// Drops the request of this partition. Returns whether IPUs became free.
    pub fn withdraw(&mut self, uid: Uid) -> bool {
        let Some(request) = self.requests.remove(&uid) else {
            return false;
        };
        self.undecided.remove(&request.key(uid));
        request.controller().is_some()
    }

    /// Drops the partition with this UID, which is gone. Returns whether IPUs became free.
    pub fn forget(&mut self, uid: Uid) -> bool {
        self.without_request.remove(&uid);
        self.withdraw(uid)
    }

    /// Drops all requests of partitions that are not there. Returns whether IPUs became free.
    pub fn retain(
        &mut self,
        is_there: impl Fn(Uid) -> bool,
        is_waiting: impl Fn(Uid) -> bool,
    ) -> bool {
        self.without_request.retain(|uid| is_waiting(*uid));
        let requests = self.requests.keys().copied();
        let gone: Vec<Uid> = requests.filter(|uid| !is_there(*uid)).collect();
        let mut is_freed = false;
        for uid in gone {
            is_freed |= self.withdraw(uid);
        }
        is_freed
    }

    /// The IPUs that are assigned.
    pub fn assignments(&self) -> impl Iterator<Item = Assignment> {
        self.requests.iter().filter_map(|(uid, request)| {
            Some(Assignment {
                uid: *uid,
                controller: request.controller()?.name.clone(),
                ipus: request.entry.ipus,
            })
        })
    }

    /// The slots of an owner that have a controller, or have requested a partition.
    pub fn placed_slots(&self, owner: Uid) -> BTreeSet<u32> {
        let is_placed = |request: &&Request| {
            request.owner == owner && (request.controller().is_some() || request.is_requested())
        };
        let placed = self.requests.values().filter(is_placed);
        placed.map(|request| request.slot).collect()
    }

    /// Whether the partition with this UID waits for something other than a controller.
    pub fn is_blocked(&self, uid: Uid) -> bool {
        self.without_request.contains(&uid)
    }

    /// Completes the queue of a pass. It adds undecided requests whose objects do not show that
    /// they wait, drops those that are requested, and marks those that are expected and whose
    /// decision follows after the pass, because they belong to the next round or have not asked
    /// yet: later requests of the pass leave them what they need.
    pub fn complete(&self, entries: &mut Vec<QueueEntry>, now: Timestamp) {
        let round = self
            .undecided
            .first()
            .map_or(self.round, |(round, ..)| *round);
        // Thousands wait with a decision: they are not looked up, unless they have just come.
        let others = self.requests.iter();
        let mut others: HashMap<&Uid, &Request> = others
            .filter(|(_, request)| request.is_undecided() || request.is_requested())
            .collect();
        let is_later = |request: &Request| request.is_expected() && request.round > round;
        entries.retain_mut(|entry| {
            let request = others.remove(&entry.uid);
            entry.is_expected = match request {
                Some(request) => is_later(request),
                None => entry.is_new(now) && !self.knows(entry.uid),
            };
            entry.is_refused || !request.is_some_and(Request::is_requested)
        });
        let missing = others.values().filter(|request| request.is_undecided());
        entries.extend(missing.map(|request| QueueEntry {
            is_expected: is_later(request),
            ..request.entry.clone()
        }));
        queue::in_order(entries);
    }

    /// Moves an undecided request into the next round.
    pub fn postpone(&mut self, turn: &Turn) {
        let request = self.requests.get_mut(&turn.uid);
        if let Some(request) = request.filter(|one| one.number == turn.number) {
            self.undecided.remove(&request.key(turn.uid));
            request.round = turn.round + 1;
            self.undecided.insert(request.key(turn.uid));
        }
    }

    /// Whether a reconcile of the partition with this UID has ended or has asked for a controller.
    pub fn knows(&self, uid: Uid) -> bool {
        self.without_request.contains(&uid) || self.requests.contains_key(&uid)
    }

    /// The decision on an unchanged request, if no reconcile has had it. Otherwise it is decided
    /// again.
    fn ask_again(
        &mut self,
        uid: Uid,
        newer: Option<&IPUPartition>,
        me: &QueueEntry,
        attempts: u64,
    ) -> Option<PlacementDecision> {
        let request = self.requests.get_mut(&uid)?;
        request.is_needed = true;
        let taken = request.take();
        if let Some(answer) = taken.or_else(|| request.standing(attempts)) {
            return Some(answer);
        }
        request.attempts = attempts;
        self.undecided.remove(&request.key(uid));
        request.await_decision(newer);
        // The position of a gang is that of its first partition, which may be new.
        request.entry = me.clone();
        request.round = self.round.max(request.round);
        self.undecided.insert(request.key(uid));
        None
    }
}

#[cfg(test)]
mod tests;
