//! Pure: an IPUPolicy as far as this version of the operator can read it.
//!
//! Definitions are upgraded before the operator, and stay after its rollback. A policy with a value
//! of a newer version must not vanish from the active set, because the requests that it would deny
//! would then be admitted.

use std::borrow::Cow;

use ipu_api::ipupolicy::{IPUPolicy, IPUPolicySpec, IPUPolicyStatus, Mode, ModuleSource, Revision};
use ipu_text::sanitize;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

/// Longest reason, in bytes.
const REASON: usize = 512;

/// An IPUPolicy of a hook that this version knows.
#[derive(Clone, Debug)]
pub struct ObservedPolicy {
    /// The policy. Of an unreadable spec it has the fields that decide when the guest is called and
    /// what a missing answer means.
    pub policy: IPUPolicy,
    /// Reason why the spec is unreadable.
    pub unreadable: Option<String>,
}

impl ObservedPolicy {
    /// Whether this version cannot read the spec or the active version.
    pub fn is_unreadable(&self) -> bool {
        let status = self.policy.status.as_ref();
        let active = status.and_then(|status| status.active.as_ref());
        self.unreadable.is_some()
            || active.is_some_and(|revision| read_spec(&revision.spec).is_err())
    }
}

impl From<IPUPolicy> for ObservedPolicy {
    fn from(policy: IPUPolicy) -> Self {
        Self {
            policy,
            unreadable: None,
        }
    }
}

/// An IPUPolicy of a hook that this version does not know.
#[derive(Clone, Debug)]
pub struct UnknownHook {
    /// Its metadata.
    pub metadata: ObjectMeta,
    /// Its status.
    pub status: Value,
    /// Reason why its spec is unreadable.
    pub reason: String,
}

/// An IPUPolicy in the cache of the watch.
#[derive(Clone, Debug)]
pub enum WatchedPolicy {
    /// Of a hook that this version knows.
    Known(Box<ObservedPolicy>),
    /// Of another hook.
    Unknown(Box<UnknownHook>),
}

impl<'de> Deserialize<'de> for WatchedPolicy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Parts {
            #[serde(default)]
            metadata: ObjectMeta,
            #[serde(default)]
            spec: Value,
            #[serde(default)]
            status: Value,
        }
        let Parts {
            metadata,
            spec,
            status,
        } = Parts::deserialize(deserializer)?;
        // An object without a spec must not make the list unreadable, which contains all others.
        let fields = match spec {
            Value::Object(fields) => fields,
            _ => Map::new(),
        };
        let (spec, unreadable) = match read_spec(&fields) {
            Ok(spec) => (Some(spec), None),
            Err(reason) => (partial_spec(&fields), Some(reason)),
        };
        Ok(match spec {
            Some(spec) => Self::Known(Box::new(ObservedPolicy {
                policy: IPUPolicy {
                    metadata,
                    spec,
                    status: read_status(status),
                },
                unreadable,
            })),
            None => Self::Unknown(Box::new(UnknownHook {
                metadata,
                status,
                reason: unreadable.unwrap_or_default(),
            })),
        })
    }
}

impl Resource for WatchedPolicy {
    type DynamicType = ();
    type Scope = <IPUPolicy as Resource>::Scope;

    fn kind(dynamic: &()) -> Cow<'_, str> {
        IPUPolicy::kind(dynamic)
    }

    fn group(dynamic: &()) -> Cow<'_, str> {
        IPUPolicy::group(dynamic)
    }

    fn version(dynamic: &()) -> Cow<'_, str> {
        IPUPolicy::version(dynamic)
    }

    fn plural(dynamic: &()) -> Cow<'_, str> {
        IPUPolicy::plural(dynamic)
    }

    fn meta(&self) -> &ObjectMeta {
        match self {
            Self::Known(known) => &known.policy.metadata,
            Self::Unknown(unknown) => &unknown.metadata,
        }
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        match self {
            Self::Known(known) => &mut known.policy.metadata,
            Self::Unknown(unknown) => &mut unknown.metadata,
        }
    }
}

/// Parses a spec. Returns why this version cannot read it.
pub fn read_spec(spec: &Map<String, Value>) -> Result<IPUPolicySpec, String> {
    let read = serde_path_to_error::deserialize(Value::Object(spec.clone()));
    read.map_err(|error| {
        let reason = format!(
            "this version of the operator cannot read spec.{}: {}",
            error.path(),
            error.inner()
        );
        sanitize(&reason, REASON)
    })
}

/// Reads each of the fields that decide when a guest is called, and what a missing answer means.
/// `None` if the hook is none of this version.
pub fn partial_spec(spec: &Map<String, Value>) -> Option<IPUPolicySpec> {
    let hook = field(spec, "hook")?;
    // A policy without a readable `match` selects every request: `onError` decides about too many
    // rather than too few.
    let mode = field(spec, "mode").unwrap_or(Mode::Enforce);
    Some(IPUPolicySpec {
        hook,
        module: ModuleSource::default(),
        settings: None,
        mode,
        order: field(spec, "order").unwrap_or_default(),
        replaces: field(spec, "replaces"),
        match_: field(spec, "match"),
        limits: None,
        on_error: field(spec, "onError"),
        until_active: field(spec, "untilActive"),
        shadow: None,
        rollback: None,
    })
}

/// Reads a status. One with a value of a newer version still has the active version.
fn read_status(status: Value) -> Option<IPUPolicyStatus> {
    let fields = status.as_object()?;
    let (active, previous) = (
        field::<Revision>(fields, "active"),
        field::<Revision>(fields, "previous"),
    );
    let rolled_back = field(fields, "rolledBack");
    let whole = serde_json::from_value(status);
    Some(whole.unwrap_or_else(|_| IPUPolicyStatus {
        active,
        previous,
        rolled_back,
        ..IPUPolicyStatus::default()
    }))
}

fn field<T: DeserializeOwned>(fields: &Map<String, Value>, name: &str) -> Option<T> {
    let value = fields.get(name)?;
    serde_json::from_value(value.clone()).ok()
}

#[cfg(test)]
mod tests {
    use ipu_api::ipupolicy::{OnError, PolicyPhase};
    use serde_json::json;

    use super::*;

    fn watched(spec: &Value, status: &Value) -> WatchedPolicy {
        serde_json::from_value(json!({
            "apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUPolicy",
            "metadata": {"name": "mine"}, "spec": spec, "status": status,
        }))
        .unwrap()
    }

    fn known(spec: &Value, status: &Value) -> ObservedPolicy {
        match watched(spec, status) {
            WatchedPolicy::Known(known) => *known,
            WatchedPolicy::Unknown(unknown) => panic!("{unknown:?}"),
        }
    }

    fn spec(changed: &Value) -> Value {
        let mut spec = json!({"hook": "Validation", "module": {"image": {"file": "x.wasm"}}});
        json_patch::merge(&mut spec, changed);
        spec
    }

    #[test]
    fn a_readable_policy_is_read_whole() {
        let observed = known(&spec(&json!({"order": 3})), &Value::Null);
        assert_eq!((observed.policy.spec.order, observed.unreadable), (3, None));
        assert_eq!(observed.policy.status, None);
    }

    #[test]
    fn an_unreadable_field_leaves_what_decides_about_a_missing_answer() {
        let selector = json!({"namespaceSelector": {"matchLabels": {"tier": "gold"}}});
        let observed = known(
            &spec(&json!({"mode": "Audit", "onError": "Ignore", "match": selector, "order": 7})),
            &Value::Null,
        );
        let reason = observed.unreadable.unwrap();
        assert!(reason.contains("cannot read spec.mode"), "{reason}");
        assert!(reason.contains("`Audit`"), "{reason}");
        let read = observed.policy.spec;
        assert_eq!((read.mode, read.order), (Mode::Enforce, 7));
        assert_eq!(read.on_error(), OnError::Ignore);
        assert!(read.match_.unwrap().namespace_selector.is_some());
    }

    #[test]
    fn an_unreadable_on_error_and_match_are_the_strictest() {
        let changed = json!({"onError": "Retry", "match": {"matchConditions": 7}});
        let read = known(&spec(&changed), &Value::Null).policy.spec;
        assert_eq!((read.on_error(), read.match_), (OnError::Fail, None));
        let shadow = json!({"mode": "Shadow", "onError": "Retry"});
        assert_eq!(
            known(&spec(&shadow), &Value::Null).policy.spec.mode,
            Mode::Shadow
        );
    }

    #[test]
    fn a_status_of_a_newer_version_keeps_its_active_version() {
        let active = json!({
            "generation": 4, "digest": "sha256:1", "since": "2026-01-01T12:00:00Z",
            "spec": spec(&json!({})),
        });
        let status = json!({"phase": "Paused", "observedGeneration": 4, "active": active});
        let status = known(&spec(&json!({})), &status).policy.status.unwrap();
        assert_eq!(status.active.unwrap().generation, 4);
        assert_eq!(status.phase, PolicyPhase::Loading);
    }

    #[test]
    fn policy_without_a_spec_hides_no_other() {
        for spec in [Value::Null, json!(7), json!({})] {
            let WatchedPolicy::Unknown(unknown) = watched(&spec, &Value::Null) else {
                panic!("{spec} has a hook");
            };
            assert!(unknown.reason.contains("hook"), "{}", unknown.reason);
        }
    }

    #[test]
    fn a_policy_of_an_unknown_hook_keeps_its_status() {
        let status = json!({"phase": "Active"});
        let WatchedPolicy::Unknown(unknown) =
            watched(&spec(&json!({"hook": "Preemption"})), &status)
        else {
            panic!("the hook is known");
        };
        assert_eq!(unknown.status, json!({"phase": "Active"}));
        assert!(
            unknown.reason.contains("cannot read spec.hook"),
            "{}",
            unknown.reason
        );
    }
}
