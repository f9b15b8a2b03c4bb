//! Pure: what a replica says of the policies, and which versions it is to have ready.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kube::ResourceExt;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use ipu_api::ipupolicy::{CallCounts, Hook, IPUPolicy, IPUPolicySpec, Revision, ShadowCounts};

/// What one replica says of all policies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Name of its Pod.
    pub replica: String,
    /// Where it asks guests.
    pub hooks: Vec<Hook>,
    /// What it says of each policy, by UID.
    #[serde(default)]
    pub policies: BTreeMap<String, Said>,
}

/// What one replica says of one policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Said {
    /// Generations that it could ask at once, and the digest of each.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub prepared: BTreeMap<i64, String>,
    /// What keeps it from having a generation ready.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub problems: BTreeMap<i64, Problem>,
    /// The version that it asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asks: Option<Asked>,
    /// How that version does.
    #[serde(default)]
    pub counts: Counts,
}

/// Why a version is not ready.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// In a sentence.
    pub reason: String,
    /// Whether the version is refused; otherwise it is waited for.
    pub is_final: bool,
}

/// A version that a replica asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// The `metadata.generation` that it came from.
    pub generation: i64,
    /// Digest of its module.
    pub digest: String,
    /// Since when.
    pub since: Timestamp,
}

/// How a version does at one replica.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// All of its calls that counted.
    pub calls: CallCounts,
    /// The last hundred of them.
    pub recent: CallCounts,
    /// All of its calls that were compared.
    #[serde(default)]
    pub shadow: ShadowCounts,
}

/// A version that a replica is to have ready.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    /// UID of the IPUPolicy.
    pub uid: String,
    /// The `metadata.generation` that it comes from.
    pub generation: i64,
    /// What it asks for.
    pub spec: IPUPolicySpec,
}

/// The versions that a replica which asks guests at `hooks` is to have ready: what is active, what
/// was before it, and what is to come.
pub fn wanted<'a>(policies: impl Iterator<Item = &'a IPUPolicy>, hooks: &[Hook]) -> Vec<Wanted> {
    policies
        .filter(|policy| hooks.contains(&policy.spec.hook))
        .flat_map(versions)
        .collect()
}

fn versions(policy: &IPUPolicy) -> Vec<Wanted> {
    if policy.metadata.deletion_timestamp.is_some() {
        return Vec::new();
    }
    let wanted = |generation, spec| Wanted {
        uid: policy.uid().unwrap_or_default(),
        generation,
        spec,
    };
    let status = policy.status.as_ref();
    let kept = status.map(|status| [&status.active, &status.previous]);
    let kept = kept.into_iter().flatten().flatten();
    let mut versions: Vec<Wanted> = kept
        .filter_map(|revision| Some(wanted(revision.generation, spec_of(revision)?)))
        .collect();
    let desired = policy.metadata.generation.unwrap_or_default();
    let taken_back = status.and_then(|status| status.rolled_back.as_ref());
    let is_kept = versions.iter().any(|version| version.generation == desired);
    if !is_kept && taken_back.is_none_or(|taken_back| taken_back.generation != desired) {
        versions.push(wanted(desired, policy.spec.clone()));
    }
    versions
}

/// What a version asks for. None where it was written by hand and is no spec.
pub fn spec_of(revision: &Revision) -> Option<IPUPolicySpec> {
    serde_json::from_value(Value::Object(revision.spec.clone())).ok()
}
