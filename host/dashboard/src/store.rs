//! Pure: the objects that a watch reports, by namespace and name.

use std::collections::BTreeMap;
use std::mem;

use kube::ResourceExt;
use kube::runtime::watcher::Event;

/// The stored fields of each object, as of the last event.
#[derive(Debug)]
pub struct Store<V> {
    objects: BTreeMap<String, V>,
    /// A list that is not complete: until then the previous objects count.
    listing: BTreeMap<String, V>,
    is_listed: bool,
}

impl<V> Default for Store<V> {
    fn default() -> Self {
        Self {
            objects: BTreeMap::new(),
            listing: BTreeMap::new(),
            is_listed: false,
        }
    }
}

impl<V> Store<V> {
    /// Applies an event. `keep` reduces an object to the stored fields.
    pub fn apply<K: ResourceExt>(&mut self, event: Event<K>, keep: impl Fn(K) -> V) {
        match event {
            Event::Init => self.listing.clear(),
            Event::InitApply(object) => {
                let key = key(&object);
                self.listing.insert(key, keep(object));
            }
            Event::InitDone => {
                self.objects = mem::take(&mut self.listing);
                self.is_listed = true;
            }
            Event::Apply(object) => {
                let key = key(&object);
                self.objects.insert(key, keep(object));
            }
            Event::Delete(object) => {
                self.objects.remove(&key(&object));
            }
        }
    }

    /// Stores an object that is not the stored one. Returns whether it is another one.
    pub fn replace(&mut self, key: String, value: V) -> bool
    where
        V: PartialEq,
    {
        let is_other = self.objects.get(&key) != Some(&value);
        self.objects.insert(key, value);
        is_other
    }

    /// Whether a first list is complete.
    pub fn is_listed(&self) -> bool {
        self.is_listed
    }

    /// The stored fields of one object. The key of an object with a namespace is `namespace/name`.
    pub fn get(&self, key: &str) -> Option<&V> {
        self.objects.get(key)
    }

    /// The stored fields of all objects, in the order of their namespaces and names.
    pub fn values(&self) -> impl Iterator<Item = &V> + Clone {
        self.objects.values()
    }
}

/// The key of an object.
pub fn key(object: &impl ResourceExt) -> String {
    let name = object.name_any();
    match object.namespace() {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name,
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Node;

    use super::*;

    fn node(name: &str) -> Node {
        serde_json::from_value(serde_json::json!({"metadata": {"name": name}})).unwrap()
    }

    #[test]
    fn a_new_list_replaces_the_objects_when_it_is_complete() {
        let mut store = Store::default();
        let mut follow = |event| {
            store.apply(event, |node: Node| node.name_any());
            let names = store.values().cloned().collect::<Vec<_>>().join(" ");
            (store.is_listed(), names)
        };
        let expected = |is_listed, names: &str| (is_listed, names.to_owned());
        assert_eq!(follow(Event::Init), expected(false, ""));
        assert_eq!(follow(Event::InitApply(node("b"))), expected(false, ""));
        assert_eq!(follow(Event::InitDone), expected(true, "b"));
        assert_eq!(follow(Event::Apply(node("a"))), expected(true, "a b"));
        assert_eq!(follow(Event::Init), expected(true, "a b"));
        assert_eq!(follow(Event::InitApply(node("c"))), expected(true, "a b"));
        assert_eq!(follow(Event::InitDone), expected(true, "c"));
        assert_eq!(follow(Event::Delete(node("c"))), expected(true, ""));
    }

    #[test]
    fn an_object_that_is_the_stored_one_is_no_change() {
        let mut store = Store::default();
        for (value, expected) in [(1, true), (1, false), (2, true)] {
            assert_eq!(store.replace("a".to_owned(), value), expected, "{value}");
        }
        assert_eq!(store.get("a"), Some(&2));
    }
}
