//! The objects of an API server, as etcd stores them: read, and brought back to an earlier state.
//!
//! The API server itself cannot do that: without a controller manager its namespaces never end, and
//! objects with finalizers stay. It follows changes of etcd as those of another API server.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::http::{self, HttpError};

/// The first key of the API server, and the first one behind its keys.
const KEYS: [&str; 2] = ["/registry/", "/registry0"];

/// Objects that the API server itself changes at any time. They are not brought back.
const VOLATILE: [&str; 2] = ["/registry/leases/", "/registry/apiregistration.k8s.io/"];

/// Number of operations of a transaction, at most 128 for etcd.
const OPERATIONS: usize = 100;

/// Number of attempts, because the API server may answer a change with another one.
const ATTEMPTS: usize = 5;

/// Failure to read or change the objects.
#[derive(Debug, thiserror::Error)]
pub enum ContentsError {
    /// etcd did not answer.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// The answer is not as expected.
    #[error("failed to read the answer of etcd")]
    Malformed(#[source] serde_json::Error),
    /// A key or a value is not valid base64.
    #[error("failed to read a key of etcd")]
    Encoding(#[source] base64::DecodeError),
    /// Objects appear as fast as they are removed.
    #[error("objects are still being created: {0:?}")]
    Unsettled(Vec<String>),
}

/// An answer to a question for a range of keys.
#[derive(Deserialize)]
struct Range {
    #[serde(default)]
    kvs: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    key: String,
    /// Empty if only keys are read.
    #[serde(default)]
    value: String,
    mod_revision: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Stored {
    /// In base64.
    value: String,
    /// The revision of the last change.
    revision: String,
}

/// All objects of an API server at one time, by their keys.
#[derive(Clone, Debug)]
pub(super) struct Contents(BTreeMap<String, Stored>);

/// What leads from one state to another one.
#[derive(Debug, PartialEq, Eq)]
struct Difference {
    /// Keys to remove.
    removed: Vec<String>,
    /// Keys to write.
    written: Vec<String>,
}

impl Contents {
    /// Reads all objects from this etcd.
    pub(super) async fn read(etcd: &str) -> Result<Self, ContentsError> {
        Self::list(etcd, false).await
    }

    /// Removes all objects that are not among these, and restores those that have changed. Returns
    /// the keys of the removed ones.
    pub(super) async fn restore(&mut self, etcd: &str) -> Result<Vec<String>, ContentsError> {
        let mut removed = Vec::new();
        for _ in 0..ATTEMPTS {
            let now = Self::list(etcd, true).await?;
            let difference = self.difference(&now);
            if difference.removed.is_empty() && difference.written.is_empty() {
                return Ok(removed);
            }
            let operations = difference.removed.iter().map(|key| remove(key));
            let written = difference.written.iter();
            let operations = operations.chain(written.map(|key| write(key, &self.0[key].value)));
            let operations: Vec<Value> = operations.collect();
            for operations in operations.chunks(OPERATIONS) {
                call(etcd, "kv/txn", &json!({"success": operations})).await?;
            }
            let mut now = Self::list(etcd, true).await?;
            for key in difference.written {
                if let (Some(own), Some(now)) = (self.0.get_mut(&key), now.0.remove(&key)) {
                    own.revision = now.revision;
                }
            }
            removed.extend(difference.removed);
        }
        Err(ContentsError::Unsettled(removed))
    }

    /// The keys of the objects.
    pub(super) fn keys(&self) -> impl Iterator<Item = &String> {
        self.0.keys()
    }

    async fn list(etcd: &str, only_keys: bool) -> Result<Self, ContentsError> {
        let [first, end] = KEYS.map(encoded);
        let question = json!({"key": first, "range_end": end, "keys_only": only_keys});
        let answer = call(etcd, "kv/range", &question).await?;
        let range: Range = serde_json::from_str(&answer).map_err(ContentsError::Malformed)?;
        let entries = range.kvs.into_iter().map(|entry| {
            let key = STANDARD.decode(&entry.key);
            let key = key.map_err(ContentsError::Encoding)?;
            let stored = Stored {
                value: entry.value,
                revision: entry.mod_revision,
            };
            Ok((String::from_utf8_lossy(&key).into_owned(), stored))
        });
        Ok(Self(entries.collect::<Result<_, ContentsError>>()?))
    }

    /// What leads from `now` back to these objects.
    fn difference(&self, now: &Self) -> Difference {
        let removed = now.0.keys().filter(|key| !self.0.contains_key(*key));
        let written = self.0.iter().filter(|(key, stored)| {
            let now = now.0.get(*key).map(|now| &now.revision);
            let is_volatile = VOLATILE.iter().any(|prefix| key.starts_with(prefix));
            !is_volatile && now != Some(&stored.revision)
        });
        Difference {
            removed: removed.cloned().collect(),
            written: written.map(|(key, _)| key.clone()).collect(),
        }
    }
}

fn encoded(key: &str) -> String {
    STANDARD.encode(key)
}

fn remove(key: &str) -> Value {
    json!({"requestDeleteRange": {"key": encoded(key)}})
}

fn write(key: &str, value: &str) -> Value {
    json!({"requestPut": {"key": encoded(key), "value": value}})
}

/// Calls etcd's gateway.
async fn call(etcd: &str, what: &str, question: &Value) -> Result<String, ContentsError> {
    let url = format!("{etcd}/v3/{what}");
    Ok(http::request("POST", &url, &question.to_string()).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contents(all: &[(&str, &str)]) -> Contents {
        let stored = |revision: &str| Stored {
            value: String::new(),
            revision: revision.to_owned(),
        };
        let all = all
            .iter()
            .map(|(key, revision)| ((*key).to_owned(), stored(revision)));
        Contents(all.collect())
    }

    #[test]
    fn new_objects_are_removed_and_changed_or_missing_ones_are_written() {
        let before = contents(&[
            ("/registry/namespaces/default", "1"),
            ("/registry/namespaces/kube-system", "2"),
            ("/registry/clusterroles/view", "3"),
            ("/registry/leases/kube-system/apiserver", "4"),
        ]);
        let now = contents(&[
            ("/registry/namespaces/default", "9"),
            ("/registry/namespaces/kube-system", "2"),
            ("/registry/namespaces/team", "8"),
            ("/registry/leases/kube-system/apiserver", "7"),
        ]);
        let expected = Difference {
            removed: vec!["/registry/namespaces/team".to_owned()],
            written: ["clusterroles/view", "namespaces/default"]
                .map(|key| format!("/registry/{key}"))
                .to_vec(),
        };
        assert_eq!(before.difference(&now), expected);
    }
}
