//! The status of an IPUJob, with the keys and strings that users of the original operator know.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is known of a job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IPUJobStatus {
    /// The STATUS column, also of jobs without a launcher.
    #[serde(default)]
    pub launcher_status: JobState,
    /// Job instances whose Pods exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_replicas: Option<i32>,
    /// Job instances that are wanted.
    pub desired_replicas: i32,
    /// What happened last, in words.
    pub last_message: String,
    /// Whether every instance has its partition.
    #[serde(
        default,
        rename = "iPUPartitionCreated",
        skip_serializing_if = "Option::is_none"
    )]
    pub ipu_partition_created: Option<bool>,
    /// How often the job was started again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart_count: Option<i32>,
    /// When the job was first seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,
    /// When the job finished for good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,
    /// When this status last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_reconcile_time: Option<Time>,
    /// Worker Pods by state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers_status: Option<WorkersStatus>,
    /// Selects one Pod of each instance, for a HorizontalPodAutoscaler.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
    /// The `metadata.generation` that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// What the job went through, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<JobCondition>,
}

/// The STATUS column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum JobState {
    /// Waiting for a partition or for Pods.
    #[default]
    Pending,
    /// Its Pods run.
    Running,
    /// Ended well.
    Completed,
    /// Ended badly, or can never start.
    Failed,
}

/// Worker Pods by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WorkersStatus {
    /// Pending or running.
    #[serde(default)]
    pub active: i32,
    /// Ended with 0.
    #[serde(default)]
    pub succeeded: i32,
    /// Ended otherwise.
    #[serde(default)]
    pub failed: i32,
}

/// One condition of a job, in the shape of the original operator (with `lastUpdateTime`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobCondition {
    /// `Pending`, `Running`, `Succeeded`, `Failed`, …
    #[serde(rename = "type")]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// A word for programs.
    #[serde(default)]
    pub reason: String,
    /// A sentence for people.
    #[serde(default)]
    pub message: String,
    /// When it was last written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_update_time: Option<Time>,
    /// When `status` last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
}
