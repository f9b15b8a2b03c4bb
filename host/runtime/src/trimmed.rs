//! Objects without unused fields. A single unreadable object would make a whole list, or the reply
//! to a write, fail.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::core::DeserializeGuard;
use kube::runtime::watcher::Event;
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// An object without its `managedFields`. Any client writes them, and their times may be outside of
/// the readable range.
#[derive(Clone, Debug)]
pub struct Trimmed<K>(pub K);

/// An object without its `managedFields`, or the error of its decoding.
pub type Guarded<K> = Trimmed<DeserializeGuard<K>>;

impl<'de, K: DeserializeOwned> Deserialize<'de> for Trimmed<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut object = Value::deserialize(deserializer)?;
        let metadata = object.get_mut("metadata").and_then(Value::as_object_mut);
        if let Some(metadata) = metadata {
            metadata.remove("managedFields");
        }
        let object = K::deserialize(object).map_err(D::Error::custom)?;
        Ok(Self(object))
    }
}

impl<K: Resource> Resource for Trimmed<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn kind(kind: &K::DynamicType) -> Cow<'_, str> {
        K::kind(kind)
    }

    fn group(kind: &K::DynamicType) -> Cow<'_, str> {
        K::group(kind)
    }

    fn version(kind: &K::DynamicType) -> Cow<'_, str> {
        K::version(kind)
    }

    fn plural(kind: &K::DynamicType) -> Cow<'_, str> {
        K::plural(kind)
    }

    fn metadata_api() -> bool {
        K::metadata_api()
    }

    fn meta(&self) -> &ObjectMeta {
        self.0.meta()
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.0.meta_mut()
    }
}

/// Unwraps the objects of an event.
pub fn untrimmed<K>(event: Event<Trimmed<K>>) -> Event<K> {
    match event {
        Event::Apply(object) => Event::Apply(object.0),
        Event::InitApply(object) => Event::InitApply(object.0),
        Event::Delete(object) => Event::Delete(object.0),
        Event::Init => Event::Init,
        Event::InitDone => Event::InitDone,
    }
}

/// Keeps the readable objects of an event. The others are logged, and their last state stays.
pub fn readable<K: Resource<DynamicType = ()>>(event: Event<Guarded<K>>) -> Option<Event<K>> {
    let read = |Trimmed(object): Guarded<K>| {
        let invalid = match object.0 {
            Ok(object) => return Some(object),
            Err(invalid) => invalid,
        };
        tracing::warn!(
            kind = &*K::kind(&()),
            namespace = invalid.metadata.namespace,
            name = invalid.metadata.name,
            "an object cannot be read and is left out; delete it or correct it: {}",
            invalid.error
        );
        None
    };
    filter_map(event, read)
}

/// Reads the object of an event. `None` drops the event.
pub(crate) fn filter_map<O, P>(
    event: Event<O>,
    read: impl FnOnce(O) -> Option<P>,
) -> Option<Event<P>> {
    Some(match event {
        Event::Apply(object) => Event::Apply(read(object)?),
        Event::InitApply(object) => Event::InitApply(read(object)?),
        Event::Delete(object) => Event::Delete(read(object)?),
        Event::Init => Event::Init,
        Event::InitDone => Event::InitDone,
    })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use kube::core::{ObjectList, PartialObjectMeta};
    use serde_json::json;

    use super::*;

    /// A list of Pods: a normal one, one with a creation time that is too late, and an invalid one.
    fn list() -> Value {
        let pod = |name: &str, fields: Value, spec: Value| {
            json!({
                "metadata": {"name": name, "namespace": "n", "managedFields": [fields]},
                "spec": spec,
            })
        };
        let spec = json!({"containers": [{"name": "main"}]});
        let late = json!({"manager": "somebody", "time": "9999-12-31T23:59:59Z"});
        json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": [
            pod("as-others", json!({"manager": "kubectl"}), spec.clone()),
            pod("late", late, spec),
            pod("odd", json!({}), json!({"containers": 5})),
        ]})
    }

    #[test]
    fn only_the_metadata_is_requested_of_objects_that_have_nothing_else() {
        assert!(Trimmed::<PartialObjectMeta<Pod>>::metadata_api());
        assert!(!Trimmed::<Pod>::metadata_api());
    }

    #[test]
    fn one_odd_object_leaves_the_list_of_the_others_readable() {
        assert!(serde_json::from_value::<ObjectList<Pod>>(list()).is_err());
        let guarded = serde_json::from_value::<ObjectList<DeserializeGuard<Pod>>>(list());
        assert!(guarded.is_err(), "its metadata cannot be read either");
        let listed: ObjectList<Guarded<Pod>> = serde_json::from_value(list()).unwrap();
        let events = listed.items.into_iter().map(Event::InitApply);
        let readable = events.filter_map(readable);
        let names = readable.map(|event| match event {
            Event::InitApply(pod) => pod.metadata.name,
            other => panic!("{other:?}"),
        });
        let names: Vec<_> = names.flatten().collect();
        assert_eq!(names, ["as-others", "late"]);
    }
}
