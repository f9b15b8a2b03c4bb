//! The record of a run in the status of an IPUJob.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Record of a run. The operator keeps it here, because deleted Pods no longer show it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunStatus {
    /// Number of the run, from 0. Pods of earlier runs are deleted.
    #[serde(default)]
    pub number: i64,
    /// Number of failed runs.
    #[serde(default)]
    pub failures: i32,
    /// Time before which no Pod of the run is created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Time>,
    /// Reason for the restart of the job. Removed once it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restarting: Option<String>,
    /// Time since which the API server has refused Pods of the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused_since: Option<Time>,
    /// The partition (`<id>/<reset generation>`) that the Pods of each instance have begun to use.
    /// It is reset before other Pods use it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub used: BTreeMap<String, String>,
    /// Ends of single instances, while others still run.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub ended: BTreeMap<String, InstanceEnd>,
    /// Pods that their nodes rejected. Removed once the Pods start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rejections: Option<PodRejections>,
    /// Instances whose Pods cannot start. The key is the index of the instance. Removed once the
    /// Pods start.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub starts: BTreeMap<String, InstanceStart>,
}

/// The start of an instance whose Pods cannot start, or could not on another V-IPU controller.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InstanceStart {
    /// Time since which its Pods cannot start. Missing: they can, as far as is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked_since: Option<Time>,
    /// Whether its partition is being released, because its Pods could not start for too long.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub releasing: bool,
    /// Names of the V-IPU controllers whose partitions were released for that, the last one at the
    /// end. Its next partition avoids them if another controller has free capacity.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub avoided_controllers: Vec<String>,
    /// The reason for which its Pods could not start.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// Rejections of Pods by their nodes, before a container of them started. They are no failures of
/// the program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodRejections {
    /// Number of attempts in a row that ended with a rejection. It determines the delay of the next
    /// one.
    #[serde(default)]
    pub count: i32,
    /// Time before which no rejected Pod is created again.
    pub not_before: Time,
    /// Names of the rejected Pods that were not created again yet. They have not used their
    /// partitions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pods: Vec<String>,
    /// The last rejection, with the reason of the node.
    #[serde(default)]
    pub message: String,
}

/// End of one instance.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InstanceEnd {
    /// Its failure. Missing: it succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// Exit code of the container that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
}
