//! Pure: a store that is stale until the watch has reported the process's own writes.

use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};

use ipu_api::uid::Uid;
use kube::runtime::watcher::Event;

use super::{Change, Expectations, Store};

/// Maximum time until the watch reports a write. An interrupted watch restarts within half a minute
/// after the API server is available again, and lists everything; this limit is for writes that it
/// never reports.
const WRITE_TIMEOUT: Duration = Duration::from_mins(2);

/// A projection of an object that the process writes.
pub trait Tracked<K>: Sized {
    /// Returns the owner whose reconcile waits for writes of an object, and the UID of the object,
    /// from its key and its last known projection. `None`: no reconcile waits.
    fn identity(key: &K, projection: Option<&Self>) -> Option<(Uid, Uid)>;

    /// Returns the version of the object.
    fn version(&self) -> u64;
}

/// A [`Store`], and the process's own writes that the watch has not reported yet.
#[derive(Debug)]
pub struct TrackedStore<K, V> {
    store: Store<K, V>,
    expectations: Expectations,
}

impl<K, V> Default for TrackedStore<K, V> {
    fn default() -> Self {
        Self {
            store: Store::default(),
            expectations: Expectations::new(WRITE_TIMEOUT),
        }
    }
}

impl<K: Clone + Ord, V: Tracked<K>> TrackedStore<K, V> {
    /// Applies a watch event, as [`Store::apply_event`] does.
    pub fn apply_event<O>(
        &mut self,
        event: Event<O>,
        key: impl FnOnce(&O) -> Option<K>,
        project: impl FnOnce(&K, O, &BTreeMap<K, V>) -> Option<V>,
    ) -> Vec<Change<K, V>> {
        let is_delete = matches!(event, Event::Delete(_));
        let is_complete = matches!(event, Event::InitDone);
        let changes = self.store.apply_event(event, key, project);
        let objects = self.store.objects();
        for Change { key, before } in &changes {
            let now = objects.get(key);
            let Some((owner, object)) = V::identity(key, now.or(before.as_ref())) else {
                continue;
            };
            match now {
                Some(now) => self.expectations.observe(owner, object, now.version()),
                None if is_delete => self.expectations.observe_delete(owner, object),
                // It is no longer stored, or the list does not contain it. A list from an old cache
                // may lack an object that exists, so its later writes are still expected.
                None => self.expectations.observe(owner, object, u64::MAX),
            }
        }
        if is_complete {
            let listed = objects.iter();
            let listed = listed.filter_map(|(key, one)| V::identity(key, Some(one)));
            let listed: HashSet<Uid> = listed.map(|(_, object)| object).collect();
            let exists = |object: Uid| listed.contains(&object);
            self.expectations.observe_list(self.store.lists(), exists);
        }
        changes
    }

    /// Expects an object at this version, or its deletion if the version is `u64::MAX`. Does
    /// nothing if the watch has reported it.
    pub fn expect(&mut self, key: &K, (owner, object): (Uid, Uid), version: u64, now: Instant) {
        let known = self.store.objects().get(key);
        if known.is_none_or(|known| known.version() < version) {
            let (write, lists) = ((object, version), self.store.lists());
            self.expectations.expect(owner, write, lists, now);
        }
    }

    /// Whether the watch has not reported all writes for an owner, and is waited for.
    pub fn is_stale(&self, owner: Uid, now: Instant) -> bool {
        self.expectations.remaining(owner, now).is_some()
    }

    /// Whether the watch has not reported all writes for an owner, regardless of their age.
    pub fn expects(&self, owner: Uid) -> bool {
        self.expectations.contains(owner)
    }

    /// Returns all projections.
    pub fn objects(&self) -> &BTreeMap<K, V> {
        self.store.objects()
    }

    /// Whether a first list is complete.
    pub fn is_listed(&self) -> bool {
        self.store.is_listed()
    }
}
