//! Pure: adds to a Pod what its admission by Kueue adds to the pod set, and compares the job's size
//! with the admission.

use std::collections::BTreeMap;

use ipu_api::ipujob_status::PodSetUpdate;
use ipu_api::node_scheduling::NodeScheduling;
use ipu_api::queueing::{LAUNCHER, WORKERS};
use k8s_openapi::api::core::v1::{NodeSelectorRequirement, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::node_affinity;
use super::validate::ValidJob;

/// The field of a node that has its name.
const NODE_NAME: &str = "metadata.name";

/// The role of a Pod of the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Runs an instance, or a part of one.
    Worker,
    /// Runs the launcher's command.
    Launcher,
}

impl Role {
    /// Returns the value of the role label.
    pub fn label(self) -> &'static str {
        match self {
            Self::Worker => "worker",
            Self::Launcher => "launcher",
        }
    }
}

/// Adds node labels, tolerations, labels and annotations to a Pod. Labels of the operator itself
/// must be added later.
pub fn add_to_pod(job: &ValidJob, role: Role, spec: &mut PodSpec, metadata: &mut ObjectMeta) {
    let Some(update) = update(job, role) else {
        return;
    };
    extend(&mut spec.node_selector, &update.node_selector);
    extend(&mut metadata.labels, &update.labels);
    extend(&mut metadata.annotations, &update.annotations);
    if !update.tolerations.is_empty() {
        let tolerations = spec.tolerations.get_or_insert_default();
        tolerations.extend(update.tolerations.iter().cloned());
    }
}

/// Returns the node labels that the workers require. Their partitions must be on a V-IPU controller
/// of such nodes.
pub fn worker_node_selector(job: &ValidJob) -> BTreeMap<String, String> {
    let mut selector = job.template.spec.node_selector.clone();
    if let Some(update) = update(job, Role::Worker) {
        extend(&mut selector, &update.node_selector);
    }
    selector.unwrap_or_default()
}

/// Returns what the workers require of a node beside its labels. `None`: it is too much to compare
/// nodes with.
pub fn worker_scheduling(job: &ValidJob) -> Option<NodeScheduling> {
    let template = &job.template.spec;
    let mut spec = PodSpec {
        affinity: template.affinity.clone(),
        tolerations: template.tolerations.clone(),
        ..PodSpec::default()
    };
    let added = update(job, Role::Worker).map(|update| &update.tolerations);
    if let Some(added) = added.filter(|added| !added.is_empty()) {
        let tolerations = spec.tolerations.get_or_insert_default();
        tolerations.extend(added.iter().cloned());
    }
    let node = template.node_name.as_ref().filter(|name| !name.is_empty());
    if let Some(node) = node {
        require_node(&mut spec, node);
    }
    NodeScheduling::of(&spec)
}

/// Adds the node of a template with `nodeName`. The kubelet of that node compares the labels of the
/// partition's V-IPU controller with its own, so no other node will do.
fn require_node(spec: &mut PodSpec, node: &str) {
    node_affinity::require(spec, |term| {
        let fields = term.match_fields.get_or_insert_default();
        fields.push(NodeSelectorRequirement {
            key: NODE_NAME.to_owned(),
            operator: "In".to_owned(),
            values: Some(vec![node.to_owned()]),
        });
    });
}

/// Whether an instance exceeds the admission of a job that has grown: Kueue stops the job, and
/// admits it with its new size. The surge instances of a rolling update do not: they are beyond the
/// job's own size.
pub fn exceeds_admission(job: &ValidJob, instance: u32) -> bool {
    let Some(pods) = update(job, Role::Worker).and_then(|update| update.count) else {
        return false;
    };
    let admitted = u32::try_from(pods).unwrap_or(0);
    // As `ipu-kueue` counts the Pods of the workers.
    let fits = |instances: u32| instances.saturating_mul(job.size.workers) <= admitted;
    !fits(job.instances) && !fits(instance.saturating_add(1))
}

fn update(job: &ValidJob, role: Role) -> Option<&PodSetUpdate> {
    let name = match role {
        Role::Worker => WORKERS,
        Role::Launcher => LAUNCHER,
    };
    job.pod_set_updates.iter().find(|one| one.name == name)
}

/// Adds entries. An entry of the admission takes precedence: Kueue chose a flavor that the template
/// does not exclude.
fn extend(map: &mut Option<BTreeMap<String, String>>, added: &BTreeMap<String, String>) {
    if !added.is_empty() {
        let entries = added
            .iter()
            .map(|(key, value)| (key.clone(), value.clone()));
        map.get_or_insert_default().extend(entries);
    }
}
