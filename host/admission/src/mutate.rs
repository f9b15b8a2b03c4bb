//! Pure: the answer of the mutating webhook. The host trusts a defaulting policy with nothing but
//! spec, labels and annotations, and on an update not with what the user left alone. The finalizer of a new job it
//! adds itself, which saves the controller a write.

use ipu_api::ipujob::is_managed_by_another;
use ipu_api::names::JOB_FINALIZER;
use ipu_guest_host::model::Operation;
use ipu_text::sanitize;
use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, Patch, PatchOperation};
use serde_json::{Map, Value, json};

use super::answer::Decision;
use super::patch;
use super::request::{AdmissionRequest, Reviewed};

/// Longest path that an error tells, in bytes: its keys are the guest's.
const PATH: usize = 512;

/// Where the Pod template stands in the spec: what is added to it makes Pods anew.
const TEMPLATE: [&str; 2] = ["workers", "template"];

/// Why the host does not pass on what a defaulting policy answered.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum OverreachError {
    /// It changed something that is not its own.
    #[error(
        "it changes {path}; a defaulting policy may change spec, metadata.labels and \
         metadata.annotations, and nothing else"
    )]
    NotItsOwn {
        /// JSON pointer of the change.
        path: String,
    },
    /// On an update, it changed what was there before.
    #[error(
        "on an update it changes {path}, which was set before and which the update leaves alone; \
         a running training must not be rolled by a changed default"
    )]
    SetBefore {
        /// JSON pointer of the change.
        path: String,
    },
}

/// The changes that turn the object that the user sent into the one with all defaults.
pub fn decision(sent: &Value, defaulted: &Value) -> Decision {
    let patch = patch::between(sent, defaulted);
    if patch.0.is_empty() {
        Decision::Allowed
    } else {
        Decision::Patched(patch)
    }
}

/// The same with the finalizer, where the request makes a job that this operator carries out.
pub fn with_finalizer(
    request: &AdmissionRequest,
    defaulted: &Value,
    decision: Decision,
) -> Decision {
    let is_new = request.reviewed == Reviewed::IPUJob
        && request.operation == Some(Operation::Create)
        && request.sub_resource.is_none();
    let Some(finalizer) = is_new.then(|| finalizer(defaulted)).flatten() else {
        return decision;
    };
    match decision {
        Decision::Allowed => Decision::Patched(Patch(vec![finalizer])),
        Decision::Patched(mut patch) => {
            patch.0.push(finalizer);
            Decision::Patched(patch)
        }
        refused => refused,
    }
}

/// What adds the finalizer to a job. One that another controller carries out would keep it for ever.
fn finalizer(job: &Value) -> Option<PatchOperation> {
    if is_managed_by_another(job) {
        return None;
    }
    let metadata = job.get("metadata")?.as_object()?;
    let (tokens, value) = match metadata.get("finalizers") {
        Some(Value::Array(all)) if all.iter().any(|one| one == JOB_FINALIZER) => return None,
        Some(Value::Array(_)) => (vec!["metadata", "finalizers", "-"], json!(JOB_FINALIZER)),
        Some(_) | None => (vec!["metadata", "finalizers"], json!([JOB_FINALIZER])),
    };
    Some(PatchOperation::Add(AddOperation {
        path: PointerBuf::from_tokens(tokens),
        value,
    }))
}

/// Checks what one defaulting policy made of the object that it was given (`before`).
pub fn checked(
    request: &AdmissionRequest,
    before: &Value,
    defaulted: &Value,
) -> Result<(), OverreachError> {
    if let Some(path) = not_its_own(before, defaulted) {
        let path = sanitize(&path, PATH);
        return Err(OverreachError::NotItsOwn { path });
    }
    if let Some(old) = &request.old_object {
        let [old, object, new] = [old, before, defaulted].map(|object| &object["spec"]);
        let template = Some(TEMPLATE.as_slice());
        if let Some(keys) = look(template, old, object, new).overwritten {
            let keys = keys.iter().rev().map(|key| format!("/{key}"));
            let path = sanitize(&format!("/spec{}", keys.collect::<String>()), PATH);
            return Err(OverreachError::SetBefore { path });
        }
    }
    Ok(())
}

/// The first place that differs and is neither the spec nor labels nor annotations.
fn not_its_own(before: &Value, defaulted: &Value) -> Option<String> {
    let (Value::Object(before), Value::Object(after)) = (before, defaulted) else {
        return (before != defaulted).then(|| "the whole object".to_owned());
    };
    if let Some(key) = changed(before, after, &["spec", "metadata"]) {
        return Some(format!("/{key}"));
    }
    match (before.get("metadata"), after.get("metadata")) {
        (Some(Value::Object(before)), Some(Value::Object(after))) => {
            let key = changed(before, after, &["labels", "annotations"])?;
            Some(format!("/metadata/{key}"))
        }
        (before, after) => (before != after).then(|| "/metadata".to_owned()),
    }
}

/// The first key outside of `free` whose values differ.
fn changed<'a>(
    before: &'a Map<String, Value>,
    after: &'a Map<String, Value>,
    free: &[&str],
) -> Option<&'a String> {
    let keys = after.keys().chain(before.keys());
    let mut keys = keys.filter(|key| !free.contains(&key.as_str()));
    keys.find(|key| before.get(*key) != after.get(*key))
}

/// What one look at a place says, below which nothing is looked at twice.
struct Look {
    /// The object is there as it was in the old one.
    is_untouched: bool,
    /// The new object differs there.
    is_changed: bool,
    /// The first place from there on where the new object differs although the object is as it was, from its last key
    /// to its first. Something added to a map that was there before is no such place, except in the Pod template.
    overwritten: Option<Vec<String>>,
}

/// Looks at a place from which `template` leads to the Pod template: no further keys mean that the place is in it, none
/// that the template is elsewhere.
fn look(template: Option<&[&str]>, old: &Value, object: &Value, new: &Value) -> Look {
    match (old, object, new) {
        (Value::Object(old), Value::Object(object), Value::Object(new)) => {
            let mut look = look_into(template, old, object, new);
            if look.is_untouched && look.is_changed && template.is_some_and(<[_]>::is_empty) {
                look.overwritten = Some(Vec::new());
            }
            look
        }
        (Value::Array(old), Value::Array(object), Value::Array(new)) => {
            let mut look = Look::at_lengths(old.len(), object.len(), new.len());
            for (at, value) in object.iter().enumerate() {
                look.add(&at, template, old.get(at), value, new.get(at));
            }
            if look.is_untouched && look.is_changed {
                look.overwritten = Some(Vec::new());
            }
            look
        }
        _ => {
            let (is_untouched, is_changed) = (old == object, object != new);
            // What was null was not set.
            let is_overwritten = is_untouched && is_changed && !object.is_null();
            Look {
                is_untouched,
                is_changed,
                overwritten: is_overwritten.then(Vec::new),
            }
        }
    }
}

fn look_into(
    template: Option<&[&str]>,
    old: &Map<String, Value>,
    object: &Map<String, Value>,
    new: &Map<String, Value>,
) -> Look {
    let mut look = Look::at_lengths(old.len(), object.len(), new.len());
    for (key, value) in object {
        let template = template.and_then(|keys| match keys.split_first() {
            None => Some(keys),
            Some((first, rest)) => (first == key).then_some(rest),
        });
        look.add(key, template, old.get(key), value, new.get(key));
    }
    look
}

impl Look {
    /// A look at maps or lists of so many members, none of which was looked at yet.
    fn at_lengths(old: usize, object: usize, new: usize) -> Self {
        Self {
            is_untouched: old == object,
            is_changed: object != new,
            overwritten: None,
        }
    }

    /// Adds a member.
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
        let member = look(template, old, object, new.unwrap_or(&Value::Null));
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
