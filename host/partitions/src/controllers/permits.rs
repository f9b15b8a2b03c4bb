//! Bounds the reconciles that call one V-IPU controller, so that one that answers slowly leaves
//! permits to the others.
//!
//! A reconcile waits for a controller outside its slot of the work queue, and keeps what it has
//! read. The number of permits bounds how many do that, however many IPUPartitions there are. Each
//! controller may have as many permits as are free beside its own: one that does not answer gets
//! half of them, several get a smaller part each, and some always stay free. A controller that is
//! called for the first time gets a permit even if others have all of them.
//!
//! A reconcile without a permit ends before it has begun anything on the controller. It begins
//! again when another one releases its permit.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock};

use futures::channel::mpsc::UnboundedSender;
use parking_lot::Mutex;

/// Permits that all controllers share. Half of them are as many as the largest V-POD has IPUs.
const PERMITS: usize = 512;

/// Permits that each controller has, however many the others have.
const OWN: usize = 2;

/// The permits of all controllers. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct ControllerPermits(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// Receives the name of each IPUPartition that may have a permit now.
    reconcile: OnceLock<UnboundedSender<Arc<str>>>,
}

#[derive(Debug, Default)]
struct State {
    taken: usize,
    controllers: HashMap<String, OfController>,
}

/// The permits of one controller.
#[derive(Debug, Default)]
struct OfController {
    taken: usize,
    /// The IPUPartitions whose reconciles found no permit.
    waiting: Waiting,
}

/// Names in the order of their last arrival. Thousands can wait for a controller that does not
/// answer, and each comes again every few seconds, so a name is found without a search.
#[derive(Debug, Default)]
struct Waiting {
    by_arrival: BTreeMap<u64, Arc<str>>,
    arrivals: HashMap<Arc<str>, u64>,
    next_arrival: u64,
}

/// A permit to call a controller, until it is dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    permits: ControllerPermits,
    controller: String,
}

impl ControllerPermits {
    /// Sends the names of the IPUPartitions that may have a permit now.
    pub(crate) fn send_to(&self, reconcile: UnboundedSender<Arc<str>>) {
        // One queue of a leader reconciles them.
        let _ = self.0.reconcile.set(reconcile);
    }

    /// A permit of this controller for a reconcile of the IPUPartition with this name. `None`: the
    /// controller has as many as it may have now, and the name is sent later.
    pub(crate) fn acquire(&self, controller: &str, name: &Arc<str>) -> Option<Permit> {
        let mut state = self.0.state.lock();
        let left = PERMITS.saturating_sub(state.taken);
        if !state.controllers.contains_key(controller) {
            let none = OfController::default();
            state.controllers.insert(controller.to_owned(), none);
        }
        let there = state.controllers.get_mut(controller)?;
        there.waiting.remove(name);
        if there.taken >= left.max(OWN) {
            there.waiting.push(Arc::clone(name));
            return None;
        }
        there.taken += 1;
        state.taken += 1;
        Some(Permit {
            permits: self.clone(),
            controller: controller.to_owned(),
        })
    }
}

impl Permit {
    /// Whether it is a permit of this controller.
    pub(crate) fn is_of(&self, controller: &str) -> bool {
        self.controller == controller
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let shared = &self.permits.0;
        let next = shared.state.lock().release(&self.controller);
        for name in next {
            if let Some(reconcile) = shared.reconcile.get() {
                // The queue may have ended.
                let _ = reconcile.unbounded_send(name);
            }
        }
    }
}

impl State {
    /// Releases a permit. Returns the IPUPartitions that are reconciled now: the next one, or all
    /// if the controller has no permit left whose release would trigger another one.
    fn release(&mut self, controller: &str) -> Vec<Arc<str>> {
        let Some(there) = self.controllers.get_mut(controller) else {
            return Vec::new();
        };
        there.taken -= 1;
        self.taken -= 1;
        if there.taken > 0 {
            return there.waiting.pop_first().into_iter().collect();
        }
        let last = self.controllers.remove(controller);
        let waiting = last.map(|there| there.waiting.by_arrival);
        waiting.unwrap_or_default().into_values().collect()
    }
}

impl Waiting {
    /// Adds a name that is not waiting, as the last one.
    fn push(&mut self, name: Arc<str>) {
        self.by_arrival.insert(self.next_arrival, Arc::clone(&name));
        self.arrivals.insert(name, self.next_arrival);
        self.next_arrival += 1;
    }

    fn remove(&mut self, name: &str) {
        if let Some(arrival) = self.arrivals.remove(name) {
            self.by_arrival.remove(&arrival);
        }
    }

    fn pop_first(&mut self) -> Option<Arc<str>> {
        let (_, name) = self.by_arrival.pop_first()?;
        self.arrivals.remove(&name);
        Some(name)
    }
}

#[cfg(test)]
mod tests {
    use futures::channel::mpsc;

    use super::*;

    /// As many permits of this controller as it may have now.
    fn all_of(permits: &ControllerPermits, controller: &str) -> Vec<Permit> {
        let name: Arc<str> = "one".into();
        std::iter::from_fn(|| permits.acquire(controller, &name)).collect()
    }

    #[test]
    fn controllers_that_do_not_answer_leave_permits_to_others() {
        let permits = ControllerPermits::default();
        let alone = all_of(&permits, "pod1");
        assert_eq!(alone.len(), PERMITS / 2, "one has half of them");
        let others = ["pod2", "pod3"].map(|pod| all_of(&permits, pod));
        assert_eq!(others.map(|of_pod| of_pod.len()), [128, 64]);
        drop(alone);
        assert_eq!(all_of(&permits, "pod1").len(), PERMITS / 2, "they are back");
    }

    #[test]
    fn each_controller_has_permits_of_its_own() {
        let permits = ControllerPermits::default();
        let slow: Vec<_> = (0..300)
            .map(|pod| all_of(&permits, &format!("slow{pod}")))
            .collect();
        let of_one = slow.iter().map(Vec::len).min();
        assert_eq!(of_one, Some(OWN));
        assert_eq!(all_of(&permits, "quick").len(), OWN);
    }

    #[test]
    fn a_released_permit_goes_to_the_partition_that_waits_longest() {
        let permits = ControllerPermits::default();
        let (sender, mut names) = mpsc::unbounded();
        permits.send_to(sender);
        let mut taken = all_of(&permits, "pod1");
        let [two, three]: [Arc<str>; 2] = ["two", "three"].map(Arc::from);
        for name in [&two, &three, &two] {
            assert!(permits.acquire("pod1", name).is_none());
        }
        let mut next = || names.try_recv().ok();
        drop(taken.pop());
        assert_eq!(next().as_deref(), Some("one"));
        drop(taken.pop());
        assert_eq!((next(), next()), (Some(three), None));
        assert!(
            permits.acquire("pod1", &two).is_some(),
            "it waits no longer"
        );
        drop(taken);
        assert_eq!(next(), None);
        assert!(permits.0.state.lock().controllers.is_empty());
    }

    #[test]
    fn nobody_waits_for_a_controller_that_nobody_calls() {
        let permits = ControllerPermits::default();
        let (sender, mut names) = mpsc::unbounded();
        permits.send_to(sender);
        let _others: Vec<_> = (0..20)
            .map(|pod| all_of(&permits, &format!("slow{pod}")))
            .collect();
        let own = all_of(&permits, "pod1");
        for number in 0..9 {
            let name: Arc<str> = format!("waiting-{number}").into();
            assert!(permits.acquire("pod1", &name).is_none());
        }
        drop(own);
        // With the one that found no permit at the end of `all_of`.
        let sent = std::iter::from_fn(|| names.try_recv().ok());
        assert_eq!(sent.count(), 1 + 9);
    }
}
