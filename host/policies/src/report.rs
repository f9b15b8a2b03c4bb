//! Pure: the report of a replica on its policies, and the versions that it must prepare.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use kube::ResourceExt;
use serde::{Deserialize, Serialize};

use ipu_api::ipupolicy::{CallCounts, Hook, IPUPolicySpec, ModuleSource, Revision, ShadowCounts};
use ipu_api::labels::RETRY_ANNOTATION;

use super::observed_policy::{ObservedPolicy, read_spec};

/// The report of one replica on all policies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Name of its Pod.
    pub replica: String,
    /// The hooks at which it calls guests.
    pub hooks: Vec<Hook>,
    /// The readiness of each policy, by UID.
    #[serde(default)]
    pub policies: BTreeMap<String, Readiness>,
}

/// The readiness of one policy at one replica.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Readiness {
    /// Generations that are ready to serve, and the digest of each.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub prepared: BTreeMap<i64, String>,
    /// Reason why a generation is not ready.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub problems: BTreeMap<i64, Problem>,
    /// The version that it serves with.
    #[serde(default, rename = "asks", skip_serializing_if = "Option::is_none")]
    pub serving: Option<Serving>,
    /// Results of the calls of that version.
    #[serde(default)]
    pub counts: Counts,
}

/// Reason why a version is not ready.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// The reason, as a sentence.
    pub reason: String,
    /// Whether the replica refuses the version; otherwise it tries again.
    pub is_final: bool,
}

/// The version that a replica serves with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Serving {
    /// The `metadata.generation` of the version.
    pub generation: i64,
    /// Digest of its module.
    pub digest: String,
    /// Time of its first use.
    pub since: Timestamp,
}

/// Results of the calls of one version at one replica.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// All enforced calls.
    pub calls: CallCounts,
    /// The last hundred of them, by which the operator decides on a rollback.
    pub recent: CallCounts,
    /// The first namespaces of the failed ones of these.
    #[serde(
        default,
        rename = "failingNamespaces",
        skip_serializing_if = "BTreeSet::is_empty"
    )]
    pub failing_namespaces: BTreeSet<String>,
    /// Digests of the names of the first users of the failed ones.
    #[serde(
        default,
        rename = "failingUsers",
        skip_serializing_if = "BTreeSet::is_empty"
    )]
    pub failing_users: BTreeSet<String>,
    /// All calls in shadow mode.
    #[serde(default)]
    pub shadow: ShadowCounts,
}

/// A version that a replica must prepare.
#[derive(Clone, Debug, PartialEq)]
pub struct DesiredVersion {
    /// UID of the IPUPolicy.
    pub uid: String,
    /// The `metadata.generation` of the version.
    pub generation: i64,
    /// The `spec` of the version, with the current keys for signatures.
    pub spec: IPUPolicySpec,
    /// The admin's last request for another attempt: the value of an annotation.
    pub retry_request: Option<String>,
}

/// Returns the versions that a replica with these hooks must prepare: the active, the previous and
/// the next version of each policy.
pub fn desired_versions<'a>(
    policies: impl Iterator<Item = &'a ObservedPolicy>,
    hooks: &[Hook],
) -> Vec<DesiredVersion> {
    policies
        .filter(|observed| hooks.contains(&observed.policy.spec.hook))
        .flat_map(versions_of)
        .collect()
}

fn versions_of(observed: &ObservedPolicy) -> Vec<DesiredVersion> {
    let policy = &observed.policy;
    if policy.metadata.deletion_timestamp.is_some() {
        return Vec::new();
    }
    let retry_request = policy.annotations().get(RETRY_ANNOTATION);
    let version = |generation, spec| DesiredVersion {
        uid: policy.uid().unwrap_or_default(),
        generation,
        spec,
        retry_request: retry_request.cloned(),
    };
    let status = policy.status.as_ref();
    let stored = status.map(|status| [&status.active, &status.previous]);
    let stored = stored.into_iter().flatten().flatten();
    let mut versions: Vec<DesiredVersion> = stored
        .filter_map(|revision| {
            let mut spec = spec_of(revision).ok()?;
            renew_keys(&mut spec.module, &policy.spec.module);
            Some(version(revision.generation, spec))
        })
        .collect();
    let desired = policy.metadata.generation.unwrap_or_default();
    let rolled_back = status.and_then(|status| status.rolled_back.as_ref());
    let is_stored = versions.iter().any(|version| version.generation == desired);
    let is_rolled_back = rolled_back.is_some_and(|rolled_back| rolled_back.generation == desired);
    if observed.unreadable.is_none() && !is_stored && !is_rolled_back {
        versions.push(version(desired, policy.spec.clone()));
    }
    versions
}

/// Replaces the keys that must have signed a stored version by the current ones. A key that the
/// admin has removed from the policy no longer counts, whatever it signed before.
fn renew_keys(stored: &mut ModuleSource, current: &ModuleSource) {
    let current = current.oci.as_ref().and_then(|oci| oci.signature.as_ref());
    let stored = stored.oci.as_mut().and_then(|oci| oci.signature.as_mut());
    if let (Some(stored), Some(current)) = (stored, current) {
        stored.clone_from(current);
    }
}

/// Parses the spec of a revision. Returns why this version cannot read it: a newer version wrote
/// it, or someone edited it by hand.
pub fn spec_of(revision: &Revision) -> Result<IPUPolicySpec, String> {
    read_spec(&revision.spec)
}

impl Readiness {
    /// Returns the generation that the replica serves with.
    pub fn serving_generation(&self) -> Option<i64> {
        self.serving.as_ref().map(|serving| serving.generation)
    }
}

#[cfg(test)]
mod tests {
    use ipu_api::ipupolicy::IPUPolicy;
    use serde_json::{Value, json};

    use super::*;

    fn spec(signature: &Value) -> Value {
        let oci = json!({"reference": "r.io/a:1", "signature": signature});
        json!({"hook": "Validation", "module": {"oci": oci}})
    }

    /// Returns the keys of the active version and of the desired one.
    fn keys(active: &Value, desired: &Value) -> Vec<Value> {
        let policy: IPUPolicy = serde_json::from_value(json!({
            "apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUPolicy",
            "metadata": {"name": "mine", "uid": "u", "generation": 2},
            "spec": desired,
            "status": {"active": {
                "generation": 1, "digest": "sha256:1", "since": "2026-01-01T12:00:00Z", "spec": active,
            }},
        }))
        .unwrap();
        let versions = versions_of(&ObservedPolicy::from(policy));
        let keys = versions.into_iter().map(|version| {
            let signature = version.spec.module.oci.and_then(|oci| oci.signature);
            serde_json::to_value(signature).unwrap()
        });
        keys.collect()
    }

    #[test]
    fn the_current_keys_count_for_a_stored_version() {
        let (first, second) = (
            json!({"keys": [{"pem": "first"}]}),
            json!({"keys": [{"pem": "second"}]}),
        );
        let changed = keys(&spec(&first), &spec(&second));
        assert_eq!(changed, [second.clone(), second.clone()]);
        // Who adds keys does not stop the version that decides, and who removes all requires none.
        let none = Value::Null;
        let added = keys(&spec(&none), &spec(&second));
        assert_eq!(added, [none.clone(), second]);
        let unsigned = json!({"hook": "Validation", "module": {"image": {"file": "x.wasm"}}});
        assert_eq!(keys(&spec(&first), &unsigned), [first, none]);
    }
}
