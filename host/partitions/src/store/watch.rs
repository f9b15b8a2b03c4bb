//! The one watch of IPUPartitions in a process: for REST and the summary in every replica, and for
//! the reconciler in the leader.

use std::collections::HashSet;
use std::sync::Arc;

use futures::{Stream, StreamExt, stream};
use ipu_api::ipupartition::IPUPartition;
use ipu_api::uid::Uid;
use ipu_placement::queue::QueueEntry;
use ipu_policies::namespace_usage::Namespaces;
use ipu_runtime::scope::Scope;
use ipu_runtime::scope::watch::{cluster_wide, observe};
use ipu_runtime::trimmed::{Trimmed, untrimmed};
use ipu_runtime::{clock, wait};
use jiff::Timestamp;
use kube::Client;
use kube::runtime::watcher;
use parking_lot::Mutex;
use tokio::sync::{broadcast, watch};
use tokio::task::coop;
use tokio_util::sync::CancellationToken;

use crate::store::queue_snapshot::SharedQueue;
use crate::store::{Cache, Change, Guarded};

/// Changes that a slow listener may lag behind before it gets all names again.
const BEHIND: usize = 4_096;

/// The IPUPartitions, as the watch last saw them. Clones are cheap and share the data.
#[derive(Clone)]
pub struct Watched {
    cache: Arc<Mutex<Cache>>,
    changes: broadcast::Sender<Change>,
    listed: watch::Receiver<bool>,
    released: watch::Receiver<u64>,
    shared_queue: Arc<SharedQueue>,
}

/// The watch that updates [`Watched`].
pub struct PartitionWatch {
    cache: Arc<Mutex<Cache>>,
    changes: broadcast::Sender<Change>,
    listed: watch::Sender<bool>,
    released: watch::Sender<u64>,
    namespaces: Namespaces,
    scope: Scope,
}

/// The IPUPartitions of owners that a release serves, empty until the watch is followed. Those of
/// other owners are stored only with their allocations. All of them count in `namespaces`.
pub fn watched(namespaces: Namespaces, scope: Scope) -> (Watched, PartitionWatch) {
    let changes = broadcast::Sender::new(BEHIND);
    let (set_listed, listed) = watch::channel(false);
    let (set_released, released) = watch::channel(0);
    let watched = Watched {
        cache: Arc::default(),
        changes,
        listed,
        released,
        shared_queue: Arc::default(),
    };
    let watch = PartitionWatch {
        cache: Arc::clone(&watched.cache),
        changes: watched.changes.clone(),
        listed: set_listed,
        released: set_released,
        namespaces,
        scope,
    };
    (watched, watch)
}

impl Watched {
    /// Whether they were listed.
    pub fn is_listed(&self) -> bool {
        *self.listed.borrow()
    }

    /// Waits for the complete list: no decision is made on a part of it.
    pub(crate) async fn once_listed(&self) {
        wait::until(self.listed.clone(), |listed| *listed).await;
    }

    /// A number that changes with each release of an allocation.
    pub(crate) fn released(&self) -> watch::Receiver<u64> {
        self.released.clone()
    }

    /// Reads all of them at one moment. This blocks the watch, so it has to be short.
    pub fn read<T>(&self, visit: impl FnOnce(&mut Cache) -> T) -> T {
        visit(&mut self.cache.lock())
    }

    /// Visits all of them that can be read. There may be thousands, so this yields to other tasks.
    pub async fn each_readable(&self, mut visit: impl FnMut(&IPUPartition)) {
        for partition in self.read(|cache| cache.some(|_| true)) {
            visit(&partition);
            coop::consume_budget().await;
        }
    }

    /// The waiting requests at `now`, in order, a second old at most: for readers that decide
    /// nothing.
    pub fn queue(&self, now: Timestamp) -> Arc<[QueueEntry]> {
        let read = || self.read(|cache| cache.queue(now));
        self.shared_queue.entries(read)
    }

    /// Notes the UIDs of requests that wait for something other than capacity, so that nothing is
    /// reserved for them.
    pub(crate) fn set_stalled(&self, stalled: HashSet<Uid>) {
        self.shared_queue.set_stalled(stalled);
    }

    /// The names of all, and then the name of each change, without end.
    pub(crate) fn names(&self) -> impl Stream<Item = Arc<str>> + Send + use<> {
        // Subscribes before it reads the cache, so no change is lost.
        let changes = self.changes.subscribe();
        let first = stream::iter(self.read(|cache| cache.names()));
        let state = (changes, Arc::clone(&self.cache));
        let later = stream::unfold(state, |(mut changes, cache)| async move {
            let changed = match changes.recv().await {
                Ok(Change::Of(name)) => vec![name],
                Ok(Change::All) | Err(broadcast::error::RecvError::Lagged(_)) => {
                    cache.lock().names()
                }
                Err(broadcast::error::RecvError::Closed) => return None,
            };
            Some((stream::iter(changed), (changes, cache)))
        });
        first.chain(later.flatten())
    }
}

impl PartitionWatch {
    /// Follows the IPUPartitions until `stop`.
    pub async fn follow(self, client: Client, stop: CancellationToken) {
        let events = cluster_wide::<Trimmed<Guarded>>(&client, watcher::Config::default());
        let following = observe(events, |event| self.apply_event(untrimmed(event)));
        let _ = stop.run_until_cancelled(following).await;
    }

    /// Applies an event of the watch.
    pub fn apply_event(&self, event: watcher::Event<Guarded>) {
        self.namespaces.apply_event(&event);
        let (change, released) = {
            let mut cache = self.cache.lock();
            let change = match of_other(&event, &self.scope) {
                Some(partition) => {
                    cache.apply_other(partition);
                    None
                }
                None => cache.apply_event(event, clock::now()),
            };
            (change, cache.released())
        };
        self.released.send_if_modified(|known| {
            let before = std::mem::replace(known, released);
            before != released
        });
        let Some(change) = change else {
            return;
        };
        if change == Change::All {
            self.listed.send_replace(true);
        }
        // There is no listener while this replica does not lead.
        let _ = self.changes.send(change);
    }
}

/// The object of an event, if another release serves its owner. The owner of an unreadable object
/// is unknown: every release reports it, until it is known to belong to another one.
fn of_other<'a>(event: &'a watcher::Event<Guarded>, scope: &Scope) -> Option<&'a IPUPartition> {
    let (watcher::Event::InitApply(object) | watcher::Event::Apply(object)) = event else {
        return None;
    };
    let partition = object.0.as_ref().ok()?;
    let is_mine = scope.contains(&partition.spec.owner.namespace);
    (!is_mine).then_some(partition)
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures::FutureExt;
    use ipu_policies::namespace_usage::namespaces;
    use kube::runtime::watcher::Event;
    use serde_json::json;

    use super::*;

    fn object(name: &str) -> Guarded {
        let object = json!({
            "apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUPartition",
            "metadata": {"name": name, "uid": name},
            "spec": {
                "owner": {
                    "apiVersion": "v1", "kind": "K", "namespace": "team", "name": name, "uid": name,
                },
                "slot": 0, "ipus": 4, "gcds": 1,
            },
        });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn nothing_is_to_be_decided_before_all_are_known_and_others_are_never_named() {
        let scope = "team".parse().unwrap();
        let (watched, watch) = watched(namespaces().0, scope);
        for event in [Event::Init, Event::InitApply(object("a"))] {
            watch.apply_event(event);
        }
        assert_eq!(watched.once_listed().now_or_never(), None);
        assert!(!watched.is_listed());
        watch.apply_event(Event::InitDone);
        assert_eq!(watched.once_listed().now_or_never(), Some(()));
        assert!(watched.is_listed());

        let mut names = pin!(watched.names());
        let mut next = || names.next().now_or_never().flatten();
        assert_eq!(next().as_deref(), Some("a"));
        watch.apply_event(Event::Apply(object("b")));
        assert_eq!(next().as_deref(), Some("b"));
        let mut foreign = object("c");
        foreign.0.as_mut().unwrap().spec.owner.namespace = "other".to_owned();
        watch.apply_event(Event::Apply(foreign));
        watch.apply_event(Event::Delete(object("a")));
        assert_eq!(next(), None);
        drop(watch);
        assert_eq!(
            watched.once_listed().now_or_never(),
            Some(()),
            "it was listed"
        );
    }

    fn holding(namespace: &str) -> Guarded {
        let controller = json!({
            "name": "pod1:8090", "host": "pod1", "port": 8090, "labelKey": "a", "labelValue": "b",
        });
        let mut object = object("theirs");
        let partition = object.0.as_mut().unwrap();
        partition.spec.owner.namespace = namespace.to_owned();
        let attempts = json!([{"controller": controller, "id": "p-1", "outcome": "created"}]);
        let status = json!({"attempts": attempts});
        partition.status = Some(serde_json::from_value(status).unwrap());
        object
    }

    /// This release does not allocate its IPUs either, until they are released.
    #[test]
    fn what_other_releases_hold_is_known_and_nothing_else_of_them() {
        let theirs = || holding("other");
        let gone: [&dyn Fn() -> Vec<Event<Guarded>>; 3] = [
            &|| vec![Event::Delete(theirs())],
            &|| vec![Event::Init, Event::InitDone],
            &|| {
                let mut released = theirs();
                released.0.as_mut().unwrap().status = None;
                vec![Event::Apply(released)]
            },
        ];
        for gone in gone {
            let (watched, watch) = watched(namespaces().0, "team".parse().unwrap());
            let held = || watched.read(|cache| cache.allocations().controllers().count());
            for event in [Event::Init, Event::InitApply(theirs()), Event::InitDone] {
                watch.apply_event(event);
            }
            assert_eq!(held(), 1);
            watch.apply_event(Event::Apply(theirs()));
            assert_eq!((held(), *watched.released().borrow()), (1, 0));
            assert_eq!(watched.read(|cache| cache.names()).len(), 0);
            for event in gone() {
                watch.apply_event(event);
            }
            assert_eq!((held(), *watched.released().borrow()), (0, 1));
        }
    }

    #[test]
    fn a_watch_that_ends_before_its_list_was_complete_lets_nothing_begin() {
        let (watched, watch) = watched(namespaces().0, Scope::default());
        watch.apply_event(Event::Init);
        drop(watch);
        assert_eq!(watched.once_listed().now_or_never(), None);
    }
}
