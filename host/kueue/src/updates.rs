//! Pure: what the admission of a Workload adds to the Pods of its job.

use std::collections::{BTreeMap, BTreeSet};

use ipu_api::ipujob_status::PodSetUpdate;
use ipu_api::queueing::POD_SET_LABEL;

use crate::objects::{PodSetAssignment, ResourceFlavorSpec, Workload};

/// Returns the updates of each pod set: the node labels and tolerations of its flavors, and what admission checks add.
/// `None`: the Workload has no quota, or a flavor is not known yet.
pub fn updates(
    workload: &Workload,
    flavors: &BTreeMap<Box<str>, ResourceFlavorSpec>,
) -> Option<Vec<PodSetUpdate>> {
    let admission = workload.status.as_ref()?.admission.as_ref()?;
    let assignments = admission.pod_set_assignments.iter();
    let mut updates = assignments
        .map(|assignment| of_flavors(assignment, flavors))
        .collect::<Option<Vec<_>>>()?;
    for added in workload.checks().iter().flat_map(of_check) {
        if let Some(update) = updates.iter_mut().find(|one| one.name == added.name) {
            merge(update, added);
        }
    }
    Some(updates)
}

fn of_flavors(
    assignment: &PodSetAssignment,
    flavors: &BTreeMap<Box<str>, ResourceFlavorSpec>,
) -> Option<PodSetUpdate> {
    let label = (POD_SET_LABEL.to_owned(), assignment.name.clone());
    let mut update = PodSetUpdate {
        name: assignment.name.clone(),
        labels: BTreeMap::from([label]),
        ..PodSetUpdate::default()
    };
    let assigned: BTreeSet<&String> = assignment.flavors.values().collect();
    for name in assigned {
        let flavor = flavors.get(name.as_str())?;
        update.node_selector.extend(flavor.node_labels.clone());
        update
            .tolerations
            .extend(flavor.tolerations.iter().cloned());
    }
    Some(update)
}

fn of_check(check: &serde_json::Value) -> Vec<PodSetUpdate> {
    let updates = check.get("podSetUpdates").cloned();
    updates
        .and_then(|updates| serde_json::from_value(updates).ok())
        .unwrap_or_default()
}

fn merge(update: &mut PodSetUpdate, added: PodSetUpdate) {
    update.labels.extend(added.labels);
    update.annotations.extend(added.annotations);
    update.node_selector.extend(added.node_selector);
    update.tolerations.extend(added.tolerations);
}
