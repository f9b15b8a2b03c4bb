//! IPUPolicy: a WebAssembly guest that decides instead of a built-in one, or in addition to it.

mod existing;
mod hook;
mod module;
mod rollback;

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, Time};
use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use self::existing::{ExistingObjects, RefusedObject};
pub use self::hook::Hook;
pub use self::module::{
    ConfigMapModule, ImageModule, KeyOf, ModuleSource, OciModule, PemSource, RequiredSignature,
    SecretName,
};

pub use self::rollback::{RollbackOptions, RollbackWhen};

/// Name of the built-in guest of a hook in an IPUPolicy. No IPUPolicy may have this name.
pub const BUILT_IN: &str = "built-in";

/// The decision that a guest takes, and the source of the guest.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "graphcore.ai",
    version = "v1alpha1",
    kind = "IPUPolicy",
    plural = "ipupolicies",
    singular = "ipupolicy",
    shortname = "ipupol",
    status = "IPUPolicyStatus",
    derive = "PartialEq",
    doc = "A WebAssembly guest that decides instead of a built-in one, or in addition to it.",
    printcolumn(name = "Hook", type_ = "string", json_path = ".spec.hook"),
    printcolumn(name = "Mode", type_ = "string", json_path = ".spec.mode"),
    printcolumn(name = "Order", type_ = "integer", json_path = ".spec.order"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(
        name = "Digest",
        type_ = "string",
        json_path = ".status.activeDigest",
        priority = 1
    ),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.message"),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct IPUPolicySpec {
    /// The decision that the guest takes. Immutable.
    pub hook: Hook,
    /// Source of the guest's module.
    pub module: ModuleSource,
    /// Settings of the guest. It receives them as JSON with each request, after it has accepted
    /// them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "any_object")]
    pub settings: Option<Map<String, Value>>,
    /// Whether the operator uses the guest's answers (`Enforce`) or only compares them (`Shadow`).
    #[serde(default)]
    pub mode: Mode,
    /// Position in the chain of guests of its hook: lower numbers are called first. The built-in
    /// guest has 0, and precedes the others of that number; these are called in the order of their
    /// names.
    #[serde(default)]
    #[schemars(range(min = -1000, max = 1000))]
    pub order: i32,
    /// The guest that it replaces: another IPUPolicy of the same hook, or `built-in`. Missing: for
    /// Defaulting and Validation it is called in addition to all others, for Placement it replaces
    /// the built-in guest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub replaces: Option<String>,
    /// The requests that the guest is called for. Missing: all.
    #[serde(default, rename = "match", skip_serializing_if = "Option::is_none")]
    pub match_: Option<Match>,
    /// Limits of one call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<PolicyLimits>,
    /// Reaction to a guest without a valid answer. Missing: Fail, and Fallback for Placement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_error: Option<OnError>,
    /// What becomes of matching requests before the first version is active. Only for Validation.
    /// Missing: Ignore.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_active: Option<UntilActive>,
    /// Options of mode Shadow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shadow: Option<ShadowOptions>,
    /// Condition for the return to the previous version. Missing: the defaults of its fields; for
    /// Validation with onError Fail, never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollback: Option<RollbackOptions>,
}

/// Whether the operator uses the answers of a guest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Mode {
    /// It uses them.
    #[default]
    Enforce,
    /// It only compares them with the answers that it uses.
    Shadow,
}

/// The requests that a guest is called for: those that match all of these conditions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Match {
    /// Selects namespaces by their labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<LabelSelector>,
    /// Selects IPUJobs and native Pods by their labels: at an update, by the previous or the new
    /// ones. Not for Placement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object_selector: Option<LabelSelector>,
    /// CEL expressions over `object`, `oldObject`, `request` and `namespaceObject`, as in the
    /// webhook configurations of Kubernetes. The operator refuses a policy whose expressions name
    /// anything else.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub match_conditions: Vec<MatchCondition>,
}

/// A CEL expression that must be true.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MatchCondition {
    /// Name of the condition in messages.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// The expression.
    #[schemars(length(min = 1, max = 1024))]
    pub expression: String,
}

/// Limits of one call. A missing limit is that of the built-in guests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyLimits {
    /// Longest time of a call, in milliseconds. Missing: 1,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 10, max = 5000))]
    pub deadline_milliseconds: Option<u32>,
    /// Most memory of an instance, in MiB. Missing: 32.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 32))]
    pub memory_mebibytes: Option<u32>,
    /// Largest answer, in KiB of text. Missing: 4,096.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 4096))]
    pub output_kibibytes: Option<u32>,
}

/// Reaction to a guest without a valid answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OnError {
    /// The request is refused, and can be repeated.
    Fail,
    /// The request continues without the guest.
    Ignore,
    /// The built-in guest decides.
    Fallback,
    /// The request for a partition waits, and the operator calls the guest again.
    Wait,
}

/// What becomes of the requests that match a new policy, until its first version is active.
/// Missing: Ignore.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum UntilActive {
    /// They continue without the guest.
    Ignore,
    /// They are refused, and can be repeated.
    Wait,
}

/// Options of mode Shadow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ShadowOptions {
    /// Percentage of the requests that the guest is called for, chosen by a hash of the request.
    /// Missing: 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub share_percent: Option<u32>,
    /// Condition for the promotion of the guest, whose answers are used from then on. Missing:
    /// never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promote_after: Option<PromoteAfter>,
}

/// Condition for the promotion of a guest in mode Shadow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PromoteAfter {
    /// Number of answers equal to those that the operator used, without a different one between
    /// them.
    #[schemars(range(min = 1))]
    pub equal: i64,
}

/// State of a policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IPUPolicyStatus {
    /// Phase of the policy.
    #[serde(default)]
    pub phase: PolicyPhase,
    /// Reason for the phase, in a sentence.
    #[serde(default)]
    pub message: String,
    /// The `metadata.generation` that this status describes.
    #[serde(default)]
    pub observed_generation: i64,
    /// Digest of the module in `spec`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub desired_digest: Option<String>,
    /// Digest of the active module, which every replica should call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_digest: Option<String>,
    /// Time since which that module has been active.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// The active version, which every replica should call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active: Option<Revision>,
    /// The previous version, which becomes active again if the active one fails in the time of
    /// `spec.rollback`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<Revision>,
    /// The version that was rolled back last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rolled_back: Option<RolledBack>,
    /// Calls of the active version by all running replicas.
    #[serde(default)]
    pub calls: CallCounts,
    /// Comparison of its answers with those that the operator uses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shadow: Option<ShadowCounts>,
    /// Of a Validation policy in mode Shadow: the existing objects that its guest would refuse.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub existing: Option<ExistingObjects>,
    /// State of the policy on each replica.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replicas: Vec<ReplicaStatus>,
    /// Conditions: `Ready` is true if every replica calls the version in `spec`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// Phase of a policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PolicyPhase {
    /// Not every replica is ready to call it. The previous version stays active.
    #[default]
    Loading,
    /// The operator uses its answers.
    Active,
    /// The operator compares its answers with those that it uses.
    Shadow,
    /// It is not called, for the reason in `message`. The previous version stays active, unless the
    /// keys that signed it were removed.
    Refused,
    /// It failed too often, and the previous version is active again.
    RolledBack,
    /// Another policy replaces it. It stays ready to become active again.
    Replaced,
}

/// One version of a policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Revision {
    /// The `metadata.generation` that it came from.
    pub generation: i64,
    /// Digest of its module.
    pub digest: String,
    /// Time since which it has been active.
    pub since: Time,
    /// Whether the operator uses its answers although its mode is Shadow.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub promoted: bool,
    /// The `spec` that it came from.
    #[schemars(schema_with = "any_object")]
    pub spec: Map<String, Value>,
}

/// A version that was rolled back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RolledBack {
    /// The `metadata.generation` that it came from.
    pub generation: i64,
    /// Digest of its module.
    pub digest: String,
    /// Reason for the rollback.
    pub reason: String,
    /// Time of the rollback.
    pub at: Time,
}

/// Calls of a guest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CallCounts {
    /// Calls with a valid answer.
    pub answered: i64,
    /// Calls without a valid answer: traps, and answers that are late, too large or malformed.
    pub failed: i64,
}

/// Comparison of the answers of a guest in mode Shadow with those that the operator uses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ShadowCounts {
    /// Number of equal answers.
    pub equal: i64,
    /// Number of different answers.
    pub different: i64,
    /// Calls without a valid answer.
    pub failed: i64,
    /// Requests without a call, because too many calls were in progress.
    pub skipped: i64,
    /// Examples of differences, without text of users.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub samples: Vec<String>,
}

/// State of a policy on one replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReplicaStatus {
    /// Name of its Pod.
    pub name: String,
    /// Digest of the module that it calls. Missing: it calls none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// Time since which it has called that module.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// Reason why it cannot call the active version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

impl IPUPolicySpec {
    /// Returns the reaction to a guest without a valid answer.
    pub fn on_error(&self) -> OnError {
        self.on_error.unwrap_or(match self.hook {
            Hook::Defaulting | Hook::Validation => OnError::Fail,
            Hook::Placement => OnError::Fallback,
        })
    }

    /// Whether the requests that it matches wait until its first version is active. Nobody waits
    /// for a shadow.
    pub fn makes_wait(&self) -> bool {
        self.until_active == Some(UntilActive::Wait)
            && self.hook == Hook::Validation
            && self.mode == Mode::Enforce
    }

    /// Returns the guest that it replaces. `None`: it gets a stage of its own.
    pub fn replaced_guest(&self) -> Option<&str> {
        let built_in = (self.hook == Hook::Placement).then_some(BUILT_IN);
        self.replaces.as_deref().or(built_in)
    }
}

/// Labels as selectors see them.
pub type Labels = BTreeMap<String, String>;

fn any_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}
