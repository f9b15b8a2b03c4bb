//! The queue of the reconciler: cached entries, and the requests for a V-IPU controller.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ipu_api::ipupartition::{ControllerRef, IPUPartition};
use ipu_api::uid::Uid;
use ipu_placement::queue::{self, QueueEntry};
use ipu_placement::requests::{PlacementQueue, PlacementReply};
use ipu_runtime::clock;
use jiff::Timestamp;
use parking_lot::{MappedMutexGuard, Mutex, MutexGuard};
use tokio::sync::Notify;

use crate::store::Brief;
use crate::store::watch::Watched;

/// Maximum age of the cached entries, and of the partitions on a drained controller: reading them
/// for each of thousands of requests would take too long.
const AGE: Duration = Duration::from_millis(250);

/// Time for which a request counts as refused after a refusal: it is tried again several times a
/// minute, and no refusal is in its status while it is.
const REFUSED_FOR: Duration = Duration::from_mins(2);

/// IPUPartitions of the cache.
type SharedPartitions = Arc<[Arc<IPUPartition>]>;

/// The state of the queue.
#[derive(Debug, Default)]
pub(crate) struct QueueState {
    state: Mutex<State>,
    /// Notified of new requests.
    pass_requested: Notify,
}

#[derive(Debug, Default)]
struct State {
    requests: PlacementQueue,
    entries: Option<(Instant, Arc<[QueueEntry]>)>,
    /// The partitions on each drained controller, and when they were read.
    drained: HashMap<Arc<str>, (Instant, SharedPartitions)>,
    /// By UID: requests that were refused lately.
    refused: HashMap<Uid, (Instant, QueueEntry)>,
}

impl QueueState {
    /// The requests for a V-IPU controller.
    pub(crate) fn requests(&self) -> MappedMutexGuard<'_, PlacementQueue> {
        MutexGuard::map(self.state.lock(), |state| &mut state.requests)
    }

    /// Returns the decision for a partition that needs a controller. Without one, the partition is
    /// reconciled again with it.
    pub(crate) fn ask(
        &self,
        partition: &IPUPartition,
        is_newer: bool,
        watched: &Watched,
        is_open: impl Fn(&ControllerRef) -> bool,
    ) -> PlacementReply {
        let now = clock::now();
        let entries = self.entries(watched, now);
        let me = queue::own_entry(partition, &entries, now);
        let newer = is_newer.then_some(partition);
        let reply = self.requests().ask(partition, newer, &me, is_open);
        if reply.answer.is_none() {
            self.request_pass();
        }
        reply
    }

    /// Waits until a pass over the undecided requests is due.
    pub(crate) async fn pass_requested(&self) {
        self.pass_requested.notified().await;
    }

    /// Triggers a pass over the undecided requests.
    pub(crate) fn request_pass(&self) {
        self.pass_requested.notify_one();
    }

    /// Whether a reconcile of each waiting partition has asked for a controller, or has ended.
    pub(crate) fn have_all_asked(&self, watched: &Watched) -> bool {
        let entries = watched.read(|cache| cache.queue(clock::now()));
        let requests = self.requests();
        entries.iter().all(|entry| requests.knows(entry.uid))
    }

    /// Drops the requests of partitions that are gone. Returns whether IPUs became free.
    pub(crate) fn drop_gone(&self, watched: &Watched) -> bool {
        // A request that comes meanwhile waits for the lock, and its partition is in the cache.
        let mut requests = self.requests();
        let (all, waiting): (HashSet<Uid>, HashSet<Uid>) = watched.read(|cache| {
            let waiting = cache.briefs().filter(|(_, since)| since.is_some());
            let waiting = waiting.map(|(brief, _)| brief.uid).collect();
            (
                cache.briefs().map(|(brief, _)| brief.uid).collect(),
                waiting,
            )
        });
        requests.retain(|uid| all.contains(&uid), |uid| waiting.contains(&uid))
    }

    /// Notes that the partition with this UID was created.
    pub(crate) fn served(&self, uid: &str) {
        let mut state = self.state.lock();
        if state.refused.remove(&Uid::of(uid)).is_some() {
            state.entries = None;
        }
    }

    /// Drops the partition with this UID. Returns whether IPUs became free.
    pub(crate) fn forget(&self, uid: &str) -> bool {
        let mut state = self.state.lock();
        let uid = Uid::of(uid);
        state.refused.remove(&uid);
        state.requests.forget(uid)
    }

    /// The waiting requests, in order, as they were a moment ago.
    pub(crate) fn entries(&self, watched: &Watched, now: Timestamp) -> Arc<[QueueEntry]> {
        let mut state = self.state.lock();
        if let Some((read, entries)) = &state.entries
            && read.elapsed() < AGE
        {
            return entries.clone();
        }
        let mut entries = watched.read(|cache| cache.queue(now));
        state.update(&mut entries, watched);
        let entries: Arc<[QueueEntry]> = entries.into();
        state.entries = Some((Instant::now(), entries.clone()));
        entries
    }

    /// Marks the waiting requests that are stalled or were refused, which their objects do not
    /// show.
    pub(crate) fn update(&self, entries: &mut Vec<QueueEntry>, watched: &Watched) {
        self.state.lock().update(entries, watched);
    }

    /// The partitions on a drained controller, from a cache: each of them lists the others.
    pub(crate) fn on_drained(&self, watched: &Watched, controller: &str) -> SharedPartitions {
        let mut state = self.state.lock();
        state.drained.retain(|_, (read, _)| read.elapsed() < AGE);
        if let Some((_, found)) = state.drained.get(controller) {
            return found.clone();
        }
        let is_there = |one: &Brief| one.controller.as_deref() == Some(controller);
        let found: Arc<[_]> = watched.read(|cache| cache.some(is_there)).into();
        let read = (Instant::now(), found.clone());
        state.drained.insert(controller.into(), read);
        found
    }
}

impl State {
    fn update(&mut self, entries: &mut Vec<QueueEntry>, watched: &Watched) {
        self.forget_served(watched);
        for entry in entries.iter_mut() {
            entry.is_stalled = self.requests.is_blocked(entry.uid);
        }
        self.update_refused(entries);
    }

    /// Forgets refusals of requests that have a partition by now, also one whose creation had no
    /// answer.
    fn forget_served(&mut self, watched: &Watched) {
        if self.refused.is_empty() {
            return;
        }
        let served: HashSet<Uid> = watched.read(|cache| {
            let all = cache.briefs().map(|(brief, _)| brief);
            let served = all.filter(|brief| brief.controller.is_some());
            served.map(|brief| brief.uid).collect()
        });
        self.refused.retain(|uid, _| !served.contains(uid));
    }

    /// Marks the entries that were refused lately. A request that is being tried again waits on:
    /// otherwise others would get the capacity that is reserved for it whenever it is tried.
    fn update_refused(&mut self, entries: &mut Vec<QueueEntry>) {
        let now = Instant::now();
        self.refused
            .retain(|_, (at, _)| now.duration_since(*at) < REFUSED_FOR);
        for entry in entries.iter_mut() {
            if entry.is_refused {
                let known = (now, entry.clone());
                self.refused.insert(entry.uid, known);
            } else {
                entry.is_refused = self.refused.contains_key(&entry.uid);
            }
        }
        if self.refused.is_empty() {
            return;
        }
        let waiting: HashSet<Uid> = entries.iter().map(|entry| entry.uid).collect();
        let refused = self.refused.values();
        let tried = refused.filter(|(_, entry)| !waiting.contains(&entry.uid));
        let tried: Vec<QueueEntry> = tried
            .map(|(_, entry)| {
                let mut entry = entry.clone();
                entry.is_stalled = false;
                entry
            })
            .collect();
        entries.extend(tried);
        queue::in_order(entries);
    }
}

#[cfg(test)]
mod tests {
    use ipu_placement::requests::Ended;
    use ipu_policies::namespace_usage::namespaces;
    use ipu_runtime::scope::Scope;
    use kube::runtime::watcher::Event;
    use serde_json::{Value, json};

    use super::*;
    use crate::Guarded;
    use crate::store::watch::watched;

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

    fn current(queue: &QueueState, watched: &Watched) -> Vec<QueueEntry> {
        let now = Timestamp::UNIX_EPOCH;
        let mut entries = watched.read(|cache| cache.queue(now));
        queue.update(&mut entries, watched);
        entries
    }

    #[test]
    fn a_request_whose_reconcile_needs_no_controller_is_stalled_until_it_does() {
        let (watched, watch) = watched(namespaces().0, Scope::default());
        watch.apply_event(object("a", &Value::Null));
        let queue = QueueState::default();
        let partition = watched.read(|cache| cache.get("a")).unwrap().0.unwrap();
        let uid = Uid::of("a");
        let is_stalled = || current(&queue, &watched)[0].is_stalled;
        assert!(!is_stalled() && !queue.have_all_asked(&watched));
        queue.requests().end_reconcile(uid, Ended::Well);
        assert!(is_stalled() && queue.have_all_asked(&watched));
        let reply = queue.ask(&partition, false, &watched, |_| true);
        assert_eq!(reply.answer, None);
        assert!(!is_stalled() && queue.have_all_asked(&watched));
        watch.apply_event(Event::Init);
        watch.apply_event(Event::InitDone);
        assert!(!queue.drop_gone(&watched));
        assert!(!queue.requests().has_undecided());
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
        let queue = QueueState::default();
        let seen = |status: &Value| -> Vec<bool> {
            watch.apply_event(object("a", status));
            let entries = current(&queue, &watched);
            entries.iter().map(|entry| entry.is_refused).collect()
        };
        assert_eq!(seen(&status("Pending", None)), [false]);
        assert_eq!(seen(&status("Pending", Some("refused"))), [true]);
        assert_eq!(seen(&status("Creating", Some("unknown"))), [true]);
        assert_eq!(seen(&status("Pending", None)), [true]);
        queue.served("a");
        assert!(seen(&status("Creating", Some("created"))).is_empty());
        assert_eq!(seen(&status("Pending", None)), [false]);
        // The creation had no answer, and was found by the next read of its state.
        assert_eq!(seen(&status("Pending", Some("refused"))), [true]);
        let mut adopted = status("Creating", Some("created"));
        adopted["partitionId"] = json!("p-1");
        adopted["controller"] = controller.clone();
        assert!(seen(&adopted).is_empty());
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
        let queue = QueueState::default();
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
}
