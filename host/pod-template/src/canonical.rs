//! Pure: the canonical form of a Pod template: templates from which Kubernetes makes the same Pods
//! have one form.
//!
//! A field that is null, empty or equal to its default is a missing field, and a quantity is its
//! value. Null in a map or a list is an empty text. Metadata is its labels, annotations and
//! finalizers: the name and the times of a template, which clients print, mean nothing.

use serde_json::Value;

use crate::defaults::DEFAULTS;
use crate::nulls::fill_nulls;
use crate::quantity;

/// Parts of the metadata of a template that a Pod gets.
const METADATA: [&str; 3] = ["annotations", "finalizers", "labels"];

/// Quantities in the spec of a Pod, as paths. `*` is every entry of an object or a list, `|`
/// separates names.
const QUANTITIES: [&str; 8] = [
    "overhead.*",
    "resources.limits|requests.*",
    "containers|initContainers|ephemeralContainers.*.resources.limits|requests.*",
    "containers|initContainers|ephemeralContainers.*.env.*.valueFrom.resourceFieldRef.divisor",
    "volumes.*.emptyDir.sizeLimit",
    "volumes.*.ephemeral.volumeClaimTemplate.spec.resources.limits|requests.*",
    "volumes.*.downwardAPI.items.*.resourceFieldRef.divisor",
    "volumes.*.projected.sources.*.downwardAPI.items.*.resourceFieldRef.divisor",
];

/// Resources whose requests are their limits where they are missing.
const RESOURCES: [&str; 2] = ["resources", "containers|initContainers.*.resources"];

/// Fields that mean the same when they are empty as when they are missing. An empty object of
/// another field means something: `emptyDir: {}` is a volume, and an empty selector selects
/// everything.
const EMPTY: [&str; 14] = [
    "affinity",
    "annotations",
    "labels",
    "limits",
    "matchLabels",
    "metadata",
    "nodeAffinity",
    "nodeSelector",
    "overhead",
    "podAffinity",
    "podAntiAffinity",
    "requests",
    "resources",
    "securityContext",
];

/// Returns the canonical form of a template in JSON. A value of another type than that of its field
/// stays.
pub fn canonical(template: &Value) -> Value {
    let mut template = template.clone();
    fill_nulls(&mut template);
    if let Some(metadata) = template.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|key, _| METADATA.contains(&key.as_str()));
    }
    if let Some(spec) = template.get_mut("spec") {
        for path in QUANTITIES {
            at(spec, path, &mut write_value);
        }
        for path in RESOURCES {
            at(spec, path, &mut |parent, name| {
                drop_equal_requests(&mut parent[name]);
            });
        }
        drop_pull_policies(spec);
    }
    remove_empty(&mut template);
    if let Some(spec) = template.get_mut("spec") {
        for (path, default) in DEFAULTS {
            at(spec, path, &mut |parent, name| {
                if default.is(&parent[name]) {
                    drop_field(parent, name);
                }
            });
        }
    }
    remove_empty(&mut template);
    template
}

/// Calls `act` with the parent and the key of every field at a path.
fn at(value: &mut Value, path: &str, act: &mut impl FnMut(&mut Value, &str)) {
    let (step, rest) = path.split_once('.').unwrap_or((path, ""));
    let is_any = step == "*";
    if let Some(list) = value.as_array_mut().filter(|_| is_any) {
        for entry in list {
            at(entry, rest, act);
        }
        return;
    }
    let Some(object) = value.as_object() else {
        return;
    };
    let names: Vec<String> = if is_any {
        object.keys().cloned().collect()
    } else {
        let named = step.split('|').filter(|name| object.contains_key(*name));
        named.map(ToOwned::to_owned).collect()
    };
    for name in names {
        if rest.is_empty() {
            act(value, &name);
        } else if let Some(child) = value.get_mut(&name) {
            at(child, rest, act);
        }
    }
}

/// Writes a quantity as its value. One that cannot be read stays.
fn write_value(parent: &mut Value, name: &str) {
    let text = match &parent[name] {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => return,
    };
    if let Some(canonical) = quantity::canonical(&text) {
        parent[name] = Value::String(canonical);
    }
}

fn drop_equal_requests(resources: &mut Value) {
    let limits = resources.get("limits").cloned();
    if let (Some(limits), Some(requests)) = (
        limits.as_ref().and_then(Value::as_object),
        resources.get_mut("requests").and_then(Value::as_object_mut),
    ) {
        requests.retain(|name, request| limits.get(name) != Some(request));
    }
}

/// Removes the pull policies that Kubernetes would add: that of an image follows from its tag.
fn drop_pull_policies(spec: &mut Value) {
    at(
        spec,
        "containers|initContainers.*.imagePullPolicy",
        &mut |container, name| {
            let image = container
                .get("image")
                .and_then(Value::as_str)
                .unwrap_or_default();
            let file = image.rsplit('/').next().unwrap_or_default();
            let tagged = file.split('@').next().unwrap_or_default();
            let is_latest = match tagged.split_once(':') {
                Some((_, tag)) => tag == "latest",
                None => tagged == file,
            };
            let default = if is_latest { "Always" } else { "IfNotPresent" };
            if container[name] == default {
                drop_field(container, name);
            }
        },
    );
}

fn drop_field(parent: &mut Value, name: &str) {
    if let Some(fields) = parent.as_object_mut() {
        fields.remove(name);
    }
}

fn remove_empty(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.values_mut().for_each(remove_empty);
            fields.retain(|name, field| !means_nothing(name, field));
        }
        Value::Array(list) => list.iter_mut().for_each(remove_empty),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn means_nothing(name: &str, field: &Value) -> bool {
    match field {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(fields) => fields.is_empty() && EMPTY.contains(&name),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

#[cfg(test)]
mod tests;
