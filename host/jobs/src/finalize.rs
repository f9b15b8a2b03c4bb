//! Pure: what is left to do for a job that is being deleted.

use ipu_api::ipujob_status::IPUJobStatus;
use ipu_api::ipupartition::IPUPartition;
use ipu_api::names;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;

use super::facts::partition;
use super::plan::{Deletion, Plan};
use super::report::conditions::Conditions;
use super::report::{PARTITIONS_RELEASED, PENDING};

/// How far the deletion of a job is. It needs nothing of the job's spec, so that a job which cannot
/// be read can be deleted too.
#[derive(Clone, Debug, PartialEq)]
pub enum Deleting {
    /// Pods are still there. The garbage collector waits for the owner, so they are deleted here.
    Pods {
        /// Those that are not being deleted yet.
        plan: Plan,
        /// Names of all that are still there.
        left: Vec<String>,
    },
    /// Partitions are still there.
    Partitions {
        /// Those that are not being given back yet.
        plan: Plan,
        /// What each one that is still there says.
        left: Vec<String>,
    },
    /// Nothing is left: the finalizer can go.
    Done,
}

/// How far the deletion of a job is, from what is left of it.
pub fn deleting(pods: &[Pod], partitions: &[IPUPartition]) -> Deleting {
    if !pods.is_empty() {
        return Deleting::Pods {
            plan: Plan {
                delete_pods: pods.iter().filter_map(deletion).collect(),
                ..Plan::default()
            },
            left: pods
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
            left: partitions.iter().map(left).collect(),
        };
    }
    Deleting::Done
}

/// The status of a job that is being deleted: what it still waits for, and what would help.
pub fn status(deleting: &Deleting, old: &IPUJobStatus, now: Timestamp) -> IPUJobStatus {
    let mut conditions = Conditions::new(&old.conditions, now);
    let (reason, message) = match deleting {
        Deleting::Pods { left, .. } => (
            "WaitingForPods",
            format!("deleting: waiting for Pods to end: {}", left.join(", ")),
        ),
        Deleting::Partitions { left, .. } => (
            "WaitingForControllers",
            format!(
                "deleting: {}; where a V-IPU controller never comes back, annotate the \
                 IPUPartition with {}=true",
                left.join("; "),
                names::FORCE_ANNOTATION
            ),
        ),
        Deleting::Done => return old.clone(),
    };
    conditions.set(PARTITIONS_RELEASED, false, reason, &message);
    conditions.over(PENDING);
    IPUJobStatus {
        last_message: message,
        conditions: conditions.into_vec(),
        ..old.clone()
    }
}

fn left(found: &IPUPartition) -> String {
    let name = found.metadata.name.as_deref().unwrap_or_default();
    match partition::state(Some(found), None).why_not() {
        Some(why) => format!("IPUPartition {name}: {why}"),
        None => format!("IPUPartition {name} is being released"),
    }
}

/// The deletion of an object that is not being deleted yet.
fn deletion<K: kube::Resource>(object: &K) -> Option<Deletion> {
    let metadata = object.meta();
    if metadata.deletion_timestamp.is_some() {
        return None;
    }
    Deletion::of(metadata)
}
