//! Classifies the API server's replies to writes, and existing objects of the same name.

use kube::ResourceExt;
use kube::core::Resource;
use serde_json::Value;

use super::{Obstacle, WriteError};

/// Whether `found` contains every field of `desired`. Fields that the API server adds do not count.
/// An empty list is the same as none: the API server stores both in the same way.
pub(super) fn contains_all(found: &Value, desired: &Value) -> bool {
    match (found, desired) {
        (Value::Null, Value::Array(desired)) => desired.is_empty(),
        (Value::Object(found), Value::Object(desired)) => desired
            .iter()
            .all(|(key, desired)| contains_all(found.get(key).unwrap_or(&Value::Null), desired)),
        (Value::Array(found), Value::Array(desired)) => {
            found.len() == desired.len()
                && found
                    .iter()
                    .zip(desired)
                    .all(|(found, desired)| contains_all(found, desired))
        }
        (found, desired) => found == desired,
    }
}

/// Returns the obstacle that an existing object of the desired name is, unless it belongs to the
/// job.
pub(super) fn ownership_conflict<K: Resource<DynamicType = ()>>(
    found: &K,
    desired: &K,
    owner: &str,
) -> Option<Obstacle> {
    let object = object_name(found);
    let owners = found.owner_references();
    // The owner of an earlier job's object does not exist any more, so the garbage collector will
    // delete it.
    let mut own = desired.owner_references().iter();
    let is_orphan = own.any(|own| {
        let mut owners = owners.iter();
        owners.any(|other| other.kind == own.kind && other.name == own.name && other.uid != owner)
    });
    let is_owned = owners.iter().any(|reference| reference.uid == owner);
    if is_orphan || found.meta().deletion_timestamp.is_some() {
        return Some(Obstacle::Terminating { object, is_owned });
    }
    if is_owned {
        return None;
    }
    let owner = match owners
        .iter()
        .find(|reference| reference.controller == Some(true))
    {
        Some(reference) => format!("{} {}", reference.kind, reference.name),
        None => "no controller".to_owned(),
    };
    Some(Obstacle::NotOwned { object, owner })
}

/// Returns a refusal, which a user must fix, as an obstacle. Returns any other error, which the
/// next reconcile retries.
pub(super) fn refused_or_failed<K: Resource<DynamicType = ()>>(
    action: &'static str,
    object: &K,
    error: kube::Error,
) -> Result<Obstacle, WriteError> {
    match error {
        kube::Error::Api(status) if matches!(status.code, 400 | 403 | 422) => {
            Ok(Obstacle::Refused {
                object: object_name(object),
                reason: status.message.clone(),
            })
        }
        source => Err(failed(action, object, source)),
    }
}

pub(super) fn failed<K: Resource<DynamicType = ()>>(
    action: &'static str,
    object: &K,
    source: kube::Error,
) -> WriteError {
    WriteError {
        action,
        object: object_name(object),
        source,
    }
}

pub(super) fn object_name<K: Resource<DynamicType = ()>>(object: &K) -> String {
    format!("{} {}", K::kind(&()), object.name_any())
}
