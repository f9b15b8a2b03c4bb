//! Pure: decisions to wait that stand until the request fits, or until their turn to be refreshed.
//!
//! A guest is asked again as soon as a controller may serve the request. Otherwise its answer would
//! only have other reasons: the decisions of thousands of requests are refreshed one after the
//! other, in a share of the time.

use super::{PlacementQueue, Turn};
use crate::queue::QueueEntry;

impl PlacementQueue {
    /// The requests without a controller that may fit are decided again: all of them if capacity
    /// may have grown, and otherwise those that could not fit before. The decisions of the others
    /// are stale if capacity may have grown. Returns whether a request is decided again.
    pub fn decide_again(
        &mut self,
        may_have_grown: bool,
        mut may_fit: impl FnMut(&QueueEntry) -> bool,
    ) -> bool {
        let round = self.round;
        let mut is_any = false;
        for (uid, request) in &mut self.requests {
            request.is_pending |= may_have_grown && request.is_undecided();
            if !request.waits() {
                continue;
            }
            let could_fit = std::mem::replace(&mut request.could_fit, may_fit(&request.entry));
            if request.could_fit && (may_have_grown || !could_fit) {
                is_any = true;
                request.reconsider(false);
                request.round = round.max(request.round);
                self.undecided.insert(request.key(*uid));
            } else {
                request.is_stale |= may_have_grown;
            }
        }
        is_any
    }

    /// All decisions to wait are stale: a guest may decide otherwise by now, or for other reasons.
    pub fn expire(&mut self) {
        let requests = self.requests.values_mut();
        for request in requests.filter(|request| request.waits()) {
            request.is_stale = true;
        }
    }

    /// Whether a decision to wait is stale.
    pub fn has_stale(&self) -> bool {
        let mut requests = self.requests.values();
        requests.any(|request| request.is_stale && request.waits())
    }

    /// The guest decides again on at most `most` requests whose decisions are stale: first on those
    /// that it has denied free capacity, then on those with the oldest decisions.
    pub fn refresh(&mut self, most: usize) {
        let requests = self.requests.iter();
        let stale = requests.filter(|(_, request)| request.is_stale && request.waits());
        let mut stale: Vec<_> = stale
            .map(|(uid, request)| ((!request.could_fit, request.decided), *uid))
            .collect();
        stale.sort_unstable();
        for (_, uid) in stale.into_iter().take(most) {
            if let Some(request) = self.requests.get_mut(&uid) {
                request.reconsider(true);
                request.round = self.round.max(request.round);
                self.undecided.insert(request.key(uid));
            }
        }
    }

    /// Keeps the decision before of a request that does not fit any more. Returns whether it does.
    pub fn keep(&mut self, turn: &Turn, may_fit: impl FnOnce(&QueueEntry) -> bool) -> bool {
        let request = self.requests.get_mut(&turn.uid);
        let Some(request) = request.filter(|request| request.number == turn.number) else {
            return false;
        };
        if !request.may_keep() || may_fit(&request.entry) {
            return false;
        }
        self.undecided.remove(&request.key(turn.uid));
        request.keep();
        request.round = turn.round + 1;
        true
    }
}

#[cfg(test)]
mod tests;
