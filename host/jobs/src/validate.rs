//! Pure: validates an IPUJob into a `ValidJob`, and decides whether it may start.

mod launcher;

use std::collections::BTreeMap;

use guest_validation::rules::{self, Settings, Violation};
use ipu_api::API_VERSION;
use ipu_api::ipujob::{CleanPodPolicy, FailurePolicy, IPUJob, is_managed_by_another};
use ipu_api::ipujob_status::{IPUJobStatus, JobAdmission, PodSetUpdate};
use ipu_api::ipupartition::PartitionOwner;
use ipu_api::labels;
use ipu_api::naming;
use ipu_api::pod_template::{PodTemplateError, canonical, fill_nulls};
use ipu_api::queueing;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Resource;
use serde_json::Value;
use thiserror::Error;

use super::restart::RestartRule;
use super::rolling_update::Strategy;
pub use launcher::ValidLauncher;

/// The ServiceAccount of Pods that name none. All of them would get its rights.
pub const DEFAULT_ACCOUNT: &str = "default";

/// A job that the operator can reconcile: all numbers are in range, and there is a first container.
#[derive(Clone, Debug, PartialEq)]
pub struct ValidJob {
    /// Name of the IPUJob.
    pub name: String,
    /// Namespace of the IPUJob.
    pub namespace: String,
    /// Labels of the IPUJob.
    pub labels: BTreeMap<String, String>,
    /// Annotations of the IPUJob.
    pub annotations: BTreeMap<String, String>,
    /// UID of the IPUJob: another object of the same name is another job.
    pub uid: String,
    /// The `metadata.generation` that was read.
    pub generation: Option<i64>,
    /// Creation time of the IPUJob.
    pub created: Option<Timestamp>,
    /// Desired number of instances, each with its own partition.
    pub instances: u32,
    /// Size of each instance.
    pub size: Size,
    /// The launcher of a parallel job.
    pub launcher: Option<ValidLauncher>,
    /// Template of the worker Pods.
    pub template: Template,
    /// Pods to delete when the job has finished.
    pub clean_pod_policy: CleanPodPolicy,
    /// Restart rule.
    pub restart: RestartRule,
    /// Update strategy after a change of the template.
    pub strategy: Strategy,
    /// Effect of a failed worker on its instance. Without effect if there is a launcher.
    pub failure_policy: FailurePolicy,
    /// Whether it is suspended.
    pub suspension: Suspension,
    /// Whether Kueue has admitted it from a queue: only Kueue starts it again after it has released
    /// its partitions.
    pub is_admitted: bool,
    /// Additions of its admission by Kueue to its Pods.
    pub pod_set_updates: Vec<PodSetUpdate>,
    /// Seconds after its start at which the operator ends it.
    pub active_deadline_seconds: Option<i64>,
    /// Seconds after its end at which the operator deletes it.
    pub ttl_seconds_after_finished: Option<i64>,
    /// Whether its partitions may be reconfigured.
    pub reconfigurable: bool,
    /// Whether its partitions may be moved to other IPUs.
    pub relocatable: bool,
    /// Whether it, or more of it, may start.
    pub start: Start,
}

/// Whether a job, or more of it, may start. Rules and limits apply to the start: a running job may
/// finish when they become stricter.
#[derive(Clone, Debug, PartialEq)]
pub enum Start {
    /// It violates no rule.
    Allowed,
    /// It violates rules: the operator requests no further partition.
    Refused(ValidateError),
    /// Its spec is unreadable: the operator creates nothing more for it.
    Unreadable(ValidateError),
}

/// Whether a job is suspended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suspension {
    /// It is not.
    Active,
    /// It has neither Pods nor partitions.
    Suspended,
    /// It has no Pods, and its partitions are created for its admission.
    Reserving,
    /// It is in a queue of Kueue and not admitted, whatever its spec says. It has neither Pods nor
    /// partitions.
    Unadmitted,
}

/// The size of each instance of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Number of IPUs of the partition: a power of two.
    pub ipus: u32,
    /// Number of worker Pods, which is the number of GCDs: at least 1.
    pub workers: u32,
    /// Number of model replicas of each worker: at least 1.
    pub replicas_per_worker: u32,
}

impl Size {
    /// Returns the number of model replicas of the whole partition.
    pub fn replicas(self) -> u32 {
        self.workers * self.replicas_per_worker
    }
}

/// The user's Pod template.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Template {
    /// Labels and annotations.
    pub metadata: ObjectMeta,
    /// The Pod without its containers.
    pub spec: PodSpec,
    /// The first container, which runs the user's program.
    pub first: Container,
    /// The other containers.
    pub others: Vec<Container>,
    /// Hash of its text.
    pub hash: String,
    /// Hash of its canonical form, which templates that mean the same have in common.
    pub canonical_hash: String,
}

impl Template {
    /// Returns the name of the workers' ServiceAccount. The admission of Pods uses `default` where
    /// they name none.
    pub fn service_account(&self) -> &str {
        let names = [&self.spec.service_account_name, &self.spec.service_account];
        let mut names = names.into_iter().flatten().map(String::as_str);
        names
            .find(|name| !name.is_empty())
            .unwrap_or(DEFAULT_ACCOUNT)
    }
}

/// The reason for which a job is invalid.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum ValidateError {
    /// The object is not an IPUJob. Normally the schema refuses it.
    #[error("{field} cannot be read: {reason}; correct it with `kubectl edit`")]
    Undecodable {
        /// Path of the field.
        field: String,
        /// The found and the expected type.
        reason: String,
    },
    /// The job violates rules. Normally the webhook refuses it.
    #[error("{}", sentences(.0))]
    Broken(Vec<Violation>),
}

impl ValidateError {
    /// Returns the reason of the condition and of the event.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Undecodable { .. } => "IPUJobUndecodable",
            Self::Broken(_) => "IPUJobInvalid",
        }
    }
}

/// Decodes a job. An object that does not match the schema is an error here, and not in the watch,
/// where it would stop all others. The status is left out: users cannot correct it, and the next
/// write of it replaces it.
fn decode(object: &Value) -> Result<IPUJob, ValidateError> {
    let mut object = object.clone();
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    if let Some(launcher) = object.pointer_mut("/spec/launcher") {
        fill_nulls(launcher);
    }
    serde_path_to_error::deserialize(&object).map_err(|error| ValidateError::Undecodable {
        field: error.path().to_string(),
        reason: error.inner().to_string(),
    })
}

/// Decodes the status. An unreadable one counts as empty.
pub fn decode_status(object: &Value) -> IPUJobStatus {
    object
        .get("status")
        .and_then(|status| serde_json::from_value(status.clone()).ok())
        .unwrap_or_default()
}

/// Returns what Kueue has granted to a job. A job that another controller manages has the status of
/// another cluster.
pub fn admission(object: &Value) -> Option<JobAdmission> {
    let admission = object.get("status")?.get("admission")?;
    (!is_managed_by_another(object))
        .then(|| serde_json::from_value(admission.clone()).ok())
        .flatten()
}

/// Whether a job waits in a queue of Kueue for its admission. Its `spec.suspend` does not show
/// it: every user of the job may set that field.
pub fn awaits_admission(object: &Value) -> bool {
    queueing::is_queued(object) && admission(object).is_none()
}

/// Validates a job. An error means that it lacks a field that even a running job needs.
///
/// `max_ipus` limits the size of a partition of jobs that have not started. The webhooks check the
/// same rules; this check is for objects that bypassed them, and for a replaced validation guest
/// with weaker rules.
pub fn read(object: &Value, max_ipus: u32) -> Result<ValidJob, ValidateError> {
    let job = decode(object)?;
    let unlimited = Settings {
        max_ipus_per_job: u32::MAX,
    };
    let sizing = rules::sizing(&object["spec"], unlimited).map_err(ValidateError::Broken)?;
    let metadata = &job.metadata;
    let clean_pod_policy = job.spec.clean_pod_policy.unwrap_or_default();
    let admission = admission(object).unwrap_or_default();
    Ok(ValidJob {
        name: metadata.name.clone().unwrap_or_default(),
        namespace: metadata.namespace.clone().unwrap_or_default(),
        labels: metadata.labels.clone().unwrap_or_default(),
        annotations: metadata.annotations.clone().unwrap_or_default(),
        uid: metadata.uid.clone().unwrap_or_default(),
        generation: metadata.generation,
        created: metadata.creation_timestamp.as_ref().map(|time| time.0),
        instances: sizing.instances,
        size: Size {
            ipus: sizing.ipus,
            workers: sizing.workers,
            replicas_per_worker: sizing.replicas_per_worker,
        },
        template: template(&job)?,
        clean_pod_policy,
        restart: RestartRule::new(job.spec.restart_policy.as_ref(), clean_pod_policy),
        strategy: Strategy::new(job.spec.workers.strategy.as_ref()),
        failure_policy: job.spec.workers.failure_policy.unwrap_or_default(),
        suspension: match job.spec.suspend {
            // A job that has left its queue waits for no admission.
            Some(true) if admission.reserve_partitions && queueing::is_queued(object) => {
                Suspension::Reserving
            }
            Some(true) => Suspension::Suspended,
            Some(false) | None => Suspension::Active,
        },
        is_admitted: false,
        pod_set_updates: admission.pod_sets,
        active_deadline_seconds: job.spec.active_deadline_seconds,
        ttl_seconds_after_finished: job.spec.ttl_seconds_after_finished.map(i64::from),
        reconfigurable: is_set(&job, labels::RECONFIGURABLE_ANNOTATION),
        relocatable: is_set(&job, labels::RELOCATABLE_ANNOTATION),
        launcher: launcher::launcher(job.spec)?,
        start: start(object, max_ipus),
    })
}

/// Checks the rules for the start of a job.
fn start(object: &Value, max_ipus: u32) -> Start {
    let settings = Settings {
        max_ipus_per_job: max_ipus,
    };
    let violations = rules::check(object, None, settings).violations;
    if violations.is_empty() {
        Start::Allowed
    } else {
        Start::Refused(ValidateError::Broken(violations))
    }
}

impl Start {
    /// Returns the reason for which nothing more of the job starts, if there is one.
    pub fn refusal(&self) -> Option<&ValidateError> {
        match self {
            Self::Allowed => None,
            Self::Refused(error) | Self::Unreadable(error) => Some(error),
        }
    }

    /// Returns the reason for which the operator creates nothing more for the job, if there is one.
    pub fn unreadable(&self) -> Option<&ValidateError> {
        match self {
            Self::Allowed | Self::Refused(_) => None,
            Self::Unreadable(error) => Some(error),
        }
    }
}

impl ValidJob {
    /// Returns the owner reference of the job's objects in its namespace.
    pub fn owner_reference(&self) -> OwnerReference {
        OwnerReference {
            api_version: API_VERSION.to_owned(),
            kind: IPUJob::kind(&()).into_owned(),
            name: self.name.clone(),
            uid: self.uid.clone(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        }
    }

    /// Returns the owner of the job's partitions.
    pub fn partition_owner(&self) -> PartitionOwner {
        PartitionOwner {
            api_version: API_VERSION.to_owned(),
            kind: IPUJob::kind(&()).into_owned(),
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            uid: self.uid.clone(),
        }
    }

    /// Returns the index over all instances of worker `gcd` of `instance`.
    pub fn worker_index(&self, instance: u32, gcd: u32) -> u32 {
        instance * self.size.workers + gcd
    }
}

fn sentences(violations: &[Violation]) -> String {
    let sentences: Vec<String> = violations.iter().map(ToString::to_string).collect();
    sentences.join("; ")
}

fn template(job: &IPUJob) -> Result<Template, ValidateError> {
    let raw = &job.spec.workers.template;
    let pod =
        raw.parse().map_err(
            |PodTemplateError { field, reason }| ValidateError::Undecodable {
                field: format!("spec.workers.template.{field}"),
                reason,
            },
        )?;
    let mut spec = pod.spec.unwrap_or_default();
    let mut containers = std::mem::take(&mut spec.containers).into_iter();
    let first = containers.next().ok_or_else(|| {
        ValidateError::Broken(vec![Violation {
            field: "spec.workers.template.spec.containers".to_owned(),
            message: "is empty; say there what the workers run".to_owned(),
        }])
    })?;
    Ok(Template {
        metadata: pod.metadata.unwrap_or_default(),
        spec,
        first,
        others: containers.collect(),
        hash: naming::template_hash(&raw.0.to_string()),
        canonical_hash: naming::template_hash(&canonical(&raw.0).to_string()),
    })
}

/// Whether an annotation of the job is `true`.
fn is_set(job: &IPUJob, annotation: &str) -> bool {
    job.metadata
        .annotations
        .as_ref()
        .and_then(|annotations| annotations.get(annotation))
        .is_some_and(|value| value == "true")
}
