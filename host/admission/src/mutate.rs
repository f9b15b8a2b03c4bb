//! Pure: the answer of the mutating webhook. A defaulting guest may change only spec, labels and
//! annotations, and on an update only the fields that the user changes. `new_job` adds what the
//! operator itself sets.

pub mod new_job;

use ipu_text::sanitize;
use serde_json::{Map, Value};

use super::answer::Decision;
use super::patch;
use super::request::AdmissionRequest;

/// Longest path in an error, in bytes. The guest sets its keys.
const PATH: usize = 512;

/// Path of the Pod template in the spec. Any addition there recreates the Pods.
const TEMPLATE: [&str; 2] = ["workers", "template"];

/// Reason why the host refuses the answer of a defaulting guest.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum OverreachError {
    /// It changed a forbidden path, of which this is the JSON pointer.
    #[error(
        "it changes {0}; a defaulting guest may change spec, metadata.labels and \
         metadata.annotations, and nothing else"
    )]
    ForbiddenPath(String),
    /// On an update, it changed a field that the user left unchanged. This is its JSON pointer.
    #[error(
        "on an update it changes {0}, which was set before and which the update leaves alone; \
         a changed default must not restart a running job"
    )]
    SetBefore(String),
}

/// Returns the decision with the changes from the original to the defaulted object.
pub fn decision(original: &Value, defaulted: &Value) -> Decision {
    let patch = patch::between(original, defaulted);
    if patch.0.is_empty() {
        Decision::Allowed
    } else {
        Decision::Patched(patch)
    }
}

/// Checks the changes of one defaulting guest to its input `before`.
pub fn check(
    request: &AdmissionRequest,
    before: &Value,
    defaulted: &Value,
) -> Result<(), OverreachError> {
    if let Some(path) = forbidden_change(before, defaulted) {
        let path = sanitize(&path, PATH);
        return Err(OverreachError::ForbiddenPath(path));
    }
    if let Some(old) = &request.old_object {
        let [old, object, new] = [old, before, defaulted].map(|object| &object["spec"]);
        let template = Some(TEMPLATE.as_slice());
        if let Some(keys) = compare(template, old, object, new).overwritten {
            let keys = keys.iter().rev().map(|key| format!("/{key}"));
            let path = sanitize(&format!("/spec{}", keys.collect::<String>()), PATH);
            return Err(OverreachError::SetBefore(path));
        }
    }
    Ok(())
}

/// Returns the first changed path outside of spec, labels and annotations.
fn forbidden_change(before: &Value, defaulted: &Value) -> Option<String> {
    let (Value::Object(before), Value::Object(after)) = (before, defaulted) else {
        return (before != defaulted).then(|| "the whole object".to_owned());
    };
    if let Some(key) = changed_key(before, after, &["spec", "metadata"]) {
        return Some(format!("/{key}"));
    }
    match (before.get("metadata"), after.get("metadata")) {
        (Some(Value::Object(before)), Some(Value::Object(after))) => {
            let key = changed_key(before, after, &["labels", "annotations"])?;
            Some(format!("/metadata/{key}"))
        }
        (before, after) => (before != after).then(|| "/metadata".to_owned()),
    }
}

/// Returns the first changed key that is not in `allowed`.
fn changed_key<'a>(
    before: &'a Map<String, Value>,
    after: &'a Map<String, Value>,
    allowed: &[&str],
) -> Option<&'a String> {
    let keys = after.keys().chain(before.keys());
    let mut keys = keys.filter(|key| !allowed.contains(&key.as_str()));
    keys.find(|key| before.get(*key) != after.get(*key))
}

/// Result of comparing one path of three objects; every path is visited once.
struct Difference {
    /// The user left the path unchanged.
    is_untouched: bool,
    /// The guest changed the path.
    is_changed: bool,
    /// The first path below that the guest changed and the user did not, from the last key to the
    /// first. An addition to an existing map does not count, except in the Pod template.
    overwritten: Option<Vec<String>>,
}

/// Compares one path. `template` has the keys from it to the Pod template: empty inside the
/// template, `None` outside.
fn compare(template: Option<&[&str]>, old: &Value, object: &Value, new: &Value) -> Difference {
    match (old, object, new) {
        (Value::Object(old), Value::Object(object), Value::Object(new)) => {
            let mut difference = compare_maps(template, old, object, new);
            if difference.is_untouched
                && difference.is_changed
                && template.is_some_and(<[_]>::is_empty)
            {
                difference.overwritten = Some(Vec::new());
            }
            difference
        }
        (Value::Array(old), Value::Array(object), Value::Array(new)) => {
            let mut difference = Difference::of_lengths(old.len(), object.len(), new.len());
            for (at, value) in object.iter().enumerate() {
                difference.add(&at, template, old.get(at), value, new.get(at));
            }
            if difference.is_untouched && difference.is_changed {
                difference.overwritten = Some(Vec::new());
            }
            difference
        }
        _ => {
            let (is_untouched, is_changed) = (old == object, object != new);
            // A null value counts as unset.
            let is_overwritten = is_untouched && is_changed && !object.is_null();
            Difference {
                is_untouched,
                is_changed,
                overwritten: is_overwritten.then(Vec::new),
            }
        }
    }
}

fn compare_maps(
    template: Option<&[&str]>,
    old: &Map<String, Value>,
    object: &Map<String, Value>,
    new: &Map<String, Value>,
) -> Difference {
    let mut difference = Difference::of_lengths(old.len(), object.len(), new.len());
    for (key, value) in object {
        let template = template.and_then(|keys| match keys.split_first() {
            None => Some(keys),
            Some((first, rest)) => (first == key).then_some(rest),
        });
        difference.add(key, template, old.get(key), value, new.get(key));
    }
    difference
}

impl Difference {
    /// Compares the lengths of maps or lists, before their members.
    fn of_lengths(old: usize, object: usize, new: usize) -> Self {
        Self {
            is_untouched: old == object,
            is_changed: object != new,
            overwritten: None,
        }
    }

    /// Adds the difference of a member.
    fn add(
        &mut self,
        key: &impl ToString,
        template: Option<&[&str]>,
        old: Option<&Value>,
        object: &Value,
        new: Option<&Value>,
    ) {
        let Some(old) = old else {
            self.is_untouched = false;
            self.is_changed |= new != Some(object);
            return;
        };
        let member = compare(template, old, object, new.unwrap_or(&Value::Null));
        self.is_untouched &= member.is_untouched;
        self.is_changed |= member.is_changed || new.is_none();
        if let (None, Some(mut keys)) = (&self.overwritten, member.overwritten) {
            keys.push(key.to_string());
            self.overwritten = Some(keys);
        }
    }
}

#[cfg(test)]
mod tests;
