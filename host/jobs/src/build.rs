//! Pure: builds every object that a job is made of. Nothing here can fail: the job is valid.

pub mod access;
pub mod agent;
pub mod environment;
pub mod launcher;
pub mod partitions;
pub mod workers;

use std::collections::BTreeMap;

use ipu_api::names;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::validate::ValidJob;

/// How the admin wants Pods to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodSettings {
    /// Whether workers run on the host's network, privileged, as the original had it.
    pub worker_host_network: bool,
    /// Image that holds `/ipu-agent`.
    pub launcher_image: String,
    /// When that image is pulled; none leaves it to Kubernetes.
    pub launcher_image_pull_policy: Option<String>,
}

/// What a Pod of the job is there for: the value of the role label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It runs an instance, or a part of one.
    Worker,
    /// It runs the launcher's command.
    Launcher,
}

impl Role {
    /// Value of the role label.
    pub fn label(self) -> &'static str {
        match self {
            Self::Worker => "worker",
            Self::Launcher => "launcher",
        }
    }
}

/// Labels of everything that belongs to a job.
pub fn labels(job: &ValidJob) -> BTreeMap<String, String> {
    [
        (names::MANAGED_BY_LABEL, names::MANAGED_BY.to_owned()),
        (names::JOB_NAME_LABEL, names::label_value(&job.name)),
        (names::JOB_UID_LABEL, job.uid.clone()),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value))
    .collect()
}

/// Metadata of an object inside the job's namespace.
fn metadata(job: &ValidJob, name: String) -> ObjectMeta {
    ObjectMeta {
        name: Some(name),
        namespace: Some(job.namespace.clone()),
        labels: Some(labels(job)),
        owner_references: Some(vec![job.owner_reference()]),
        ..ObjectMeta::default()
    }
}
