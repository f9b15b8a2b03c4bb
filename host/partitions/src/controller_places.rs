//! Bounds the reconciles that call one V-IPU controller, so that one that answers slowly leaves places to the others.
//!
//! A reconcile waits for a controller outside its slot of the work queue, and keeps what it has read. So many of them
//! may do that, whatever the number of IPUPartitions is. Each controller may have as many places as are free beside its
//! own: one that does not answer gets half of them, several get a smaller part each, and some always stay free.
//! A controller that is called for the first time gets a place even if others have all of them.
//!
//! A reconcile without a place ends before it has begun anything on the controller. It begins again when another one
//! gives its place back.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, OnceLock};

use futures::channel::mpsc::UnboundedSender;
use parking_lot::Mutex;

/// Places that all controllers share. Half of them are as many as the largest V-POD has IPUs.
const PLACES: usize = 512;

/// Places that each controller has, however many the others have.
const OWN: usize = 2;

/// The places of all controllers. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct ControllerPlaces(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// Receives the name of each IPUPartition that may have a place now.
    reconcile: OnceLock<UnboundedSender<Arc<str>>>,
}

#[derive(Debug, Default)]
struct State {
    taken: usize,
    controllers: HashMap<String, OfController>,
}

/// The places of one controller.
#[derive(Debug, Default)]
struct OfController {
    taken: usize,
    /// The IPUPartitions whose reconciles found no place, the first one first.
    waiting: VecDeque<Arc<str>>,
}

/// A place of a controller, until it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    places: ControllerPlaces,
    controller: String,
}

impl ControllerPlaces {
    /// Sends the names of the IPUPartitions that may have a place now.
    pub(super) fn send_to(&self, reconcile: UnboundedSender<Arc<str>>) {
        // One queue of a leader reconciles them.
        let _ = self.0.reconcile.set(reconcile);
    }

    /// A place of this controller for a reconcile of the IPUPartition with this name. `None`: the controller has as many
    /// as it may have now, and the name is sent later.
    pub(super) fn take(&self, controller: &str, name: &Arc<str>) -> Option<Place> {
        let mut state = self.0.state.lock();
        let left = PLACES.saturating_sub(state.taken);
        if !state.controllers.contains_key(controller) {
            let none = OfController::default();
            state.controllers.insert(controller.to_owned(), none);
        }
        let there = state.controllers.get_mut(controller)?;
        there.waiting.retain(|waiting| waiting != name);
        if there.taken >= left.max(OWN) {
            there.waiting.push_back(Arc::clone(name));
            return None;
        }
        there.taken += 1;
        state.taken += 1;
        Some(Place {
            places: self.clone(),
            controller: controller.to_owned(),
        })
    }
}

impl Place {
    /// Whether it is a place of this controller.
    pub(super) fn is_of(&self, controller: &str) -> bool {
        self.controller == controller
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let shared = &self.places.0;
        let next = shared.state.lock().give_back(&self.controller);
        for name in next {
            if let Some(reconcile) = shared.reconcile.get() {
                // The queue may have ended.
                let _ = reconcile.unbounded_send(name);
            }
        }
    }
}

impl State {
    /// Gives a place back. Returns the IPUPartitions that are reconciled now: the next one, or all if no place is given
    /// back after this one.
    fn give_back(&mut self, controller: &str) -> VecDeque<Arc<str>> {
        let Some(there) = self.controllers.get_mut(controller) else {
            return VecDeque::new();
        };
        there.taken -= 1;
        self.taken -= 1;
        if there.taken > 0 {
            return there.waiting.pop_front().into_iter().collect();
        }
        let last = self.controllers.remove(controller);
        last.map(|there| there.waiting).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use futures::channel::mpsc;

    use super::*;

    /// As many places of this controller as it may have now.
    fn all_of(places: &ControllerPlaces, controller: &str) -> Vec<Place> {
        let name: Arc<str> = "one".into();
        std::iter::from_fn(|| places.take(controller, &name)).collect()
    }

    #[test]
    fn controllers_that_do_not_answer_leave_places_to_others() {
        let places = ControllerPlaces::default();
        let alone = all_of(&places, "pod1");
        assert_eq!(alone.len(), PLACES / 2, "one has half of them");
        let others = ["pod2", "pod3"].map(|pod| all_of(&places, pod));
        assert_eq!(others.map(|of_pod| of_pod.len()), [128, 64]);
        drop(alone);
        assert_eq!(all_of(&places, "pod1").len(), PLACES / 2, "they are back");
    }

    #[test]
    fn each_controller_has_places_of_its_own() {
        let places = ControllerPlaces::default();
        let slow: Vec<_> = (0..300)
            .map(|pod| all_of(&places, &format!("slow{pod}")))
            .collect();
        let of_one = slow.iter().map(Vec::len).min();
        assert_eq!(of_one, Some(OWN));
        assert_eq!(all_of(&places, "quick").len(), OWN);
    }

    #[test]
    fn a_place_that_is_given_back_goes_to_the_one_that_waits_longest() {
        let places = ControllerPlaces::default();
        let (sender, mut names) = mpsc::unbounded();
        places.send_to(sender);
        let mut taken = all_of(&places, "pod1");
        let [two, three]: [Arc<str>; 2] = ["two", "three"].map(Arc::from);
        for name in [&two, &three, &two] {
            assert!(places.take("pod1", name).is_none());
        }
        let mut next = || names.try_recv().ok();
        drop(taken.pop());
        assert_eq!(next().as_deref(), Some("one"));
        drop(taken.pop());
        assert_eq!((next(), next()), (Some(three), None));
        assert!(places.take("pod1", &two).is_some(), "it waits no longer");
        drop(taken);
        assert_eq!(next(), None);
        assert!(places.0.state.lock().controllers.is_empty());
    }

    #[test]
    fn nobody_waits_for_a_controller_that_nobody_calls() {
        let places = ControllerPlaces::default();
        let (sender, mut names) = mpsc::unbounded();
        places.send_to(sender);
        let _others: Vec<_> = (0..20)
            .map(|pod| all_of(&places, &format!("slow{pod}")))
            .collect();
        let own = all_of(&places, "pod1");
        for number in 0..9 {
            let name: Arc<str> = format!("waiting-{number}").into();
            assert!(places.take("pod1", &name).is_none());
        }
        drop(own);
        // With the one that found no place at the end of `all_of`.
        let sent = std::iter::from_fn(|| names.try_recv().ok());
        assert_eq!(sent.count(), 1 + 9);
    }
}
