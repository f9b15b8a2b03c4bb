//! Pure: the request of one partition for a controller, from the first question to the request of
//! the partition there.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use ipu_api::ipupartition::{AttemptOutcome, ControllerRef, IPUPartition};
use ipu_api::uid::Uid;

use super::Ended;
use crate::decision::PlacementDecision;
use crate::queue::{QueueEntry, QueuePosition};

/// A request whose reconcile fails so many times in a row is withdrawn: others get its capacity.
pub(super) const FAILURES_MAX: u8 = 4;

/// Position and name of a request.
pub type Order = (QueuePosition, Arc<str>);

/// Round, order and UID of an undecided request.
pub(super) type Key = (u64, Order, Uid);

#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
pub(super) struct Request {
    /// Its entry in the queue when a reconcile asked last.
    pub(super) entry: QueueEntry,
    /// The round of its next decision.
    pub(super) round: u64,
    /// Changes with each new request of the partition.
    pub(super) number: u64,
    /// The hash of what the decision depends on.
    pub(super) input: u64,
    /// The hash of the attempts of the partition when a reconcile asked last.
    pub(super) attempts: u64,
    /// Whether the present reconcile, or the last one, needs the decision.
    pub(super) is_needed: bool,
    /// Whether it was not decided since it came or since capacity grew.
    pub(super) is_pending: bool,
    /// Whether the guest denied it capacity that was free for it, for example because of a quota.
    pub(super) is_denied: bool,
    /// Whether it could fit when that was last determined.
    pub(super) could_fit: bool,
    /// Whether the guest may decide otherwise by now. A request that does not fit keeps its
    /// decision until its turn to be refreshed.
    pub(super) is_stale: bool,
    /// Whether the guest decides, although it may not fit.
    pub(super) is_refreshed: bool,
    /// The number of its last decision, among all.
    pub(super) decided: u64,
    /// Failed reconciles in a row.
    pub(super) failures: u8,
    pub(super) owner: Uid,
    pub(super) slot: u32,
    pub(super) state: State,
}

#[derive(Debug)]
pub(super) enum State {
    Undecided {
        /// The partition, if it is newer than the cache.
        partition: Option<Arc<IPUPartition>>,
        /// The previous decision.
        before: Option<Arc<PlacementDecision>>,
        /// Whether a reconcile follows in any case.
        is_awaited: bool,
    },
    Decided {
        answer: Arc<PlacementDecision>,
        /// Whether a reconcile has the decision, and has not failed.
        is_taken: bool,
    },
    /// The reconcile has requested the partition. The controller reports its IPUs.
    Requested,
}

impl Request {
    /// The first request of the partition in this slot with the queue entry `me`, which a reconcile
    /// waits for.
    pub(super) fn new(newer: Option<&IPUPartition>, me: &QueueEntry, slot: u32) -> Self {
        Self {
            entry: me.clone(),
            round: 0,
            number: 0,
            input: 0,
            attempts: 0,
            is_needed: true,
            is_pending: true,
            is_denied: false,
            could_fit: false,
            is_stale: false,
            is_refreshed: false,
            decided: 0,
            failures: 0,
            owner: me.owner,
            slot,
            state: State::Undecided {
                partition: newer.map(|partition| Arc::new(partition.clone())),
                before: None,
                is_awaited: true,
            },
        }
    }

    pub(super) fn key(&self, uid: Uid) -> Key {
        let order = (self.entry.position.clone(), Arc::clone(&self.entry.name));
        (self.round, order, uid)
    }

    /// Whether the reconcile has the controller, or has requested the partition there.
    pub(super) fn is_over(&self) -> bool {
        match &self.state {
            State::Requested => true,
            State::Decided { is_taken, .. } => *is_taken && self.controller().is_some(),
            State::Undecided { .. } => false,
        }
    }

    /// Takes the decision, if no reconcile has had it. A controller ends the request, unless the
    /// reconcile fails.
    pub(super) fn take(&mut self) -> Option<PlacementDecision> {
        let State::Decided { answer, is_taken } = &mut self.state else {
            return None;
        };
        if *is_taken {
            return None;
        }
        *is_taken = true;
        let answer = PlacementDecision::clone(answer);
        self.is_needed = !matches!(answer, PlacementDecision::Try(..));
        Some(answer)
    }

    /// The decision to wait, or never to be served, if it still holds for a partition with these
    /// attempts. A reconcile may get it more than once.
    pub(super) fn standing(&self, attempts: u64) -> Option<PlacementDecision> {
        let State::Decided { answer, .. } = &self.state else {
            return None;
        };
        let holds = self.waits() && !self.is_stale && self.attempts == attempts;
        holds.then(|| PlacementDecision::clone(answer))
    }

    /// The guest decides again.
    pub(super) fn reconsider(&mut self, is_refreshed: bool) {
        if let State::Decided { answer, is_taken } = &self.state {
            self.state = State::Undecided {
                partition: None,
                before: Some(Arc::clone(answer)),
                is_awaited: !is_taken,
            };
            self.is_refreshed = is_refreshed;
            self.is_pending = !is_refreshed;
        }
    }

    /// Whether it may keep the decision before: no reconcile waits for another one, and it is not
    /// its turn to be refreshed.
    pub(super) fn may_keep(&self) -> bool {
        let is_known = matches!(
            &self.state,
            State::Undecided {
                before: Some(_),
                is_awaited: false,
                ..
            }
        );
        is_known && !self.is_refreshed
    }

    /// Keeps the decision before.
    pub(super) fn keep(&mut self) {
        if let State::Undecided {
            before: Some(before),
            ..
        } = &self.state
        {
            self.state = State::Decided {
                answer: Arc::clone(before),
                is_taken: true,
            };
            (self.is_pending, self.could_fit, self.is_stale) = (false, false, true);
        }
    }

    /// A reconcile waits for a decision on this version of the partition.
    pub(super) fn await_decision(&mut self, newer: Option<&IPUPartition>) {
        let before = match &self.state {
            State::Undecided { before, .. } => before.clone(),
            State::Decided { answer, .. } => Some(Arc::clone(answer)),
            State::Requested => None,
        };
        self.state = State::Undecided {
            partition: newer.map(|partition| Arc::new(partition.clone())),
            before,
            is_awaited: true,
        };
        self.is_refreshed = false;
    }

    /// Counts a reconcile that ended like this. Returns whether the request outlives it.
    pub(super) fn end_reconcile(&mut self, ended: Ended) -> bool {
        match ended {
            Ended::Well if self.is_needed => self.failures = 0,
            Ended::Well => return false,
            Ended::Conflict | Ended::Postponed => {}
            Ended::Failed => self.failures = self.failures.saturating_add(1),
        }
        self.is_needed = self.failures < FAILURES_MAX;
        if let State::Decided { is_taken, .. } = &mut self.state
            && ended != Ended::Well
        {
            *is_taken = false;
        }
        self.is_needed
    }

    pub(super) fn is_requested(&self) -> bool {
        matches!(&self.state, State::Requested)
    }

    pub(super) fn is_undecided(&self) -> bool {
        matches!(&self.state, State::Undecided { .. })
    }

    /// Whether later requests leave it what it needs until its decision. What the guest denies it,
    /// it does not need.
    pub(super) fn is_expected(&self) -> bool {
        self.is_undecided() && self.is_pending && !self.is_denied
    }

    /// Whether it has a decision other than a controller.
    pub(super) fn waits(&self) -> bool {
        matches!(&self.state, State::Decided { .. }) && self.controller().is_none()
    }

    /// The controller that is assigned to it.
    pub(super) fn controller(&self) -> Option<&ControllerRef> {
        match &self.state {
            State::Decided { answer, .. } => match &**answer {
                PlacementDecision::Try(controller, _) => Some(controller),
                PlacementDecision::Wait(_) | PlacementDecision::Reject(_) => None,
            },
            State::Undecided { .. } | State::Requested => None,
        }
    }
}

/// The hash of the attempts of a partition, and of their outcomes.
pub(super) fn attempts(partition: &IPUPartition) -> u64 {
    let attempts = partition.status.iter().flat_map(|status| &status.attempts);
    let mut hasher = DefaultHasher::new();
    for attempt in attempts {
        (&attempt.id, attempt.outcome).hash(&mut hasher);
    }
    hasher.finish()
}

/// The hash of the fields of a partition on which a decision depends: its spec, and the attempts
/// that may hold a partition.
pub(super) fn input(partition: &IPUPartition) -> u64 {
    let attempts = partition.status.iter().flat_map(|status| &status.attempts);
    // After a refusal, the request has been sent: the next one is new in any case.
    let attempts = attempts.filter(|attempt| attempt.is_held());
    let attempts: Vec<(&str, AttemptOutcome)> = attempts
        .map(|attempt| (attempt.id.as_str(), attempt.outcome))
        .collect();
    let mut hasher = DefaultHasher::new();
    serde_json::to_string(&(&partition.spec, attempts))
        .unwrap_or_default()
        .hash(&mut hasher);
    hasher.finish()
}
