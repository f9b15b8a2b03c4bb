//! Pure: decides the next step of the deletion of a job.

use ipu_api::ipujob_status::IPUJobStatus;
use ipu_api::ipupartition::IPUPartition;
use ipu_api::labels;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;

use super::facts::partition;
use super::plan::{Deletion, Plan};
use super::report::conditions::Conditions;
use super::report::{PARTITIONS_RELEASED, PENDING};

/// The progress of a deletion. It does not depend on the spec, so an unreadable job can be deleted.
#[derive(Clone, Debug, PartialEq)]
pub enum Deleting {
    /// Pods remain. The garbage collector waits for the owner, so the operator deletes them.
    Pods {
        /// Deletes those that are not terminating yet.
        plan: Plan,
        /// Names of the remaining Pods.
        remaining: Vec<String>,
    },
    /// Partitions remain.
    Partitions {
        /// Releases those that are not terminating yet.
        plan: Plan,
        /// The states of the remaining partitions.
        remaining: Vec<String>,
    },
    /// Nothing remains: the finalizer can be removed.
    Done,
}

/// Decides the next step from the remaining objects.
pub fn deleting(pods: &[Pod], partitions: &[IPUPartition]) -> Deleting {
    if !pods.is_empty() {
        return Deleting::Pods {
            plan: Plan {
                delete_pods: pods.iter().filter_map(deletion).collect(),
                ..Plan::default()
            },
            remaining: pods
                .iter()
                .filter_map(|pod| pod.metadata.name.clone())
                .collect(),
        };
    }
    if !partitions.is_empty() {
        return Deleting::Partitions {
            plan: Plan {
                delete_partitions: partitions.iter().filter_map(deletion).collect(),
                ..Plan::default()
            },
            remaining: partitions.iter().map(describe).collect(),
        };
    }
    Deleting::Done
}

/// Builds the status of a job that is being deleted: the remaining objects, and the remedy.
pub fn status(deleting: &Deleting, old: &IPUJobStatus, now: Timestamp) -> IPUJobStatus {
    let mut conditions = Conditions::new(&old.conditions, now);
    let (reason, message) = match deleting {
        Deleting::Pods { remaining, .. } => (
            "WaitingForPods",
            format!(
                "deleting: waiting for Pods to end: {}",
                remaining.join(", ")
            ),
        ),
        Deleting::Partitions { remaining, .. } => (
            "WaitingForControllers",
            format!(
                "deleting: {}; where a V-IPU controller never comes back, annotate the \
                 IPUPartition with {}=true",
                remaining.join("; "),
                labels::FORCE_ANNOTATION
            ),
        ),
        Deleting::Done => return old.clone(),
    };
    conditions.set(PARTITIONS_RELEASED, false, reason, &message);
    conditions.set_false(PENDING);
    IPUJobStatus {
        last_message: message,
        conditions: conditions.into_vec(),
        ..old.clone()
    }
}

fn describe(partition: &IPUPartition) -> String {
    let name = partition.metadata.name.as_deref().unwrap_or_default();
    match partition::state(Some(partition), None).unusable_reason() {
        Some(reason) => format!("IPUPartition {name}: {reason}"),
        None => format!("IPUPartition {name} is being released"),
    }
}

/// Returns the deletion of an object, unless it is terminating.
fn deletion<K: kube::Resource>(object: &K) -> Option<Deletion> {
    let metadata = object.meta();
    if metadata.deletion_timestamp.is_some() {
        return None;
    }
    Deletion::of(metadata)
}
