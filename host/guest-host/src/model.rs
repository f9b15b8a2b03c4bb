//! Pure: the requests and answers of guests, as plain values.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::sync::Arc;

pub use ipu_api::ipupolicy::Hook;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::context::{PlacementContext, SizeCount};

/// Returns the file name of the built-in guest of a hook.
pub const fn built_in_file(hook: Hook) -> &'static str {
    match hook {
        Hook::Defaulting => "defaulting.wasm",
        Hook::Validation => "validation.wasm",
        Hook::Placement => "serial-walk.wasm",
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
    /// Creates a digest from its text.
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// Returns `sha256:` and 64 hexadecimal digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ModuleDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Returns the digest of a module.
pub fn digest_of(bytes: &[u8]) -> ModuleDigest {
    let mut text = String::from("sha256:");
    for byte in Sha256::digest(bytes) {
        write!(text, "{byte:02x}").expect("writing to a string cannot fail");
    }
    ModuleDigest::new(text)
}

/// An answer, and the module that gave it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served<T> {
    /// The answer.
    pub answer: T,
    /// Digest of the module.
    pub digest: ModuleDigest,
}

/// An object with its defaults.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Defaulted {
    /// The whole object, before the host compares it with the original.
    pub object: Value,
    /// Warnings for the user.
    pub warnings: Vec<String>,
}

/// The answer of a defaulting guest.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Defaulting {
    /// The object with its defaults.
    Defaulted(Defaulted),
    /// The object is refused.
    Refused {
        /// Every violation; at least one.
        violations: Vec<Violation>,
    },
}

impl Defaulting {
    /// Returns the object with its defaults. `None` if it is refused.
    pub fn defaulted(self) -> Option<Defaulted> {
        match self {
            Self::Defaulted(defaulted) => Some(defaulted),
            Self::Refused { .. } => None,
        }
    }
}

/// A violation of a rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Violation {
    /// Path of the field, such as `spec.ipusPerJobInstance`.
    pub field: String,
    /// The value, the rule and the remedy.
    pub message: String,
}

/// The answer of a validation guest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Verdict {
    /// Every violation. If empty, the object is admitted.
    pub violations: Vec<Violation>,
    /// Warnings for the user.
    pub warnings: Vec<String>,
}

/// A requested partition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PartitionRequest {
    /// Namespace of the owner.
    pub namespace: String,
    /// Name of the owner, such as an IPUJob.
    pub owner: String,
    /// Index of the partition among those of the owner, from 0.
    #[serde(default)]
    pub slot: u32,
    /// Number of IPUs: a power of two.
    pub ipus: u32,
    /// Number of GCDs: the Pods that share the partition.
    pub gcds: u32,
    /// Node selector of the owner's Pods.
    #[serde(default)]
    pub node_selector: BTreeMap<String, String>,
    /// Context of the request.
    #[serde(default, rename = "facts")]
    pub context: PlacementContext,
}

/// A V-IPU controller, as last observed.
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
    /// Whether a node has that label. If unknown, `true`.
    #[serde(default = "assume_nodes")]
    pub has_nodes: bool,
    /// Reason why the controller is unreachable. `None` if it is reachable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreachable: Option<String>,
    /// Reason why none of its nodes can run the owner's Pods now. `None` if one can, or if this is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unschedulable: Option<String>,
    /// All IPUs. 0 if it has never been reachable.
    pub total_ipus: u32,
    /// IPUs in partitions of all origins.
    pub used_ipus: u32,
    /// Size of the largest partition that can be created. It is an estimate if nobody knows the free blocks.
    pub largest_free: u32,
    /// Free blocks of IPUs by size, the largest first. Empty if nobody knows them; policies see
    /// [`ControllerView::blocks`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub free_blocks: Vec<SizeCount>,
    /// Number of observed partition failures (ERROR) in the last day.
    #[serde(default)]
    pub failures: u32,
}

impl ControllerView {
    /// Returns the number of IPUs in no partition.
    pub fn free_ipus(&self) -> u32 {
        self.total_ipus.saturating_sub(self.used_ipus)
    }
}

/// Default of [`ControllerView::has_nodes`].
const fn assume_nodes() -> bool {
    true
}

/// Result of an earlier attempt of the same request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PlaceOutcome {
    /// The controller refused it, and nothing of the attempt remains there.
    Refused,
    /// The controller was unreachable, and received nothing.
    Unreachable,
}

/// An earlier attempt of the same request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlaceAttempt {
    /// Name of the controller.
    pub controller: String,
    /// Its result.
    pub outcome: PlaceOutcome,
    /// The message of the controller.
    pub reason: String,
}

/// A controller that the guest skips.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PassedOver {
    /// Name of the controller.
    pub controller: String,
    /// The reason, for the user.
    pub reason: String,
}

/// The next step of a partition request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Decision {
    /// Create it on the controller with this name.
    Try(String),
    /// No controller has free capacity.
    Wait(Vec<PassedOver>),
    /// No controller can ever serve it. The text is for the user.
    Reject(String),
}

/// The decision on a partition request. If the guest fails or its answer is invalid, the built-in serial walk decides, or
/// the request waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Placed {
    /// The next step.
    pub decision: Decision,
    /// Digest of the called module. `None` if no module is loaded.
    pub digest: Option<ModuleDigest>,
    /// Name of the called IPUPolicy, or `built-in`.
    pub policy: String,
    /// Reason why the built-in serial walk decided instead, for an event and the log.
    pub overruled: Option<String>,
}
