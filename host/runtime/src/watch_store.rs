//! Pure: a store of projections of the objects of one kind, kept up to date by a watch.

mod expectations;
mod tracked;

use std::collections::{BTreeMap, BTreeSet};

use kube::api::ObjectMeta;
use kube::runtime::watcher::Event;

pub use expectations::Expectations;
pub use tracked::{Tracked, TrackedStore};

/// Returns the version of an object. A version that is not a number counts as the oldest.
pub fn version(metadata: &ObjectMeta) -> u64 {
    let version = metadata.resource_version.as_deref();
    version.and_then(version_number).unwrap_or(0)
}

/// Returns a version as a number. Two versions of one kind are comparable numbers (Kubernetes
/// guarantees this since 1.35, KEP 5504, and revisions of etcd always were).
pub fn version_number(version: &str) -> Option<u64> {
    let is_plain = version.bytes().all(|byte| byte.is_ascii_digit()) && !version.starts_with('0');
    is_plain.then(|| version.parse().ok()).flatten()
}

/// Projections of objects, by key. An object that a list does not contain is removed when the list
/// is complete.
#[derive(Debug)]
pub struct Store<K, V> {
    objects: BTreeMap<K, V>,
    /// Keys that the list in progress does not contain so far.
    unlisted: BTreeSet<K>,
    lists: u32,
    is_listed: bool,
}

/// A change of an object.
#[derive(Debug, PartialEq, Eq)]
pub struct Change<K, V> {
    /// Key of the object.
    pub key: K,
    /// The projection before the change. `None` if the store did not contain the object.
    pub before: Option<V>,
}

impl<K, V> Default for Store<K, V> {
    fn default() -> Self {
        Self {
            objects: BTreeMap::new(),
            unlisted: BTreeSet::new(),
            lists: 0,
            is_listed: false,
        }
    }
}

impl<K: Clone + Ord, V> Store<K, V> {
    /// Applies a watch event, and returns the changes. `project` gets the projections so far; if it
    /// returns `None`, the object is not stored. An object without a key is skipped.
    pub fn apply_event<O>(
        &mut self,
        event: Event<O>,
        key: impl FnOnce(&O) -> Option<K>,
        project: impl FnOnce(&K, O, &BTreeMap<K, V>) -> Option<V>,
    ) -> Vec<Change<K, V>> {
        let change = match event {
            Event::Init => {
                self.lists += 1;
                self.unlisted = self.objects.keys().cloned().collect();
                None
            }
            Event::InitDone => {
                self.is_listed = true;
                let deleted = std::mem::take(&mut self.unlisted).into_iter();
                return deleted.map(|key| self.update(key, None)).collect();
            }
            Event::Apply(object) | Event::InitApply(object) => key(&object).map(|key| {
                let projection = project(&key, object, &self.objects);
                self.update(key, projection)
            }),
            Event::Delete(object) => key(&object).map(|key| self.update(key, None)),
        };
        change.into_iter().collect()
    }

    /// Stores or removes the projection of an object that a watch reported.
    pub fn update(&mut self, key: K, projection: Option<V>) -> Change<K, V> {
        self.unlisted.remove(&key);
        let known = self.objects.get_key_value(&key);
        let key = known.map_or(key, |(known, _)| known.clone());
        let before = match projection {
            Some(projection) => self.objects.insert(key.clone(), projection),
            None => self.objects.remove(&key),
        };
        Change { key, before }
    }

    /// Replaces the projection of an object, if the store contains it.
    pub fn replace(&mut self, key: K, projection: V) -> Option<Change<K, V>> {
        let kept = self.objects.get_mut(&key)?;
        let before = Some(std::mem::replace(kept, projection));
        Some(Change { key, before })
    }

    /// Returns all projections.
    pub fn objects(&self) -> &BTreeMap<K, V> {
        &self.objects
    }

    /// Whether a first list is complete.
    pub fn is_listed(&self) -> bool {
        self.is_listed
    }

    /// Returns the number of lists that have begun.
    pub fn lists(&self) -> u32 {
        self.lists
    }
}

/// Returns the projections of one owner, of projections by owner and object.
pub fn of_owner<A: Copy + Ord, B: Default + Ord, V>(
    objects: &BTreeMap<(A, B), V>,
    owner: A,
) -> impl Iterator<Item = &V> {
    let from = objects.range((owner, B::default())..);
    let of_owner = from.take_while(move |((of, _), _)| *of == owner);
    of_owner.map(|(_, projection)| projection)
}

/// Returns the object of an event.
pub fn object<O>(event: &Event<O>) -> Option<&O> {
    match event {
        Event::Apply(object) | Event::InitApply(object) | Event::Delete(object) => Some(object),
        Event::Init | Event::InitDone => None,
    }
}

/// Borrows the object of an event.
pub fn by_ref<O>(event: &Event<O>) -> Event<&O> {
    match event {
        Event::Apply(object) => Event::Apply(object),
        Event::InitApply(object) => Event::InitApply(object),
        Event::Delete(object) => Event::Delete(object),
        Event::Init => Event::Init,
        Event::InitDone => Event::InitDone,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objects of this test have a name and a number; only positive numbers are stored.
    fn apply_event(
        store: &mut Store<&'static str, u32>,
        event: Event<(&'static str, u32)>,
    ) -> Vec<(&'static str, Option<u32>)> {
        let key = |object: &(&'static str, u32)| Some(object.0).filter(|name| !name.is_empty());
        let project = |key: &&'static str, object: (&str, u32), known: &BTreeMap<_, u32>| {
            let number = object.1 + known.get(key).map_or(0, |before| before * 10);
            Some(number).filter(|number| *number > 0)
        };
        let changes = store.apply_event(event, key, project);
        changes
            .into_iter()
            .map(|one| (one.key, one.before))
            .collect()
    }

    fn stored(store: &Store<&'static str, u32>) -> Vec<(&'static str, u32)> {
        store.objects().clone().into_iter().collect()
    }

    #[test]
    fn events_change_the_store_and_return_the_previous_projection() {
        let mut store = Store::default();
        assert_eq!(
            apply_event(&mut store, Event::Apply(("a", 1))),
            [("a", None)]
        );
        assert_eq!(
            apply_event(&mut store, Event::Apply(("a", 2))),
            [("a", Some(1))]
        );
        assert_eq!(apply_event(&mut store, Event::Apply(("", 2))), []);
        assert_eq!(stored(&store), [("a", 12)]);
        assert_eq!(
            apply_event(&mut store, Event::Apply(("b", 0))),
            [("b", None)]
        );
        assert_eq!(
            apply_event(&mut store, Event::Delete(("a", 2))),
            [("a", Some(12))]
        );
        assert_eq!(
            apply_event(&mut store, Event::Delete(("a", 2))),
            [("a", None)]
        );
        assert_eq!(stored(&store), []);
    }

    #[test]
    fn an_object_that_a_list_does_not_contain_is_removed_at_its_end() {
        let mut store = Store::default();
        for event in [
            Event::Init,
            Event::InitApply(("a", 1)),
            Event::InitApply(("b", 1)),
        ] {
            apply_event(&mut store, event);
            assert!(!store.is_listed());
        }
        assert_eq!(apply_event(&mut store, Event::InitDone), []);
        assert!(store.is_listed());
        apply_event(&mut store, Event::Apply(("c", 1)));
        assert_eq!(store.replace("e", 1), None, "the store does not contain it");
        // An interrupted list removes nothing.
        for event in [Event::Init, Event::InitApply(("a", 1)), Event::Init] {
            apply_event(&mut store, event);
        }
        apply_event(&mut store, Event::InitApply(("b", 1)));
        apply_event(&mut store, Event::Apply(("d", 1)));
        assert_eq!(stored(&store).len(), 4);
        let replaced = Change {
            key: "c",
            before: Some(1),
        };
        assert_eq!(store.replace("c", 7), Some(replaced), "no list contains it");
        let deleted = apply_event(&mut store, Event::InitDone);
        assert_eq!(deleted, [("a", Some(11)), ("c", Some(7))]);
        assert_eq!(stored(&store), [("b", 11), ("d", 1)]);
    }
}
