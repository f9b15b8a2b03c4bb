//! Pure: builds all objects of a job. It cannot fail, because the job is valid.

pub mod access;
pub mod agent;
pub mod agent_files;
pub mod downward_file;
pub mod environment;
pub mod hostfile;
pub mod launcher;
pub mod launcher_labels;
pub mod launcher_names;
pub mod launcher_otherwise;
pub mod launcher_rules;
pub mod partitions;
pub mod resource_value;
pub mod shared_rights;
pub mod workers;

use std::collections::BTreeMap;
use std::time::Duration;

use ipu_api::labels;
use ipu_api::naming;
use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

pub use self::agent::AgentDelivery;
use super::validate::ValidJob;

/// The admin's settings for Pods.
#[derive(Clone, Debug, PartialEq)]
pub struct PodSettings {
    /// Whether workers use the host network and are privileged, as in Graphcore's operator.
    pub worker_host_network: bool,
    /// Whether workers avoid nodes with a failed check of ipu-node.
    pub avoid_failed_nodes: bool,
    /// Image that contains `/ipu-agent`.
    pub launcher_image: String,
    /// Pull policy of that image. `None` uses the default of Kubernetes.
    pub launcher_image_pull_policy: Option<String>,
    /// How the agent of that image gets into Pods.
    pub agent_delivery: AgentDelivery,
    /// Requests and limits of launchers whose job sets none.
    pub launcher_resources: Option<ResourceRequirements>,
    /// Name of the admission policy that binds launchers with shared rights to the workers of their
    /// own job. `None`: each launcher gets rights of its own.
    pub launcher_policy: Option<String>,
    /// Time after which Pods that cannot start give their partition back. `None` disables that.
    pub start_timeout: Option<Duration>,
}

/// Whether the workers of a job use the network of their node.
fn uses_host_network(job: &ValidJob, settings: &PodSettings) -> bool {
    settings.worker_host_network || job.template.spec.host_network == Some(true)
}

/// Returns the labels of all objects of a job.
pub fn job_labels(job: &ValidJob) -> BTreeMap<String, String> {
    [
        (labels::MANAGED_BY_LABEL, labels::MANAGED_BY.to_owned()),
        (labels::JOB_NAME_LABEL, naming::label_value(&job.name)),
        (labels::JOB_UID_LABEL, job.uid.clone()),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value))
    .collect()
}

/// Builds the metadata of an object in the job's namespace.
fn metadata(job: &ValidJob, name: String) -> ObjectMeta {
    ObjectMeta {
        name: Some(name),
        namespace: Some(job.namespace.clone()),
        labels: Some(job_labels(job)),
        owner_references: Some(vec![job.owner_reference()]),
        ..ObjectMeta::default()
    }
}
