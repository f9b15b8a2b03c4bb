//! The spec of an IPUJob, field by field as users of Graphcore's operator (alpha-5 to 1.2.0) wrote
//! it.

use k8s_openapi::api::core::v1::{EnvVar, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::labels;

use super::ipujob_status::IPUJobStatus;
use super::pod_template::PodTemplate;

/// Desired state of an IPUJob.
///
/// Sizing fields are strings because they were strings in Graphcore's operator. The operator reads
/// them as numbers.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "graphcore.ai",
    version = "v1alpha1",
    kind = "IPUJob",
    plural = "ipujobs",
    singular = "ipujob",
    shortname = "ipj",
    category = "all",
    namespaced,
    status = "IPUJobStatus",
    derive = "PartialEq",
    doc = "A program on IPUs: a single worker, a parallel job with a launcher, or an interactive job.",
    scale(
        spec_replicas_path = ".spec.jobInstances",
        status_replicas_path = ".status.desiredReplicas",
        label_selector_path = ".status.selector"
    ),
    printcolumn(
        name = "status",
        type_ = "string",
        json_path = ".status.launcherStatus"
    ),
    printcolumn(
        name = "current",
        type_ = "integer",
        json_path = ".status.currentReplicas"
    ),
    printcolumn(
        name = "desired",
        type_ = "integer",
        json_path = ".status.desiredReplicas"
    ),
    printcolumn(
        name = "LastMessage",
        type_ = "string",
        json_path = ".status.lastMessage"
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct IPUJobSpec {
    /// Number of instances; each gets a partition of its own. `kubectl scale` changes it.
    #[schemars(range(min = 0))]
    pub job_instances: i32,
    /// IPUs of each instance's partition: a power of two, as a string.
    pub ipus_per_job_instance: String,
    /// Worker Pods of each instance, which is also the number of GCDs of its partition. Missing:
    /// "1".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers_per_job_instance: Option<String>,
    /// Model replicas of each worker. Missing: "1".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_replicas_per_worker: Option<String>,
    /// Deprecated: use `workersPerJobInstance`. This is its spelling in 1.0.3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_per_job_instance: Option<String>,
    /// Deprecated (alpha-5): use `workersPerJobInstance` and `modelReplicasPerWorker`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_replicas: Option<String>,
    /// Deprecated (alpha-5): use `ipusPerJobInstance`, which is `modelReplicas` times this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipus_per_model_replica: Option<String>,
    /// Template and update strategy of the worker Pods.
    pub workers: Workers,
    /// The main command of a parallel job. Cannot be combined with `interactive`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launcher: Option<Launcher>,
    /// A launcher Pod without a command, for `kubectl exec`. Cannot be combined with `launcher`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interactive: Option<Interactive>,
    /// Rule for another run of the job after its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart_policy: Option<RestartPolicy>,
    /// Pods to delete once the job has finished for good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clean_pod_policy: Option<CleanPodPolicy>,
    /// Whether the job is suspended: its Pods are deleted and its partitions released until it is
    /// false again. As in a Kubernetes Job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,
    /// Name of the controller that manages the job. Missing or `graphcore.ai/ipu-operator`: this
    /// operator, which ignores jobs with any other value. Immutable. As in a Kubernetes Job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub managed_by: Option<String>,
    /// Seconds since the start of the job, over all its runs, after which the operator ends it as
    /// Failed. As in a Kubernetes Job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub active_deadline_seconds: Option<i64>,
    /// Seconds after which a finished job is deleted. Missing: never. As in a Kubernetes Job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub ttl_seconds_after_finished: Option<i32>,
}

/// The worker Pods of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Workers {
    /// Deprecated: use `workersPerJobInstance`, which takes precedence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub replicas: Option<i32>,
    /// The Pod template of every worker. The operator keeps every field of it.
    pub template: PodTemplate,
    /// Replacement of worker Pods when the template changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<Strategy>,
    /// Effect of a failed worker on its instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_policy: Option<FailurePolicy>,
}

/// Effect of a failed worker on its instance in a job without a launcher. Missing: `Wait`. In a job
/// with a launcher, a failed worker always ends the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum FailurePolicy {
    /// The instance ends when all its workers have ended.
    #[default]
    Wait,
    /// The instance ends as failed: the operator deletes its other workers.
    FailInstance,
}

/// Replacement of worker Pods when the template changes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Strategy {
    /// `Recreate` or `RollingUpdate`. Missing: `RollingUpdate`.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<StrategyType>,
    /// Bounds of a rolling update.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rolling_update: Option<RollingUpdate>,
}

/// Order in which worker Pods are replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum StrategyType {
    /// All at once.
    Recreate,
    /// Within the bounds of `rollingUpdate`.
    RollingUpdate,
}

/// Bounds of a rolling update. They cannot both be 0.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RollingUpdate {
    /// Number or percentage of Pods that may exist beyond the desired number. Missing: 25%.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_surge: Option<IntOrString>,
    /// Number or percentage of Pods that may be unavailable. Missing: 25%.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_unavailable: Option<IntOrString>,
}

/// The main command of a parallel job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Launcher {
    /// The command (mpirun, poprun) and its arguments.
    pub command: Vec<String>,
    /// Environment variables of the launcher, in addition to those of the workers' first container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env: Option<Vec<EnvVar>>,
    /// Requests and limits of the launcher. Missing: the admin's default, `launcher.resources` of
    /// the chart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
    /// ServiceAccount of the launcher, which may then execute commands in the job's workers. It
    /// must exist and cannot be `default`. Missing: an account `<job>-launcher`, which has only
    /// this right.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<String>,
}

/// A launcher Pod without a command and with a limited lifetime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Interactive {
    /// Seconds that the interactive job lasts after its launcher has started.
    pub ttl: i32,
}

/// Rule for another run of a job after its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RestartPolicy {
    /// Case in which the job runs again. Defaulting sets `Never`.
    #[serde(rename = "type")]
    pub type_: RestartPolicyType,
    /// Number of failures after which the job fails for good. Missing: 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub back_off_limit: Option<i32>,
    /// Exit codes after which the job runs again, as ranges (`128-255` or `3,7,130-140`). Used with
    /// `ExitCode`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^([0-9]+(-[0-9]+)?)(,([0-9]+(-[0-9]+)?))*$"))]
    pub exit_codes: Option<String>,
}

/// Cases in which a job runs again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RestartPolicyType {
    /// After every end.
    Always,
    /// After a failure.
    OnFailure,
    /// Never.
    Never,
    /// After a failure whose exit code is retryable.
    ExitCode,
}

/// Pods to delete once a job has finished for good.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum CleanPodPolicy {
    /// None.
    #[default]
    None,
    /// The workers.
    Workers,
    /// Launcher and workers. restartPolicy then has the effect of `Never`.
    All,
}

/// Whether `spec.managedBy` of an IPUJob names another controller.
pub fn is_managed_by_another(job: &Value) -> bool {
    let manager = job.pointer("/spec/managedBy").and_then(Value::as_str);
    manager.is_some_and(|manager| manager != labels::JOB_CONTROLLER)
}
