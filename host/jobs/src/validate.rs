//! Pure: reads an IPUJob into a `ValidJob`, a form that cannot be wrong, and says what keeps it from being
//! started.

use std::collections::BTreeMap;

use guest_validation::rules::{self, Settings, Violation};
use ipu_api::ipujob::{CleanPodPolicy, IPUJob, IPUJobSpec};
use ipu_api::ipupartition::PartitionOwner;
use ipu_api::names;
use ipu_api::pod_template::PodTemplateError;
use ipu_api::{API_VERSION, ipujob_status::IPUJobStatus};
use k8s_openapi::api::core::v1::{Container, EnvVar, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Resource;
use serde_json::Value;
use thiserror::Error;

use super::restart::RestartRule;
use super::rollout::Strategy;

/// A job that can be carried out: every number is a number, and there is a first container.
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
    /// Instances wanted; each has a partition of its own.
    pub instances: u32,
    /// What each instance consists of.
    pub size: Size,
    /// The launcher of a parallel job.
    pub launcher: Option<ValidLauncher>,
    /// What the worker Pods are made from.
    pub template: Template,
    /// What is deleted once the job has finished.
    pub clean_pod_policy: CleanPodPolicy,
    /// When it runs again after it has ended.
    pub restart: RestartRule,
    /// How its Pods are replaced when the template changes.
    pub strategy: Strategy,
    /// Whether it is to rest.
    pub suspend: bool,
    /// Seconds from its start after which it is ended.
    pub active_deadline_seconds: Option<i64>,
    /// Seconds from its end after which it is deleted.
    pub ttl_seconds_after_finished: Option<i64>,
    /// Whether its partitions may be reconfigured.
    pub reconfigurable: bool,
    /// Whether its partitions may be moved to other IPUs.
    pub relocatable: bool,
    /// Whether it may be started, or more of it.
    pub start: Start,
}

/// Whether a job may be started, or more of it. Rules and limits are for the start: what runs when they
/// become stricter is carried to its end.
#[derive(Clone, Debug, PartialEq)]
pub enum Start {
    /// It keeps every rule.
    Allowed,
    /// It breaks rules: no further partition is asked for.
    Refused(ValidateError),
    /// Its spec cannot be read: nothing more is made for it.
    Unreadable(ValidateError),
}

/// What each instance of a job consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// IPUs of the partition: a power of two.
    pub ipus: u32,
    /// Worker Pods, which is the number of GCDs: 1 or more.
    pub workers: u32,
    /// Model replicas of each worker: 1 or more.
    pub replicas_per_worker: u32,
}

impl Size {
    /// Model replicas of the whole partition.
    pub fn replicas(self) -> u32 {
        self.workers * self.replicas_per_worker
    }
}

/// What the launcher Pod runs: the main command of a parallel job, or nothing for a time.
#[derive(Clone, Debug, PartialEq)]
pub struct ValidLauncher {
    /// The command and its arguments: at least one word, but for a session.
    pub command: Vec<String>,
    /// Environment beyond that of the workers' first container.
    pub env: Vec<EnvVar>,
    /// Seconds that an interactive session lasts, from the launcher's start; none with a command.
    pub session: Option<u32>,
}

/// The user's Pod template.
#[derive(Clone, Debug, PartialEq)]
pub struct Template {
    /// Labels and annotations.
    pub metadata: ObjectMeta,
    /// The Pod without its first container.
    pub spec: PodSpec,
    /// The first container, in which the user's program runs.
    pub first: Container,
    /// The other containers.
    pub others: Vec<Container>,
    /// The same for the same template.
    pub hash: String,
}

/// Why a job cannot be carried out.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum ValidateError {
    /// The object does not have the shape of an IPUJob, which the schema should have refused.
    #[error("{field} cannot be read: {reason}; correct it with `kubectl edit`")]
    Undecodable {
        /// Path of the field.
        field: String,
        /// What was found and what was expected.
        reason: String,
    },
    /// The job breaks rules, which the webhook should have refused.
    #[error("{}", sentences(.0))]
    Broken(Vec<Violation>),
}

impl ValidateError {
    /// A word for programs: the reason of the condition and of the event.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Undecodable { .. } => "IPUJobUndecodable",
            Self::Broken(_) => "IPUJobInvalid",
        }
    }
}

/// Reads the object as the API server holds it. An object that was edited past the schema gives an
/// error here, and not in the watch, where it would stop all others.
fn decode(object: &Value) -> Result<IPUJob, ValidateError> {
    serde_path_to_error::deserialize(object).map_err(|error| ValidateError::Undecodable {
        field: error.path().to_string(),
        reason: error.inner().to_string(),
    })
}

/// The status as far as it can be read; an unreadable one counts as none.
pub fn decode_status(object: &Value) -> IPUJobStatus {
    object
        .get("status")
        .and_then(|status| serde_json::from_value(status.clone()).ok())
        .unwrap_or_default()
}

/// Reads a job, as the API server holds it, into the form that cannot be wrong. An error: it is
/// missing what even a job that runs needs.
///
/// `max_ipus` bounds the size of a partition, of jobs that are yet to start. The webhooks ask the same
/// rules; this is for objects that got past them, and for a validation guest that was swapped for a
/// milder one.
pub fn read(object: &Value, max_ipus: u32) -> Result<ValidJob, ValidateError> {
    let job = decode(object)?;
    let unlimited = Settings {
        max_ipus_per_job: u32::MAX,
    };
    let sizing = rules::sizing(&object["spec"], unlimited).map_err(ValidateError::Broken)?;
    let metadata = &job.metadata;
    let clean_pod_policy = job.spec.clean_pod_policy.unwrap_or_default();
    Ok(ValidJob {
        name: metadata.name.clone().unwrap_or_default(),
        namespace: metadata.namespace.clone().unwrap_or_default(),
        labels: metadata.labels.clone().unwrap_or_default(),
        annotations: metadata.annotations.clone().unwrap_or_default(),
        uid: metadata.uid.clone().unwrap_or_default(),
        generation: metadata.generation,
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
        suspend: job.spec.suspend == Some(true),
        active_deadline_seconds: job.spec.active_deadline_seconds,
        ttl_seconds_after_finished: job.spec.ttl_seconds_after_finished.map(i64::from),
        reconfigurable: is_set(&job, names::RECONFIGURABLE_ANNOTATION),
        relocatable: is_set(&job, names::RELOCATABLE_ANNOTATION),
        launcher: launcher(job.spec)?,
        start: start(object, max_ipus),
    })
}

/// Whether an object keeps the rules that a job must keep to be started.
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
    /// Why nothing more of the job is started, where that is so.
    pub fn refusal(&self) -> Option<&ValidateError> {
        match self {
            Self::Allowed => None,
            Self::Refused(error) | Self::Unreadable(error) => Some(error),
        }
    }

    /// Why nothing more is made for the job, where that is so.
    pub fn unreadable(&self) -> Option<&ValidateError> {
        match self {
            Self::Allowed | Self::Refused(_) => None,
            Self::Unreadable(error) => Some(error),
        }
    }
}

impl ValidJob {
    /// Who owns everything that is made for the job inside its namespace.
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

    /// Who owns the job's partitions.
    pub fn partition_owner(&self) -> PartitionOwner {
        PartitionOwner {
            api_version: API_VERSION.to_owned(),
            kind: IPUJob::kind(&()).into_owned(),
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            uid: self.uid.clone(),
        }
    }

    /// Index over all instances of worker `gcd` of `instance`.
    pub fn worker_index(&self, instance: u32, gcd: u32) -> u32 {
        instance * self.size.workers + gcd
    }

    /// Names of all worker Pods that are wanted, in order.
    pub fn worker_names(&self) -> Vec<String> {
        (0..self.instances * self.size.workers)
            .map(|index| names::worker(&self.name, index))
            .collect()
    }
}

fn sentences(violations: &[Violation]) -> String {
    let each: Vec<String> = violations.iter().map(ToString::to_string).collect();
    each.join("; ")
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
        hash: names::template_hash(&raw.0.to_string()),
    })
}

fn launcher(spec: IPUJobSpec) -> Result<Option<ValidLauncher>, ValidateError> {
    let broken = |field: &str, message: &str| {
        let (field, message) = (field.to_owned(), message.to_owned());
        ValidateError::Broken(vec![Violation { field, message }])
    };
    match (spec.launcher, spec.interactive) {
        (Some(launcher), _) if launcher.command.is_empty() => Err(broken(
            "spec.launcher.command",
            "is empty; write the command that starts the job, such as [mpirun, …]",
        )),
        (Some(launcher), _) => Ok(Some(ValidLauncher {
            command: launcher.command,
            env: launcher.env.unwrap_or_default(),
            session: None,
        })),
        (None, Some(interactive)) => {
            let session = u32::try_from(interactive.ttl).map_err(|_| {
                broken(
                    "spec.interactive.ttl",
                    "is negative; say how many seconds the interactive job lasts, such as 3600",
                )
            })?;
            Ok(Some(ValidLauncher {
                command: Vec::new(),
                env: Vec::new(),
                session: Some(session),
            }))
        }
        (None, None) => Ok(None),
    }
}

/// Whether an annotation of the job says `true`.
fn is_set(job: &IPUJob, annotation: &str) -> bool {
    job.metadata
        .annotations
        .as_ref()
        .and_then(|annotations| annotations.get(annotation))
        .is_some_and(|value| value == "true")
}
