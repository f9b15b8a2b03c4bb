//! What a server-side apply would change, as Argo CD and Flux compare it: a dry run of the apply,
//! and the object as it is.

use serde_json::{Map, Value};

use super::documents;
use crate::chart::admin::Admin;

/// An object as it is, and as an apply would leave it. `live` is `None` if the apply would create
/// it.
pub(super) struct Prediction {
    pub(super) name: String,
    pub(super) live: Option<Value>,
    pub(super) predicted: Value,
}

/// Predicts an apply of manifests by this field manager. Each request is about one object, as those
/// of both tools are.
pub(super) fn predictions(admin: &Admin, manager: &str, manifests: &[Value]) -> Vec<Prediction> {
    let file = admin.file("dry-run.yaml", &stream(manifests));
    let manager = format!("--field-manager={manager}");
    let apply = [
        "apply",
        "--server-side",
        "--force-conflicts",
        "--dry-run=server",
        &manager,
        "--filename",
        &file,
        "--output=json",
    ];
    let predicted = items(&admin.kubectl(&apply).unwrap());
    let get = [
        "get",
        "--ignore-not-found",
        "--filename",
        &file,
        "--output=json",
    ];
    let live = items(&admin.kubectl(&get).unwrap());
    let predictions = predicted.into_iter().map(|predicted| {
        let name = identity(&predicted);
        let live = live.iter().find(|object| identity(object) == name);
        Prediction {
            live: live.cloned(),
            name,
            predicted,
        }
    });
    predictions.collect()
}

/// Manifests as one YAML stream. JSON is YAML.
pub(super) fn stream(manifests: &[Value]) -> String {
    let manifests = manifests.iter().map(Value::to_string);
    manifests.collect::<Vec<_>>().join("\n---\n")
}

/// The objects that kubectl prints: one object, a list, or nothing.
pub(super) fn items(printed: &str) -> Vec<Value> {
    let documents = documents(printed).into_iter();
    let items = documents.flat_map(|document| match document["items"].as_array() {
        Some(items) => items.clone(),
        None => vec![document],
    });
    items.collect()
}

/// Kind, namespace and name of an object.
pub(super) fn identity(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let metadata = &object["metadata"];
    let [kind, namespace, name] =
        [&object["kind"], &metadata["namespace"], &metadata["name"]].map(text);
    format!("{kind} {namespace}/{name}")
}

/// Removes fields that every write changes, and the status: neither Argo CD nor Flux compares it,
/// and the API server writes that of a FlowSchema whenever it likes.
pub(super) fn without_versions(object: &Value) -> Value {
    let mut object = object.clone();
    let metadata = object["metadata"].as_object_mut();
    let metadata: &mut Map<String, Value> = metadata.unwrap();
    for field in ["managedFields", "resourceVersion"] {
        metadata.remove(field);
    }
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    object
}
