//! Pure: adds to a Pod what its admission by Kueue adds to the pod set.

use std::collections::BTreeMap;

use ipu_api::ipujob_status::PodSetUpdate;
use ipu_api::queueing::{LAUNCHER, WORKERS};
use k8s_openapi::api::core::v1::PodSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::Role;
use crate::validate::ValidJob;

/// Adds node labels, tolerations, labels and annotations to a Pod. Labels of the operator itself must be added later.
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

/// Returns the node labels that the workers require. Their partitions must be on a V-IPU controller of such nodes.
pub fn worker_node_selector(job: &ValidJob) -> BTreeMap<String, String> {
    let mut selector = job.template.spec.node_selector.clone();
    if let Some(update) = update(job, Role::Worker) {
        extend(&mut selector, &update.node_selector);
    }
    selector.unwrap_or_default()
}

fn update(job: &ValidJob, role: Role) -> Option<&PodSetUpdate> {
    let name = match role {
        Role::Worker => WORKERS,
        Role::Launcher => LAUNCHER,
    };
    job.pod_set_updates.iter().find(|one| one.name == name)
}

/// Adds entries. An entry of the admission takes precedence: Kueue chose a flavor that the template does not exclude.
fn extend(map: &mut Option<BTreeMap<String, String>>, added: &BTreeMap<String, String>) {
    if !added.is_empty() {
        let entries = added
            .iter()
            .map(|(key, value)| (key.clone(), value.clone()));
        map.get_or_insert_default().extend(entries);
    }
}
