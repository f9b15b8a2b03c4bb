//! IPUPolicy: a WebAssembly guest that decides in the place of a built-in one, or beside it.

mod hook;
mod module;

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, Time};
use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use self::hook::Hook;
pub use self::module::{
    ConfigMapModule, ImageModule, KeyOf, ModuleSource, OciModule, PemSource, RequiredSignature,
    SecretName,
};

/// How the built-in guest of a hook is called where an IPUPolicy speaks of it. No IPUPolicy may have
/// this name.
pub const BUILT_IN: &str = "built-in";

/// What an admin wants a guest to decide, and where the guest comes from.
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
    doc = "A WebAssembly guest that decides in the place of a built-in one, or beside it.",
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
    /// Where it decides; cannot change.
    pub hook: Hook,
    /// Where its module comes from.
    pub module: ModuleSource,
    /// Given to the guest with each request, as JSON, once it has accepted them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "any_object")]
    pub settings: Option<Map<String, Value>>,
    /// Whether its answers count.
    #[serde(default)]
    pub mode: Mode,
    /// Its place in a chain of guests: lower ones are asked first, the built-in one stands at 0.
    #[serde(default)]
    #[schemars(range(min = -1000, max = 1000))]
    pub order: i32,
    /// In whose place it decides: another IPUPolicy of the same hook, or `built-in`. Missing: beside
    /// all others for Defaulting and Validation, in the place of the built-in one for Placement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub replaces: Option<String>,
    /// Which requests it is asked about; missing: all.
    #[serde(default, rename = "match", skip_serializing_if = "Option::is_none")]
    pub match_: Option<Match>,
    /// How much one call may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<PolicyLimits>,
    /// What happens where the guest gives no answer. By default Fail, and Fallback for Placement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_error: Option<OnError>,
    /// How it is tried where `mode` is Shadow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shadow: Option<ShadowOptions>,
    /// When the version before takes over again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollback: Option<RollbackOptions>,
}

/// Whether the answers of a guest count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Mode {
    /// They do.
    #[default]
    Enforce,
    /// They are compared with those that count, and nothing else.
    Shadow,
}

/// Which requests a guest is asked about: those that everything here agrees to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Match {
    /// Labels of the namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<LabelSelector>,
    /// Labels of the IPUJob; not for Placement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object_selector: Option<LabelSelector>,
    /// CEL expressions over `object`, `oldObject` and `request`, as in Kubernetes' own webhooks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub match_conditions: Vec<MatchCondition>,
}

/// A CEL expression that must be true.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MatchCondition {
    /// By which messages name it.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// The expression.
    #[schemars(length(min = 1, max = 1024))]
    pub expression: String,
}

/// How much one call may take; what is missing is as for the built-in guests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyLimits {
    /// Longest time of a call, in milliseconds; by default 1,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 10, max = 5000))]
    pub deadline_milliseconds: Option<u32>,
    /// Most memory of an instance, in MiB; by default 32.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 32))]
    pub memory_mebibytes: Option<u32>,
    /// Largest answer, in KiB of text; by default 4,096.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 4096))]
    pub output_kibibytes: Option<u32>,
}

/// What happens where a guest gives no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OnError {
    /// The request is refused for now.
    Fail,
    /// The request goes on as if the guest was not there.
    Ignore,
    /// The built-in guest decides.
    Fallback,
}

/// How a guest is tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ShadowOptions {
    /// Share of the requests, in percent, chosen by a hash of the request; by default 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub share_percent: Option<u32>,
    /// When its answers begin to count by themselves; missing: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promote_after: Option<PromoteAfter>,
}

/// When the answers of a tried guest begin to count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PromoteAfter {
    /// After so many answers that were equal to those that counted, with none that differed.
    #[schemars(range(min = 1))]
    pub equal: i64,
}

/// When the version before takes over again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RollbackOptions {
    /// Share of failed calls, in percent of the last 100 of each replica; by default 10.
    #[schemars(range(min = 1, max = 100))]
    #[serde(default = "RollbackOptions::failures_percent")]
    pub failures_percent: u32,
    /// Calls before the share is looked at; by default 10.
    #[schemars(range(min = 1, max = 100))]
    #[serde(default = "RollbackOptions::minimum_calls")]
    pub minimum_calls: u32,
}

/// What became of a policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IPUPolicyStatus {
    /// Where it stands.
    #[serde(default)]
    pub phase: PolicyPhase,
    /// Why, in a sentence.
    #[serde(default)]
    pub message: String,
    /// The `metadata.generation` that this speaks of.
    #[serde(default)]
    pub observed_generation: i64,
    /// Digest of the module that `spec` asks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub desired_digest: Option<String>,
    /// Digest of the active module: the one that every replica is to ask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_digest: Option<String>,
    /// Since when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// The version that every replica is to ask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active: Option<Revision>,
    /// The version before it, which takes over again where this one fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<Revision>,
    /// The version that was taken back last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rolled_back: Option<RolledBack>,
    /// How often the active version was asked, by all replicas that live.
    #[serde(default)]
    pub calls: CallCounts,
    /// How its answers compare with those that count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shadow: Option<ShadowCounts>,
    /// What each replica says.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replicas: Vec<ReplicaStatus>,
    /// `Ready`: whether what `spec` asks for is what every replica asks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// Where a policy stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PolicyPhase {
    /// Not every replica has it ready; the version before stays active.
    #[default]
    Loading,
    /// Its answers count.
    Active,
    /// Its answers are compared with those that count.
    Shadow,
    /// It is not asked, for the reason in `message`; the version before stays active.
    Refused,
    /// It failed too often, and the version before it decides again.
    RolledBack,
    /// Another policy decides in its place, and it is ready to take over again.
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
    /// Since when every replica is to ask it.
    pub since: Time,
    /// Whether its answers count although its mode is Shadow.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub promoted: bool,
    /// The `spec` that it came from.
    #[schemars(schema_with = "any_object")]
    pub spec: Map<String, Value>,
}

/// A version that was taken back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RolledBack {
    /// The `metadata.generation` that it came from.
    pub generation: i64,
    /// Digest of its module.
    pub digest: String,
    /// Why.
    pub reason: String,
    /// When.
    pub at: Time,
}

/// How often a guest was asked, and what came of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CallCounts {
    /// Answers.
    pub answered: i64,
    /// Calls without an answer that could be used: traps, late or too large answers, nonsense.
    pub failed: i64,
}

/// How the answers of a tried guest compare with those that count.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ShadowCounts {
    /// Equal answers.
    pub equal: i64,
    /// Different ones.
    pub different: i64,
    /// Calls without an answer.
    pub failed: i64,
    /// Requests that it was not asked about, because too many were under way.
    pub skipped: i64,
    /// Some of the differences, without what users wrote.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub samples: Vec<String>,
}

/// What one replica says of a policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReplicaStatus {
    /// Name of its Pod.
    pub name: String,
    /// Digest of the module that it asks; missing where it asks none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// Since when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// What keeps it from what it is to ask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

impl IPUPolicySpec {
    /// What happens where the guest gives no answer.
    pub fn on_error(&self) -> OnError {
        self.on_error.unwrap_or(match self.hook {
            Hook::Defaulting | Hook::Validation => OnError::Fail,
            Hook::Placement => OnError::Fallback,
        })
    }

    /// Returns the guest that it replaces. `None`: it gets a stage of its own.
    pub fn replaced_guest(&self) -> Option<&str> {
        let built_in = (self.hook == Hook::Placement).then_some(BUILT_IN);
        self.replaces.as_deref().or(built_in)
    }
}

impl RollbackOptions {
    fn failures_percent() -> u32 {
        10
    }

    fn minimum_calls() -> u32 {
        10
    }
}

impl Default for RollbackOptions {
    fn default() -> Self {
        Self {
            failures_percent: Self::failures_percent(),
            minimum_calls: Self::minimum_calls(),
        }
    }
}

/// Labels as selectors see them.
pub type Labels = BTreeMap<String, String>;

fn any_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}
