//! Pure: what the operator asks of its policies and what they answer, as plain values.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use ipu_api::ipupolicy::Hook;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use super::facts::PlaceFacts;

/// One of the three places where a policy decides. Each holds exactly one module at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Slot {
    /// Sets what the user of an IPUJob left open.
    Defaulting,
    /// Says what is wrong with an IPUJob.
    Validation,
    /// Decides on which V-IPU controller a partition is made.
    Placement,
}

impl Slot {
    /// Every slot.
    pub const ALL: [Self; 3] = [Self::Defaulting, Self::Validation, Self::Placement];

    /// Name of the slot's file in the guests' folder and in the policies' folder.
    pub const fn file_name(self) -> &'static str {
        match self {
            Self::Defaulting => "defaulting.wasm",
            Self::Validation => "validation.wasm",
            Self::Placement => "serial-walk.wasm",
        }
    }

    /// Name of the world in package `ipu:policy` that a module of this slot implements.
    pub const fn world(self) -> &'static str {
        match self {
            Self::Defaulting => "defaulting",
            Self::Validation => "validation",
            Self::Placement => "placement",
        }
    }

    /// The slot whose world has this name.
    pub fn of_world(world: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|slot| slot.world() == world)
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.world())
    }
}

/// SHA-256 of a module's file, as `sha256:` and 64 hexadecimal digits. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ModuleDigest(Arc<str>);

impl Serialize for ModuleDigest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for ModuleDigest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::new)
    }
}

impl ModuleDigest {
    /// The digest that is written like this.
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// `sha256:` and 64 hexadecimal digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ModuleDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An answer, and the module that gave it: one request is served wholly by one module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served<T> {
    /// What was answered.
    pub answer: T,
    /// Which module answered.
    pub digest: ModuleDigest,
}

/// What is being done to an object in an admission request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    /// It is being made.
    #[serde(alias = "CREATE")]
    Create,
    /// It is being changed.
    #[serde(alias = "UPDATE")]
    Update,
}

/// An object with what its user left open.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Defaulted {
    /// The whole object as it should be; not yet compared with what came in.
    pub object: Value,
    /// Sentences for the user.
    pub warnings: Vec<String>,
}

/// What a defaulting policy makes of an object.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Defaulting {
    /// The object as it should be.
    Defaulted(Defaulted),
    /// The object is refused.
    Refused {
        /// Every rule that it breaks; at least one.
        violations: Vec<Violation>,
    },
}

impl Defaulting {
    /// The object as it should be; none where it is refused.
    pub fn defaulted(self) -> Option<Defaulted> {
        match self {
            Self::Defaulted(defaulted) => Some(defaulted),
            Self::Refused { .. } => None,
        }
    }
}

/// One rule that an object breaks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Violation {
    /// Path of the field, such as `spec.ipusPerJobInstance`.
    pub field: String,
    /// The value that was found, the rule, and what to do.
    pub message: String,
}

/// The answer of a validation policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Verdict {
    /// Every rule that is broken; none means that the object is admitted.
    pub violations: Vec<Violation>,
    /// Sentences for the user.
    pub warnings: Vec<String>,
}

/// The partition that is wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PlaceRequest {
    /// Namespace of the owner.
    pub namespace: String,
    /// Name of the owner, an IPUJob for example.
    pub owner: String,
    /// Which of the owner's partitions this is, from 0.
    #[serde(default)]
    pub slot: u32,
    /// IPUs wanted: a power of two.
    pub ipus: u32,
    /// GCDs wanted: how many Pods share the partition.
    pub gcds: u32,
    /// Node labels that the owner's Pods ask for.
    #[serde(default)]
    pub node_selector: BTreeMap<String, String>,
    /// What else a policy may know.
    #[serde(default)]
    pub facts: PlaceFacts,
}

/// A V-IPU controller as the host last saw it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ControllerView {
    /// `host:port`; the name by which a decision refers to it.
    pub name: String,
    /// Key of the label of the nodes that reach it.
    #[serde(default)]
    pub label_key: String,
    /// Value of that label.
    #[serde(default)]
    pub label_value: String,
    /// Whether a node carries that label now; true where that is not known.
    #[serde(default = "not_known")]
    pub has_nodes: bool,
    /// Why the controller does not answer; none where it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreachable: Option<String>,
    /// IPUs that it has, used or not. 0 where it has never answered.
    pub total_ipus: u32,
    /// IPUs in partitions, whoever made them.
    pub used_ipus: u32,
    /// The largest partition that could be made now: an estimate.
    pub largest_free: u32,
    /// How often a partition on it went to ERROR within the last day, as far as was seen.
    #[serde(default)]
    pub failures: u32,
}

impl ControllerView {
    /// IPUs in no partition, wherever they are.
    pub fn free_ipus(&self) -> u32 {
        self.total_ipus.saturating_sub(self.used_ipus)
    }
}

/// Whether a controller whose nodes are not known counts as one that has some.
const fn not_known() -> bool {
    true
}

/// How an earlier try of the same request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PlaceOutcome {
    /// The controller said no, and nothing of the try is left on it.
    Refused,
    /// The controller could not be reached, and nothing was asked of it.
    Unreachable,
}

/// One earlier try of the same request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlaceAttempt {
    /// Name of the controller.
    pub controller: String,
    /// How it ended.
    pub outcome: PlaceOutcome,
    /// What the controller said.
    pub reason: String,
}

/// Why one controller was passed over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PassedOver {
    /// Name of the controller.
    pub controller: String,
    /// The reason, as a user should read it.
    pub reason: String,
}

/// What is to be done next for a wanted partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Decision {
    /// Make it on the controller of this name.
    Try(String),
    /// No controller has room now.
    Wait(Vec<PassedOver>),
    /// No controller could ever serve it; the text is for the user.
    Reject(String),
}

/// The decision on a wanted partition. There always is one: where the policy fails or answers
/// nonsense, the built-in serial walk decides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Placed {
    /// What is to be done next.
    pub decision: Decision,
    /// The module that was asked; none where no module is loaded.
    pub digest: Option<ModuleDigest>,
    /// Name of the IPUPolicy whose guest was asked, or `built-in`.
    pub policy: String,
    /// Why the built-in walk decided instead of the module, for an event and the log.
    pub overruled: Option<String>,
}

impl From<Hook> for Slot {
    fn from(hook: Hook) -> Self {
        match hook {
            Hook::Defaulting => Self::Defaulting,
            Hook::Validation => Self::Validation,
            Hook::Placement => Self::Placement,
        }
    }
}
