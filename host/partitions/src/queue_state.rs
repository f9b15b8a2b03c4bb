//! The queue of the reconciler: cached entries, their last evaluations, and reservations.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ipu_api::ipupartition::IPUPartition;
use jiff::Timestamp;
use parking_lot::{Mutex, MutexGuard};

use super::cache::Brief;
use super::expiring_map::ExpiringMap;
use super::queue::{self, QueueEntry, STALLED_AFTER};
use super::watched::Watched;

/// Maximum age of the cached entries, and of the partitions on a drained controller: reading them for each of thousands
/// of requests would take too long.
const AGE: Duration = Duration::from_millis(250);

/// How long a request counts as refused after a refusal: it is tried again several times a minute, and no refusal is in
/// its status while it is.
const REFUSED_FOR: Duration = Duration::from_mins(2);

/// Lifetime of a capacity reservation.
const RESERVATION_LIFETIME: Duration = Duration::from_secs(15);

/// The state of the queue.
#[derive(Debug)]
pub(super) struct QueueState {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    began: Instant,
    released_at: Instant,
    /// Requests that were evaluated recently.
    evaluated: ExpiringMap<()>,
    entries: Option<(Instant, Arc<[QueueEntry]>)>,
    /// The partitions on one drained controller, and when they were read.
    drained: Option<(Instant, Arc<str>, Arc<[IPUPartition]>)>,
    /// By UID of the request: time, controller and IPUs of its reservation.
    reservations: HashMap<String, (Instant, String, u32)>,
    /// By UID: requests that were refused lately.
    refused: HashMap<String, (Instant, QueueEntry)>,
}

impl QueueState {
    /// A queue without evaluations.
    pub(super) fn new() -> Self {
        Self {
            state: Mutex::new(State {
                began: Instant::now(),
                released_at: Instant::now(),
                evaluated: ExpiringMap::new(STALLED_AFTER),
                entries: None,
                drained: None,
                reservations: HashMap::new(),
                refused: HashMap::new(),
            }),
        }
    }

    /// Notes that IPUs were released, or that the list of controllers changed.
    pub(super) fn capacity_released(&self) {
        let mut state = self.state();
        state.released_at = Instant::now();
        state.entries = None;
    }

    /// Notes the evaluation of the request with this UID.
    pub(super) fn mark_evaluated(&self, uid: &str) {
        let mut state = self.state();
        state.evaluated.note(uid, (), Instant::now());
        // The controllers report its IPUs as used before the watch shows that it no longer waits. A second
        // reservation would leave nothing for the others.
        let Some((_, entries)) = &mut state.entries else {
            return;
        };
        let is_it = |entry: &QueueEntry| entry.has_precedence && entry.uid == uid;
        if let Some(index) = entries.iter().position(is_it) {
            Arc::make_mut(entries)[index].has_precedence = false;
        }
    }

    /// Reserves IPUs of a controller for the request with this UID until they are requested there.
    pub(super) fn reserve(&self, uid: &str, controller: &str, ipus: u32) {
        let told = (Instant::now(), controller.to_owned(), ipus);
        self.state().reservations.insert(uid.to_owned(), told);
    }

    /// Drops a reservation whose IPUs were requested: the controller reports the rest.
    pub(super) fn clear_reservation(&self, uid: &str) {
        self.state().reservations.remove(uid);
    }

    /// Notes that the request with this UID was served.
    pub(super) fn served(&self, uid: &str) {
        let mut state = self.state();
        state.reservations.remove(uid);
        if state.refused.remove(uid).is_some() {
            state.entries = None;
        }
    }

    /// The reservations of all other requests.
    pub(super) fn reserved_by_others(&self, uid: &str) -> Vec<(String, u32)> {
        let mut state = self.state();
        // A request whose attempt could not be recorded is evaluated again, maybe with another result.
        state
            .reservations
            .retain(|_, (told, ..)| told.elapsed() < RESERVATION_LIFETIME);
        let others = state.reservations.iter().filter(|(other, _)| *other != uid);
        others
            .map(|(_, (_, name, ipus))| (name.clone(), *ipus))
            .collect()
    }

    /// Drops the request with this UID.
    pub(super) fn forget(&self, uid: &str) {
        let mut state = self.state();
        state.evaluated.forget(uid);
        state.reservations.remove(uid);
        state.refused.remove(uid);
    }

    /// The waiting requests, in order.
    pub(super) fn entries(&self, watched: &Watched, now: Timestamp) -> Arc<[QueueEntry]> {
        let mut state = self.state();
        if let Some((read, entries)) = &state.entries
            && read.elapsed() < AGE
        {
            return entries.clone();
        }
        let mut entries = watched.read(|cache| cache.queue(now));
        state.update(&mut entries);
        let entries: Arc<[QueueEntry]> = entries.into();
        state.entries = Some((Instant::now(), entries.clone()));
        entries
    }

    /// Adds to the waiting requests what their objects do not tell: which have precedence, are stalled, or were refused.
    pub(super) fn update(&self, entries: &mut Vec<QueueEntry>) {
        self.state().update(entries);
    }

    /// The partitions on a drained controller. Each of them reads all others again and again.
    pub(super) fn on_drained(&self, watched: &Watched, controller: &str) -> Arc<[IPUPartition]> {
        let mut state = self.state();
        if let Some((read, name, found)) = &state.drained
            && read.elapsed() < AGE
            && **name == *controller
        {
            return found.clone();
        }
        let is_there = |one: &Brief| one.controller.as_deref() == Some(controller);
        let found: Arc<[_]> = watched.read(|cache| cache.some(is_there)).into();
        state.drained = Some((Instant::now(), controller.into(), found.clone()));
        found
    }

    /// The waiting requests, in order, without the precedence that they have for seconds after a release: what a status
    /// says of them stays the same.
    pub(super) fn lasting_entries(&self, watched: &Watched, now: Timestamp) -> Vec<QueueEntry> {
        let mut entries = self.entries(watched, now).to_vec();
        let state = self.state();
        for entry in &mut entries {
            let evaluated = state.evaluated.of(&entry.uid);
            // All of them are evaluated for the first time within seconds.
            let evaluated = evaluated.map_or(state.began, |((), at)| *at);
            entry.set_precedence(Some(evaluated.elapsed()), Duration::MAX);
        }
        entries
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each change is complete before the next one begins.
        self.state.lock()
    }
}

impl State {
    fn update(&mut self, entries: &mut Vec<QueueEntry>) {
        let released_at = self.released_at.elapsed();
        for entry in entries.iter_mut() {
            let evaluated = self.evaluated.of(&entry.uid);
            let evaluated = evaluated.map(|((), at)| at.elapsed());
            entry.set_precedence(evaluated, released_at);
        }
        self.update_refused(entries);
    }

    /// Marks the entries that were refused lately. A request that is being tried again waits on: otherwise others would get
    /// the capacity that is reserved for it whenever it is tried.
    fn update_refused(&mut self, entries: &mut Vec<QueueEntry>) {
        let now = Instant::now();
        self.refused
            .retain(|_, (at, _)| now.duration_since(*at) < REFUSED_FOR);
        for entry in entries.iter_mut() {
            if entry.is_refused {
                let known = (now, entry.clone());
                self.refused.insert(entry.uid.clone(), known);
            } else {
                entry.is_refused = self.refused.contains_key(&entry.uid);
            }
        }
        if self.refused.is_empty() {
            return;
        }
        let waiting: HashSet<&str> = entries.iter().map(|entry| entry.uid.as_str()).collect();
        let refused = self.refused.values();
        let tried = refused.filter(|(_, entry)| !waiting.contains(entry.uid.as_str()));
        let tried: Vec<QueueEntry> = tried
            .map(|(_, entry)| QueueEntry {
                has_precedence: false,
                is_stalled: false,
                ..entry.clone()
            })
            .collect();
        entries.extend(tried);
        queue::in_order(entries);
    }
}

#[cfg(test)]
mod tests {
    use kube::runtime::watcher::Event;
    use serde_json::{Value, json};

    use super::*;
    use crate::Guarded;
    use crate::watched::watched;
    use ipu_policies::namespace_usage::namespaces;
    use ipu_runtime::scope::Scope;

    /// An IPUPartition as the API server holds it.
    fn object(name: &str, status: &Value) -> Event<Guarded> {
        let object = json!({
            "apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUPartition",
            "metadata": {"name": name, "uid": name},
            "spec": {
                "owner": {
                    "apiVersion": "v1", "kind": "K", "namespace": "default",
                    "name": name, "uid": name,
                },
                "slot": 0, "ipus": 4, "gcds": 1,
            },
            "status": status,
        });
        Event::Apply(serde_json::from_value(object).unwrap())
    }

    #[test]
    fn cached_entries_give_no_precedence_after_an_evaluation() {
        let (watched, watch) = watched(namespaces().0, Scope::default());
        for name in ["earlier", "later"] {
            watch.apply_event(object(name, &Value::Null));
        }
        let queue = QueueState::new();
        let next = || -> Vec<(String, bool)> {
            let entries = queue.entries(&watched, Timestamp::UNIX_EPOCH);
            let one = |entry: &QueueEntry| (entry.name.clone(), entry.has_precedence);
            entries.iter().map(one).collect()
        };
        let both =
            |earlier, later| vec![("earlier".to_owned(), earlier), ("later".to_owned(), later)];
        assert_eq!(next(), both(true, true));
        queue.mark_evaluated("earlier");
        assert_eq!(next(), both(false, true), "whatever age the entries have");
        queue.capacity_released();
        assert_eq!(next(), both(true, true));
    }

    #[test]
    fn a_refused_request_stays_in_the_queue_while_it_is_tried_again() {
        let (watched, watch) = watched(namespaces().0, Scope::default());
        let controller = json!({
            "name": "pod1", "host": "pod1", "port": 1, "labelKey": "ipunode", "labelValue": "pod1",
        });
        let status = |phase: &str, outcome: Option<&str>| {
            let attempts = outcome
                .into_iter()
                .map(|outcome| json!({"controller": controller, "id": "p-1", "outcome": outcome}));
            json!({"phase": phase, "attempts": attempts.collect::<Vec<_>>()})
        };
        let queue = QueueState::new();
        let seen = |status: &Value| -> Vec<bool> {
            watch.apply_event(object("a", status));
            queue.capacity_released();
            let entries = queue.entries(&watched, Timestamp::UNIX_EPOCH);
            entries.iter().map(|entry| entry.is_refused).collect()
        };
        assert_eq!(seen(&status("Pending", None)), [false]);
        assert_eq!(seen(&status("Pending", Some("refused"))), [true]);
        assert_eq!(seen(&status("Creating", Some("unknown"))), [true]);
        assert_eq!(seen(&status("Pending", None)), [true]);
        queue.served("a");
        assert!(seen(&status("Creating", Some("created"))).is_empty());
        assert_eq!(seen(&status("Pending", None)), [false]);
    }

    #[test]
    fn all_partitions_on_a_drained_controller_are_found() {
        let (watched, watch) = watched(namespaces().0, Scope::default());
        for (name, controller) in [("a", "pod1"), ("b", "pod2"), ("c", "pod1")] {
            let status = json!({"phase": "Ready", "partitionId": name, "controller": {
                "name": controller, "host": controller, "port": 1,
                "labelKey": "ipunode", "labelValue": controller,
            }});
            watch.apply_event(object(name, &status));
        }
        let queue = QueueState::new();
        for (controller, expected) in [
            ("pod1", vec!["a", "c"]),
            ("pod2", vec!["b"]),
            ("pod3", vec![]),
        ] {
            let found = queue.on_drained(&watched, controller);
            let names: Vec<_> = found
                .iter()
                .filter_map(|one| one.metadata.name.as_deref())
                .collect();
            assert_eq!(names, expected, "{controller}");
        }
    }

    #[test]
    fn a_release_changes_nothing_in_lasting_entries() {
        let (watched, watch) = watched(namespaces().0, Scope::default());
        watch.apply_event(object("waits", &Value::Null));
        let queue = QueueState::new();
        let lasting = || queue.lasting_entries(&watched, Timestamp::UNIX_EPOCH);
        let before = lasting();
        assert!(!before[0].has_precedence && !before[0].is_stalled);
        queue.mark_evaluated("waits");
        assert_eq!(lasting(), before);
        queue.capacity_released();
        assert_eq!(lasting(), before);
        let entries = queue.entries(&watched, Timestamp::UNIX_EPOCH);
        assert!(entries[0].has_precedence);
    }
}
