//! Pure: the objects of one kind as a watch last told of them: of each a projection, by key.

mod expectations;

use std::collections::{BTreeMap, BTreeSet};

use kube::runtime::watcher::Event;

pub use expectations::Expectations;

/// Projections of objects. A list stands for all objects there are: what it does not name is gone once it is
/// complete, and stays until then.
#[derive(Debug)]
pub struct Store<K, V> {
    objects: BTreeMap<K, V>,
    /// Those that the list under way has not named yet.
    unnamed: BTreeSet<K>,
    lists: u32,
    is_listed: bool,
}

/// An object that was told of: how it was before, if it was known. How it is now, the store knows.
#[derive(Debug, PartialEq, Eq)]
pub struct Change<K, V> {
    /// Key of the object.
    pub key: K,
    /// The object before the change; missing where it was unknown.
    pub before: Option<V>,
}

impl<K, V> Default for Store<K, V> {
    fn default() -> Self {
        Self {
            objects: BTreeMap::new(),
            unnamed: BTreeSet::new(),
            lists: 0,
            is_listed: false,
        }
    }
}

impl<K: Clone + Ord, V> Store<K, V> {
    /// Takes in what a watch tells, and returns what became of it. `project` is given what is known so far; none:
    /// nothing is kept of the object. An object without a key is left out.
    pub fn hear<O>(
        &mut self,
        event: Event<O>,
        key: impl FnOnce(&O) -> Option<K>,
        project: impl FnOnce(&K, O, &BTreeMap<K, V>) -> Option<V>,
    ) -> Vec<Change<K, V>> {
        let told = match event {
            Event::Init => {
                self.lists += 1;
                self.unnamed = self.objects.keys().cloned().collect();
                None
            }
            Event::InitDone => {
                self.is_listed = true;
                let gone = std::mem::take(&mut self.unnamed).into_iter();
                return gone.map(|key| self.tell(key, None)).collect();
            }
            Event::Apply(object) | Event::InitApply(object) => key(&object).map(|key| {
                let projection = project(&key, object, &self.objects);
                self.tell(key, projection)
            }),
            Event::Delete(object) => key(&object).map(|key| self.tell(key, None)),
        };
        told.into_iter().collect()
    }

    /// Keeps this of an object that a watch tells of, or nothing.
    pub fn tell(&mut self, key: K, projection: Option<V>) -> Change<K, V> {
        self.unnamed.remove(&key);
        let known = self.objects.get_key_value(&key);
        let key = known.map_or(key, |(known, _)| known.clone());
        let before = match projection {
            Some(projection) => self.objects.insert(key.clone(), projection),
            None => self.objects.remove(&key),
        };
        Change { key, before }
    }

    /// Keeps this of an object instead of what was kept, where it is known.
    pub fn replace(&mut self, key: K, projection: V) -> Option<Change<K, V>> {
        let kept = self.objects.get_mut(&key)?;
        let before = Some(std::mem::replace(kept, projection));
        Some(Change { key, before })
    }

    /// What is kept of all objects.
    pub fn objects(&self) -> &BTreeMap<K, V> {
        &self.objects
    }

    /// Whether a first list is complete.
    pub fn is_listed(&self) -> bool {
        self.is_listed
    }

    /// How many lists have begun.
    pub fn lists(&self) -> u32 {
        self.lists
    }
}

/// What a watch tells of objects, without the objects themselves.
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

    /// Objects of this test have a name and a number; only positive numbers are kept.
    fn hear(
        store: &mut Store<&'static str, u32>,
        event: Event<(&'static str, u32)>,
    ) -> Vec<(&'static str, Option<u32>)> {
        let key = |object: &(&'static str, u32)| Some(object.0).filter(|name| !name.is_empty());
        let project = |key: &&'static str, object: (&str, u32), known: &BTreeMap<_, u32>| {
            let number = object.1 + known.get(key).map_or(0, |before| before * 10);
            Some(number).filter(|number| *number > 0)
        };
        let changes = store.hear(event, key, project);
        changes
            .into_iter()
            .map(|one| (one.key, one.before))
            .collect()
    }

    fn kept(store: &Store<&'static str, u32>) -> Vec<(&'static str, u32)> {
        store.objects().clone().into_iter().collect()
    }

    #[test]
    fn whatever_a_watch_tells_is_kept_and_what_was_before_is_told() {
        let mut store = Store::default();
        assert_eq!(hear(&mut store, Event::Apply(("a", 1))), [("a", None)]);
        assert_eq!(hear(&mut store, Event::Apply(("a", 2))), [("a", Some(1))]);
        assert_eq!(hear(&mut store, Event::Apply(("", 2))), []);
        assert_eq!(kept(&store), [("a", 12)]);
        assert_eq!(hear(&mut store, Event::Apply(("b", 0))), [("b", None)]);
        assert_eq!(hear(&mut store, Event::Delete(("a", 2))), [("a", Some(12))]);
        assert_eq!(hear(&mut store, Event::Delete(("a", 2))), [("a", None)]);
        assert_eq!(kept(&store), []);
    }

    #[test]
    fn what_a_complete_list_does_not_name_is_gone_and_stays_until_then() {
        let mut store = Store::default();
        for event in [
            Event::Init,
            Event::InitApply(("a", 1)),
            Event::InitApply(("b", 1)),
        ] {
            hear(&mut store, event);
            assert!(!store.is_listed());
        }
        assert_eq!(hear(&mut store, Event::InitDone), []);
        assert!(store.is_listed());
        hear(&mut store, Event::Apply(("c", 1)));
        assert_eq!(store.replace("e", 1), None, "it is not known");
        // A list that is interrupted names nothing.
        for event in [Event::Init, Event::InitApply(("a", 1)), Event::Init] {
            hear(&mut store, event);
        }
        hear(&mut store, Event::InitApply(("b", 1)));
        hear(&mut store, Event::Apply(("d", 1)));
        assert_eq!(kept(&store).len(), 4);
        let replaced = Change {
            key: "c",
            before: Some(1),
        };
        assert_eq!(store.replace("c", 7), Some(replaced), "no list names it");
        let gone = hear(&mut store, Event::InitDone);
        assert_eq!(gone, [("a", Some(11)), ("c", Some(7))]);
        assert_eq!(kept(&store), [("b", 11), ("d", 1)]);
    }
}
