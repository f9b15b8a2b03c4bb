//! IPUPartition: a request for a V-IPU partition, the write-ahead record of its attempts, and its
//! state.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

use super::node_scheduling::NodeScheduling;

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
    /// Owner of the partition.
    pub owner: PartitionOwner,
    /// Index among the owner's partitions, from 0. For an IPUJob: the index of the instance.
    #[schemars(range(min = 0))]
    pub slot: u32,
    /// Number of IPUs: a power of two.
    #[schemars(range(min = 1))]
    pub ipus: u32,
    /// Number of GCDs. Each Pod that shares the partition uses one.
    #[schemars(range(min = 1))]
    pub gcds: u32,
    /// Further options of the partition.
    #[serde(default)]
    pub options: PartitionOptions,
    /// Metadata of the owner for placement policies.
    #[serde(default, skip_serializing_if = "OwnerMetadata::is_empty")]
    pub owner_metadata: OwnerMetadata,
    /// The owner increments it to request a reset. `status.observedResetGeneration` follows once it
    /// is done.
    #[serde(default)]
    pub reset_generation: i64,
}

/// Owner of a partition. The operator never removes the partition of an owner of an unknown kind by
/// itself.
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
    /// UID of the owner. An object of the same name with another UID is another owner.
    pub uid: String,
}

impl PartitionOwner {
    /// Whether it is an IPUJob.
    pub fn is_job(&self) -> bool {
        self.kind == "IPUJob" && self.api_version == crate::API_VERSION
    }
}

/// Metadata of an owner for placement policies, from the time of the request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OwnerMetadata {
    /// The owner's labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The owner's annotations, without long ones.
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
    /// Number of model replicas over all GCDs (`num_replicas` of the V-IPU API). Missing: the
    /// number of GCDs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<u32>,
    /// Whether the partition may be reconfigured (`reconfigurable` of the V-IPU API).
    #[serde(default)]
    pub reconfigurable: bool,
    /// Number of the owner's partitions that form a gang: they are created once all of them fit,
    /// and released if some of them find no free capacity. Missing: the partition does not depend
    /// on others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub gang_size: Option<u32>,
    /// Whether it stays on its controller until its owner releases it. Draining the controller
    /// waits for that and does not ask the owner to move.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pinned: bool,
    /// Whether the controller may move the partition to other IPUs (`relocatable` of the V-IPU
    /// API).
    #[serde(default)]
    pub relocatable: bool,
    /// Node selector of the owner's Pods. Controllers with a contradicting label are skipped.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Names (`host:port`) of V-IPU controllers whose nodes could not start the owner's Pods. They
    /// are used only if no other controller that suits the partition has free capacity.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub avoid_controllers: Vec<String>,
    /// Further requirements of the owner's Pods. While a node of a controller fulfils them and can
    /// be used, controllers without such a node are skipped. Missing: they are not known, and only
    /// unusable nodes are skipped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduling: Option<NodeScheduling>,
}

/// State of a requested partition.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IPUPartitionStatus {
    /// Phase of the partition.
    #[serde(default)]
    pub phase: PartitionPhase,
    /// The V-IPU controller of the partition. Set only while the partition can be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller: Option<ControllerRef>,
    /// Id of the partition on that controller (`IPUOF_VIPU_API_PARTITION_ID`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition_id: Option<String>,
    /// Place of its first IPU among those of the V-IPU controller (`topology_id`), from 0. The
    /// others follow it. Missing: the controller has not reported it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_ipu: Option<u32>,
    /// Increases with every attempt, so that no id is used twice.
    #[serde(default)]
    pub generation: i64,
    /// Attempts that may have left a partition on a controller, and their outcomes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<Attempt>,
    /// Reasons why it waits: of at most eight controllers by name, and the numbers of the others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting: Vec<WaitingReason>,
    /// The last completed `spec.resetGeneration`.
    #[serde(default)]
    pub observed_reset_generation: i64,
    /// Automatic resets by the V-IPU controller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_resets: Option<AutoResets>,
    /// Message of the last change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Conditions: `Ready`; `Draining` while its controller is being drained and its owner is asked
    /// to end the Pods that use it; `Busy` while its controller works on it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// Phase of a requested partition.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, IntoStaticStr,
)]
pub enum PartitionPhase {
    /// No controller has free capacity, or none has been asked yet.
    #[default]
    Pending,
    /// A controller was asked to create it, and it is not active yet.
    Creating,
    /// It is active and can be used.
    Ready,
    /// It is being reset.
    Resetting,
    /// The controller reports it in error.
    Error,
    /// No controller can ever create it.
    Rejected,
    /// It is being removed.
    Releasing,
}

/// A V-IPU controller and its node label.
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

/// One attempt to create the partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Attempt {
    /// The controller that was asked, with its address and label at that time.
    pub controller: ControllerRef,
    /// The requested id.
    pub id: String,
    /// Outcome of the attempt.
    pub outcome: AttemptOutcome,
    /// Answer of the controller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Whether the controller refused the attempt because it lacks free IPUs (`ResourceExhausted`).
    /// Missing: it did not refuse the attempt, or an early version wrote it; then the gRPC code is
    /// the end of `reason`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exhausted: Option<bool>,
    /// Start of the attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<Time>,
    /// The policy that chose the controller. Missing: the attempt was written by hand or by an
    /// early version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided_by: Option<DecidedBy>,
    /// Short hash of the V-IPU user id of the request. Missing: the request had none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
}

/// The policy that chose the controller of a partition.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DecidedBy {
    /// Name of the IPUPolicy, or `built-in`.
    pub policy: String,
    /// Digest of the guest's module. Missing: the built-in serial walk chose, because the active
    /// guest gave no valid answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
}

/// Outcome of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum AttemptOutcome {
    /// Not known: written before the controller is asked, and kept until its state is known.
    Unknown,
    /// The controller has created it.
    Created,
    /// The controller refused it, and has no part of it.
    Refused,
    /// It was created and has been removed.
    Removed,
}

/// Reason why a controller does not serve a waiting partition.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct WaitingReason {
    /// `host:port`; in the last reason of many, the number of the other controllers, such as
    /// `248 others`.
    pub controller: String,
    /// The reason, in words for users.
    pub reason: String,
}

/// Automatic resets by the V-IPU controller (GetPartitionStatus).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AutoResets {
    /// Number of resets so far.
    pub count: u32,
    /// Maximum number of resets.
    pub max: u32,
    /// Time of the last reset.
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

    /// Whether the controller refused the attempt because it lacks free IPUs.
    pub fn is_exhausted(&self) -> bool {
        let is_in_reason = || {
            let reason = self.reason.as_deref();
            reason.is_some_and(|reason| reason.ends_with("(ResourceExhausted)"))
        };
        self.outcome == AttemptOutcome::Refused && self.exhausted.unwrap_or_else(is_in_reason)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::Attempt;

    #[test]
    fn lack_of_ipus_is_read_from_the_field_or_an_early_reason() {
        let code = "it refused CreatePartition: no block (ResourceExhausted)";
        for (outcome, reason, exhausted, expected) in [
            ("refused", "full", Some(true), true),
            ("refused", code, Some(false), false),
            ("refused", code, None, true),
            ("refused", "no (InvalidArgument)", None, false),
            ("removed", code, None, false),
        ] {
            let attempt: Attempt = serde_json::from_value(json!({
                "controller": {
                    "name": "pod1", "host": "pod1", "port": 1, "labelKey": "a", "labelValue": "b",
                },
                "id": "p-1", "outcome": outcome, "reason": reason, "exhausted": exhausted,
            }))
            .unwrap();
            assert_eq!(attempt.is_exhausted(), expected, "{attempt:?}");
        }
    }
}
