//! IPUPartition: one wanted V-IPU partition; the request, the write-ahead record and the thing to watch in one.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The requested partition.
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "graphcore.ai",
    version = "v1alpha1",
    kind = "IPUPartition",
    plural = "ipupartitions",
    singular = "ipupartition",
    shortname = "ipup",
    status = "IPUPartitionStatus",
    derive = "PartialEq",
    doc = "A request for a V-IPU partition, and its state.",
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "IPUs", type_ = "integer", json_path = ".spec.ipus"),
    printcolumn(
        name = "Controller",
        type_ = "string",
        json_path = ".status.controller.name"
    ),
    printcolumn(
        name = "Partition",
        type_ = "string",
        json_path = ".status.partitionId"
    ),
    printcolumn(
        name = "Namespace",
        type_ = "string",
        json_path = ".spec.owner.namespace"
    ),
    printcolumn(name = "Owner", type_ = "string", json_path = ".spec.owner.name"),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = ".status.message",
        priority = 1
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct IPUPartitionSpec {
    /// Whose partition it is.
    pub owner: PartitionOwner,
    /// Which of the owner's partitions it is, from 0; the job instance of an IPUJob.
    #[schemars(range(min = 0))]
    pub slot: u32,
    /// IPUs: a power of two.
    #[schemars(range(min = 1))]
    pub ipus: u32,
    /// GCDs: how many Pods share the partition, one GCD each.
    #[schemars(range(min = 1))]
    pub gcds: u32,
    /// Further options of the partition.
    #[serde(default)]
    pub options: PartitionOptions,
    /// What a placement policy may know of the owner.
    #[serde(default, skip_serializing_if = "OwnerMetadata::is_empty")]
    pub owner_metadata: OwnerMetadata,
    /// Raised by the owner to have the partition reset; `status.observedResetGeneration` follows.
    #[serde(default)]
    pub reset_generation: i64,
}

/// Whose partition it is. An owner of a kind that the operator does not know is never swept.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PartitionOwner {
    /// Such as `graphcore.ai/v1alpha1`.
    pub api_version: String,
    /// Such as `IPUJob`.
    pub kind: String,
    /// Namespace of the owner.
    pub namespace: String,
    /// Name of the owner.
    pub name: String,
    /// UID of the owner: another object of the same name is another owner.
    pub uid: String,
}

/// What a placement policy may know of an owner, as it was when it asked for the partition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OwnerMetadata {
    /// The owner's labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The owner's annotations, but for long ones.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Name of the PriorityClass of its Pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority_class_name: Option<String>,
}

impl OwnerMetadata {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Further options of a partition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PartitionOptions {
    /// Model replicas over all GCDs (`num_replicas` of the V-IPU API). Missing: as many as GCDs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<u32>,
    /// Whether the partition may be reconfigured (`reconfigurable` of the V-IPU API).
    #[serde(default)]
    pub reconfigurable: bool,
    /// How many of the owner's partitions are of use only together: they are created once all of them
    /// fit, and released if some find no free capacity. Missing: each is of use by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub gang_size: Option<u32>,
    /// Whether it stays where it is until its owner releases it: a controller that is drained
    /// waits for that, instead of asking the owner to move.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pinned: bool,
    /// Whether the controller may move the partition to other IPUs (`relocatable` of the V-IPU API).
    #[serde(default)]
    pub relocatable: bool,
    /// Node labels that the owner's Pods ask for; controllers whose label contradicts one are skipped.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
}

/// State of a requested partition.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IPUPartitionStatus {
    /// Where it stands.
    #[serde(default)]
    pub phase: PartitionPhase,
    /// The V-IPU controller that holds it; only where there is a partition to use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller: Option<ControllerRef>,
    /// Id of the partition on that controller (`IPUOF_VIPU_API_PARTITION_ID`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition_id: Option<String>,
    /// Grows with every attempt, so that no id is ever used twice.
    #[serde(default)]
    pub generation: i64,
    /// Every attempt that may have left something on a controller, and how it ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<Attempt>,
    /// Why it waits, controller by controller.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting: Vec<WaitingReason>,
    /// The last `spec.resetGeneration` that was carried out.
    #[serde(default)]
    pub observed_reset_generation: i64,
    /// Resets that the V-IPU controller made by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_resets: Option<AutoResets>,
    /// What happened last, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// By the Kubernetes API conventions: `Ready`; `Draining` while its owner is asked to end the Pods
    /// that use it, since its controller is being drained; `Busy` while its controller is at work on it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// Where a wanted partition stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PartitionPhase {
    /// No controller has free capacity, or none was asked yet.
    #[default]
    Pending,
    /// A controller was asked to make it, and it is not active yet.
    Creating,
    /// It is active and can be used.
    Ready,
    /// It is being reset.
    Resetting,
    /// The controller says that it is in error.
    Error,
    /// No controller can ever make it.
    Rejected,
    /// It is being removed.
    Releasing,
}

/// A V-IPU controller and the node label that goes with it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ControllerRef {
    /// `host:port`.
    pub name: String,
    /// Host (`IPUOF_VIPU_API_HOST`).
    pub host: String,
    /// Port (`IPUOF_VIPU_API_PORT`).
    pub port: u16,
    /// Key of the label of the nodes that reach it.
    pub label_key: String,
    /// Value of that label.
    pub label_value: String,
}

/// One attempt to make the partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Attempt {
    /// The controller that was asked, as it was known then.
    pub controller: ControllerRef,
    /// The requested id.
    pub id: String,
    /// How it ended.
    pub outcome: AttemptOutcome,
    /// What the controller said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When it was begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<Time>,
    /// Who chose the controller. Missing: the attempt was written by hand or by an early version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided_by: Option<DecidedBy>,
    /// A short hash of the V-IPU user id under which the controller was asked. Missing: none was sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
}

/// Who chose where a partition is made.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DecidedBy {
    /// Name of the IPUPolicy whose guest chose, or `built-in`.
    pub policy: String,
    /// Digest of the guest's module. Missing: the built-in serial walk chose, since the active guest
    /// gave no answer that can be carried out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum AttemptOutcome {
    /// Not known: written before the controller is asked, and kept until its truth is known.
    Unknown,
    /// The controller has it.
    Created,
    /// The controller said no, and has nothing of it.
    Refused,
    /// It was made and is gone again.
    Removed,
}

/// Why one controller does not serve a waiting partition.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct WaitingReason {
    /// `host:port`.
    pub controller: String,
    /// The reason, as a user should read it.
    pub reason: String,
}

/// Resets that the V-IPU controller made by itself (GetPartitionStatus).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AutoResets {
    /// How many there were.
    pub count: u32,
    /// How many there may be.
    pub max: u32,
    /// When the last one was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_time: Option<Time>,
}

impl IPUPartition {
    /// Whether the partition waits for free IPUs.
    pub fn is_waiting(&self) -> bool {
        let is_pending = |status: &IPUPartitionStatus| {
            status.phase == PartitionPhase::Pending && status.partition_id.is_none()
        };
        self.metadata.deletion_timestamp.is_none() && self.status.as_ref().is_none_or(is_pending)
    }
}

impl IPUPartitionStatus {
    /// Whether the partition exists or is being created.
    pub fn is_placed(&self) -> bool {
        self.partition_id.is_some() || self.attempts.iter().any(Attempt::is_held)
    }
}

impl Attempt {
    /// Whether the attempt may have left a partition on its controller.
    pub fn is_held(&self) -> bool {
        match self.outcome {
            AttemptOutcome::Unknown | AttemptOutcome::Created => true,
            AttemptOutcome::Refused | AttemptOutcome::Removed => false,
        }
    }
}
