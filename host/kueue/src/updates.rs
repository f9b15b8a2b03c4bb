//! Pure: what the admission of a Workload adds to the Pods of its job.

use std::collections::{BTreeMap, BTreeSet};

use ipu_api::ipujob_status::PodSetUpdate;
use ipu_api::queueing::POD_SET_LABEL;

use crate::objects::{PodSetAssignment, ResourceFlavorSpec, Workload};

/// Returns the updates of each pod set: its number of Pods, the node labels and tolerations of its
/// flavors, and what admission checks add. `None`: the Workload has no quota, or a flavor is not
/// known yet.
pub fn updates(
    workload: &Workload,
    flavors: &BTreeMap<Box<str>, ResourceFlavorSpec>,
) -> Option<Vec<PodSetUpdate>> {
    let admission = workload.status.as_ref()?.admission.as_ref()?;
    let assignments = admission.pod_set_assignments.iter();
    let mut updates = assignments
        .map(|assignment| of_flavors(assignment, flavors))
        .collect::<Option<Vec<_>>>()?;
    for update in &mut updates {
        update.count = count(workload, &update.name);
    }
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

/// Returns the number of Pods of a pod set. Kueue keeps it while quota is reserved. The count of
/// the assignment lacks the Pods that were reclaimable before, such as those of an instance that
/// had ended, and does not say which.
fn count(workload: &Workload, pod_set: &str) -> Option<i32> {
    let mut sets = workload.spec.pod_sets.iter();
    let set = sets.find(|one| one.name == pod_set)?;
    i32::try_from(set.count).ok()
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::samples::{job, observed_job, reserve, workload};

    #[test]
    fn the_count_of_a_pod_set_includes_the_pods_of_an_instance_that_ended_before() {
        let job = job(|_| {});
        let workload = workload(&job, |workload| {
            workload["status"]["reclaimablePods"] = json!([{"name": "worker", "count": 1}]);
            reserve(workload);
            workload["status"]["admission"]["podSetAssignments"][0]["count"] = json!(1);
        });
        let seen = observed_job(job, [], vec![]);
        let updates = updates(&workload, &seen.flavors).unwrap();
        assert_eq!(updates[0].count, Some(2));
    }

    #[test]
    fn an_admission_check_does_not_change_the_count_of_a_pod_set() {
        let job = job(|_| {});
        let workload = workload(&job, |workload| {
            reserve(workload);
            let update = json!({"name": "worker", "count": 9, "labels": {"a": "b"}});
            workload["status"]["admissionChecks"] =
                json!([{"name": "other", "state": "Ready", "podSetUpdates": [update]}]);
        });
        let seen = observed_job(job, [], vec![]);
        let updates = updates(&workload, &seen.flavors).unwrap();
        assert_eq!(updates[0].labels["a"], "b");
        assert_eq!(updates[0].count, Some(2));
    }
}
