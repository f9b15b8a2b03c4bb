//! VIPUController: one V-IPU controller of the admin's list, with its state, and whether it is
//! cordoned or drained.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Desired state of a V-IPU controller, as an admin sets it.
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
    /// Whether the controller is cordoned: it gets no new partitions, as a cordoned node gets no
    /// new Pods.
    #[serde(default)]
    pub cordoned: bool,
    /// Whether the controller is also drained: the operator asks the owners of its partitions to
    /// end the Pods that use them.
    #[serde(default)]
    pub draining: bool,
    /// User who has cordoned or drained the controller, as information for users.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub requested_by: Option<String>,
    /// Reason for the cordon or drain of the controller, as information for users.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub reason: Option<String>,
}

/// State of a V-IPU controller, as seen by the leading replica of the V-IPU proxy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VIPUControllerStatus {
    /// `host:port`.
    pub address: String,
    /// Summary of the state, in the form of `kubectl get nodes`: `Ready`, `NotReady`, `Unlisted` or
    /// `Duplicate`, with `,Cordoned` or `,Draining`.
    pub summary: String,
    /// Key of the label of the nodes that reach it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub label_key: String,
    /// Value of that label.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub label_value: String,
    /// Number of nodes with that label.
    #[serde(default)]
    pub nodes: u32,
    /// Version of its server. Missing: it reports none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_version: Option<String>,
    /// IPUs of the controller.
    #[serde(default)]
    pub ipus: ControllerIpus,
    /// Places of the IPUs in no partition, as ranges such as `4-7,16-63`. Missing: the controller
    /// does not report them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free_ipus: Option<String>,
    /// The waiting request that the controller's free IPUs are reserved for. Missing: they are not
    /// reserved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserved_for: Option<String>,
    /// Number of partitions that the operator has created on it.
    #[serde(default)]
    pub partitions: u32,
    /// Number of other partitions on it.
    #[serde(default)]
    pub other_partitions: u32,
    /// Failures within the last day.
    #[serde(default)]
    pub last_day: ControllerFailures,
    /// Conditions: `Ready` (it answers), `Listed` (it is in the admin's list), and `Drained` (it is
    /// being drained, and no partition of the operator is left on it).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// IPUs of a V-IPU controller. While it does not answer, these are the last known numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ControllerIpus {
    /// Number of all IPUs.
    pub total: u32,
    /// Number of IPUs in partitions of the operator and in other partitions.
    pub used: u32,
    /// Number of IPUs in partitions that the operator has not created.
    pub used_by_others: u32,
    /// Size of the largest partition that could be created now, in IPUs. It is an estimate, unless
    /// `freeIpus` is set.
    pub largest_free: u32,
    /// Estimated size of the largest partition that a new request would get now, in IPUs. IPUs that
    /// are reserved for waiting requests are not included. It is 0 while the controller is
    /// cordoned, does not answer, or no node reaches it. Policies and quotas may allow less.
    /// Missing: not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub largest_fit: Option<u32>,
}

/// Failures of a V-IPU controller.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ControllerFailures {
    /// Number of times that a partition went to ERROR.
    pub failed_partitions: u32,
    /// Number of automatic resets by the controller.
    pub auto_resets: u32,
    /// Time of the last failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<Time>,
}

/// Whether a controller is cordoned or drained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum CordonState {
    /// It gets no new partitions.
    Cordoned,
    /// Its partitions are moved away, too.
    Draining,
}

impl CordonState {
    /// Reads the request of an admin from the spec. A drained controller is also cordoned.
    pub fn of(spec: &VIPUControllerSpec) -> Option<Self> {
        if spec.draining {
            return Some(Self::Draining);
        }
        spec.cordoned.then_some(Self::Cordoned)
    }
}

/// The cordoned and drained controllers, by name.
pub type CordonStates = BTreeMap<String, CordonState>;

#[cfg(test)]
mod tests {
    use super::{CordonState, VIPUControllerSpec};

    #[test]
    fn one_that_is_drained_is_cordoned_and_one_that_is_neither_takes_new_partitions() {
        for (cordoned, draining, expected) in [
            (false, false, None),
            (true, false, Some(CordonState::Cordoned)),
            (false, true, Some(CordonState::Draining)),
            (true, true, Some(CordonState::Draining)),
        ] {
            let spec = VIPUControllerSpec {
                cordoned,
                draining,
                ..VIPUControllerSpec::default()
            };
            assert_eq!(CordonState::of(&spec), expected, "{spec:?}");
        }
    }
}
