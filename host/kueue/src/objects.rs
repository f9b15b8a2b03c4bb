//! Kueue's objects, with the fields that the operator reads (`kueue.x-k8s.io/v1beta2`). The
//! operator writes them by patches, which keep all other fields.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Toleration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Condition of a Workload: quota is reserved for it.
pub const QUOTA_RESERVED: &str = "QuotaReserved";
/// Condition of a Workload: quota is reserved, and every admission check is ready.
pub const ADMITTED: &str = "Admitted";
/// Condition of a Workload: its job must stop.
pub const EVICTED: &str = "Evicted";
/// Condition of a Workload: its job has ended.
pub const FINISHED: &str = "Finished";
/// Condition of a Workload: all Pods of its job are ready.
pub const PODS_READY: &str = "PodsReady";
/// Condition of a Workload: it is in the queue again after an eviction.
pub const REQUEUED: &str = "Requeued";
/// Reason of `Requeued` while the operator waits for the next attempt of an admission check. Kueue
/// itself requeues a Workload with other reasons.
pub const PARTITION_RETRY: &str = "PartitionRetry";

/// The spec of a Workload: what a job needs.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "kueue.x-k8s.io",
    version = "v1beta2",
    kind = "Workload",
    plural = "workloads",
    namespaced,
    status = "WorkloadStatus",
    schema = "disabled",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkloadSpec {
    /// Pods of one kind each.
    pub pod_sets: Vec<PodSet>,
    /// Name of the LocalQueue.
    pub queue_name: Option<String>,
    /// Whether Kueue may admit it. Missing: it may.
    pub active: Option<bool>,
    /// The class of its priority.
    pub priority_class_ref: Option<PriorityClassRef>,
    /// Seconds after its admission at which Kueue deactivates it.
    pub maximum_execution_time_seconds: Option<i32>,
}

/// Pods of one kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSet {
    /// Its name.
    pub name: String,
    /// Number of Pods.
    pub count: u32,
    /// Their template.
    pub template: Value,
}

/// A PriorityClass or a WorkloadPriorityClass.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PriorityClassRef {
    /// Its API group.
    pub group: String,
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
}

/// The status of a Workload.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkloadStatus {
    /// Its conditions.
    pub conditions: Vec<Condition>,
    /// The quota that is reserved.
    pub admission: Option<Admission>,
    /// The states of its admission checks, as they are.
    pub admission_checks: Vec<Value>,
    /// Pods that need no quota any more.
    pub reclaimable_pods: Vec<ReclaimablePods>,
    /// Seconds of earlier admissions.
    pub accumulated_past_execution_time_seconds: Option<i32>,
}

/// The quota that is reserved for a Workload.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Admission {
    /// Name of the ClusterQueue.
    pub cluster_queue: String,
    /// The flavors of each pod set.
    pub pod_set_assignments: Vec<PodSetAssignment>,
}

/// The flavors of a pod set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSetAssignment {
    /// Name of the pod set.
    pub name: String,
    /// Name of the ResourceFlavor of each resource.
    pub flavors: BTreeMap<String, String>,
    /// Number of its Pods.
    pub count: Option<u32>,
}

/// Pods of a pod set that need no quota any more.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReclaimablePods {
    /// Name of the pod set.
    pub name: String,
    /// Number of Pods.
    pub count: u32,
}

/// The spec of a ResourceFlavor: nodes of one kind.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "kueue.x-k8s.io",
    version = "v1beta2",
    kind = "ResourceFlavor",
    plural = "resourceflavors",
    schema = "disabled"
)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceFlavorSpec {
    /// Labels of the nodes.
    pub node_labels: BTreeMap<String, String>,
    /// Tolerations that Pods get.
    pub tolerations: Vec<Toleration>,
}

/// The spec of an AdmissionCheck.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "kueue.x-k8s.io",
    version = "v1beta2",
    kind = "AdmissionCheck",
    plural = "admissionchecks",
    status = "AdmissionCheckStatus",
    schema = "disabled"
)]
#[serde(rename_all = "camelCase", default)]
pub struct AdmissionCheckSpec {
    /// Name of the controller that answers it.
    pub controller_name: String,
}

/// The status of an AdmissionCheck.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AdmissionCheckStatus {
    /// Its conditions.
    pub conditions: Vec<Condition>,
}

impl Workload {
    /// Whether it has the finalizer that keeps it until its quota is released.
    pub fn has_finalizer(&self) -> bool {
        let mut finalizers = self.metadata.finalizers.iter().flatten();
        finalizers.any(|one| one == ipu_api::queueing::RESOURCE_IN_USE_FINALIZER)
    }

    /// Returns a condition, if it has that status.
    pub fn condition(&self, type_: &str, status: &str) -> Option<&Condition> {
        let status_of = self.status.as_ref()?;
        let mut conditions = status_of.conditions.iter();
        conditions.find(|one| one.type_ == type_ && one.status == status)
    }

    /// Whether a condition is true.
    pub fn is(&self, type_: &str) -> bool {
        self.condition(type_, "True").is_some()
    }

    /// Whether quota is reserved for it, by condition or admission: half a reservation is released
    /// as a whole one.
    pub fn holds_quota(&self) -> bool {
        let admission = self.status.as_ref().and_then(|one| one.admission.as_ref());
        self.is(QUOTA_RESERVED) || admission.is_some()
    }

    /// Returns the states of its admission checks.
    pub fn checks(&self) -> &[Value] {
        self.status
            .as_ref()
            .map_or(&[], |status| &status.admission_checks)
    }
}
