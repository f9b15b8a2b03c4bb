//! Pure: the request for a partition to a placement guest, the V-IPU controllers that it sees, and
//! the decision.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::digest::ModuleDigest;
use super::namespace::{NamespaceContext, Usage};

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

/// Context of a placement request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PlacementContext {
    /// The owner of the partition.
    pub owner: Owner,
    /// Context of the namespace. Its usage excludes the requested partition.
    pub namespace: NamespaceContext,
    /// IPU usage of other namespaces, by name, at most
    /// [`OTHERS_MAX`](super::namespace::OTHERS_MAX).
    pub others: BTreeMap<String, Usage>,
    /// The other waiting partitions by size, the largest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waiting: Vec<SizeCount>,
    /// Options of the partition.
    pub options: Options,
    /// Progress of the request.
    pub progress: Progress,
}

/// The owner of a partition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Owner {
    /// Such as `graphcore.ai/v1alpha1`.
    pub api_version: String,
    /// Such as `IPUJob`.
    pub kind: String,
    /// Its labels when it asked, at most [`PAIRS_MAX`](crate::owner_metadata::PAIRS_MAX).
    pub labels: BTreeMap<String, String>,
    /// Its annotations when it asked, as many, each of at most
    /// [`ANNOTATION_MAX`](crate::owner_metadata::ANNOTATION_MAX) bytes.
    pub annotations: BTreeMap<String, String>,
    /// PriorityClass of its Pods.
    pub priority_class: Option<String>,
}

/// Options of a partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Options {
    /// The gang of the partition.
    pub gang: Option<Gang>,
    /// Model replicas over all GCDs.
    pub replicas: Option<u32>,
    /// Whether it can be reconfigured.
    pub reconfigurable: bool,
    /// Whether it can be relocated to other IPUs.
    pub relocatable: bool,
    /// Whether it stays until its owner releases it.
    pub pinned: bool,
}

/// A gang: partitions of one owner that are useful only together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gang {
    /// Number of partitions.
    pub size: u32,
    /// Number of partitions that exist or are being created.
    pub held: u32,
}

/// Progress of a partition request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Progress {
    /// Whether the request is a dry run.
    pub dry_run: bool,
    /// Whether an earlier decision was to wait.
    pub asked_before: bool,
    /// Whether an earlier partition of it was lost.
    pub placed_before: bool,
    /// Seconds without a partition.
    pub waited_seconds: u64,
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
    /// Reason why none of its nodes can run the owner's Pods now. `None` if one can, or if this is
    /// not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unschedulable: Option<String>,
    /// All IPUs. 0 if it has never been reachable.
    pub total_ipus: u32,
    /// IPUs in partitions of all origins.
    pub used_ipus: u32,
    /// Size of the largest partition that can be created. It is an estimate if nobody knows the
    /// free blocks.
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

/// Number of partitions, or of free blocks of IPUs, of one size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SizeCount {
    /// The size in IPUs: a power of two.
    pub ipus: u32,
    /// Their number.
    pub count: u32,
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

/// A request to a placement guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlacementRequest {
    /// The requested partition.
    pub request: PartitionRequest,
    /// The controllers, in the configured order.
    pub controllers: Vec<ControllerView>,
    /// The attempts so far.
    #[serde(default)]
    pub attempts: Vec<PlaceAttempt>,
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

/// The decision on a partition request. If the guest fails or its answer is invalid, the built-in
/// serial walk decides, or the request waits.
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
