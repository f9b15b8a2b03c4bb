//! What the API server's answer to a write means, and what an object says that is in its way.

use kube::ResourceExt;
use kube::core::Resource;
use serde_json::Value;

use super::{Obstacle, WriteError};

/// Whether `found` holds everything that `wanted` says. What the API server adds does not count.
pub(super) fn says_all_of(found: &Value, wanted: &Value) -> bool {
    match (found, wanted) {
        (Value::Object(found), Value::Object(wanted)) => wanted.iter().all(|(key, wanted)| {
            let found = found.get(key);
            found.is_some_and(|found| says_all_of(found, wanted))
        }),
        (Value::Array(found), Value::Array(wanted)) => {
            found.len() == wanted.len()
                && found
                    .iter()
                    .zip(wanted)
                    .all(|(found, wanted)| says_all_of(found, wanted))
        }
        (found, wanted) => found == wanted,
    }
}

/// What an object that was found says to somebody who wants its name.
pub(super) fn in_the_way<K: Resource<DynamicType = ()>>(
    found: &K,
    wanted: &K,
    owner: &str,
) -> Option<Obstacle> {
    let object = named(found);
    let owners = found.owner_references();
    // The owner of an object that an earlier job of this name left is gone, so the garbage collector
    // is about to take it.
    let mut ours = wanted.owner_references().iter();
    let is_left = ours.any(|ours| {
        let mut owners = owners.iter();
        owners.any(|other| other.kind == ours.kind && other.name == ours.name && other.uid != owner)
    });
    let is_ours = owners.iter().any(|reference| reference.uid == owner);
    if is_left || found.meta().deletion_timestamp.is_some() {
        return Some(Obstacle::Leaving { object, is_ours });
    }
    if is_ours {
        return None;
    }
    let owner = match owners
        .iter()
        .find(|reference| reference.controller == Some(true))
    {
        Some(reference) => format!("{} {}", reference.kind, reference.name),
        None => "nobody that it names".to_owned(),
    };
    Some(Obstacle::Stranger { object, owner })
}

/// What the API server refuses for good, or until somebody changes something, is for the user to
/// know; anything else is tried again.
pub(super) fn refused_or_failed<K: Resource<DynamicType = ()>>(
    action: &'static str,
    object: &K,
    error: kube::Error,
) -> Result<Obstacle, WriteError> {
    match error {
        kube::Error::Api(status) if matches!(status.code, 400 | 403 | 422) => {
            Ok(Obstacle::Refused {
                object: named(object),
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
        object: named(object),
        source,
    }
}

pub(super) fn named<K: Resource<DynamicType = ()>>(object: &K) -> String {
    format!("{} {}", K::kind(&()), object.name_any())
}
