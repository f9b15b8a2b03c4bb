//! VIPUController: one V-IPU controller of the admin's list, with its state, and whether it is cordoned or drained.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::accounting::Accounting;

/// What an admin asks of a V-IPU controller.
#[derive(
    CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema,
)]
#[kube(
    group = "graphcore.ai",
    version = "v1alpha1",
    kind = "VIPUController",
    plural = "vipucontrollers",
    singular = "vipucontroller",
    shortname = "vipu",
    status = "VIPUControllerStatus",
    derive = "PartialEq",
    doc = "A V-IPU controller of the operator's list. The operator creates and deletes these objects.",
    printcolumn(name = "Status", type_ = "string", json_path = ".status.summary"),
    printcolumn(name = "IPUs", type_ = "integer", json_path = ".status.ipus.total"),
    printcolumn(name = "Used", type_ = "integer", json_path = ".status.ipus.used"),
    printcolumn(
        name = "Largest-Free",
        type_ = "integer",
        json_path = ".status.ipus.largestFree"
    ),
    printcolumn(
        name = "Partitions",
        type_ = "integer",
        json_path = ".status.partitions"
    ),
    printcolumn(name = "Nodes", type_ = "integer", json_path = ".status.nodes"),
    printcolumn(name = "Address", type_ = "string", json_path = ".status.address"),
    printcolumn(
        name = "Version",
        type_ = "string",
        json_path = ".status.serverVersion",
        priority = 1
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".spec.reason",
        priority = 1
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct VIPUControllerSpec {
    /// No new partition is created on it, as no new Pod on a cordoned node.
    #[serde(default)]
    pub cordoned: bool,
    /// Its partitions leave it as well: the operator asks their owners to end the Pods that use them.
    #[serde(default)]
    pub draining: bool,
    /// Who has asked for it, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub requested_by: Option<String>,
    /// Why, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub reason: Option<String>,
}

/// State of a V-IPU controller, as the replica of the V-IPU proxy that leads has seen it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VIPUControllerStatus {
    /// `host:port`.
    pub address: String,
    /// The state in words, as `kubectl get nodes` shows it: `Ready`, `NotReady` or `Unlisted`, with `,Cordoned` or
    /// `,Draining`.
    pub summary: String,
    /// Key of the label of the nodes that reach it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub label_key: String,
    /// Value of that label.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub label_value: String,
    /// How many nodes have that label.
    #[serde(default)]
    pub nodes: u32,
    /// Version of its server. Missing: it reports none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_version: Option<String>,
    /// Its IPUs.
    #[serde(default)]
    pub ipus: ControllerIpus,
    /// The request that waits and that its free IPUs are reserved for. Missing: they are not reserved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserved_for: Option<String>,
    /// How many partitions of the operator it has.
    #[serde(default)]
    pub partitions: u32,
    /// How many partitions of others it has.
    #[serde(default)]
    pub other_partitions: u32,
    /// Its failures within the last day.
    #[serde(default)]
    pub last_day: ControllerFailures,
    /// Where its IPU-seconds went.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accounting: Option<Accounting>,
    /// By the Kubernetes API conventions: `Ready` (it answers; `lastTransitionTime` is since when), `Listed` (it is in
    /// the admin's list), and `Drained` (it is being drained, and has no partition of the operator left).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// IPUs of a V-IPU controller. While it does not answer, these are the last that are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ControllerIpus {
    /// All that it has.
    pub total: u32,
    /// Those in partitions of the operator and of others.
    pub used: u32,
    /// Those in partitions of others.
    pub used_by_others: u32,
    /// The largest partition that could be created now, in IPUs: an estimate.
    pub largest_free: u32,
    /// The largest partition that a new request would get now, in IPUs: an estimate as well. It includes nothing that is
    /// reserved for requests that wait, and is 0 while the controller is cordoned, does not answer, or no node reaches it.
    /// Policies and quotas may give less. Missing: not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub largest_fit: Option<u32>,
}

/// Failures of a V-IPU controller.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ControllerFailures {
    /// How often a partition went to ERROR.
    pub failed_partitions: u32,
    /// How often the controller reset a partition by itself.
    pub auto_resets: u32,
    /// When the last of them was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<Time>,
}
