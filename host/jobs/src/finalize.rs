//! Pure: decides the next step of the deletion of a job.

use std::sync::Arc;

use ipu_api::ipujob_status::IPUJobStatus;
use ipu_api::labels;
use ipu_text::listed;
use jiff::Timestamp;

use super::facts::projection::{ObservedPartition, ObservedPod};
use super::job_conditions::{PARTITIONS_RELEASED, PENDING};
use super::plan::{Deletion, Plan};
use super::status::conditions::Conditions;

/// The progress of a deletion. It does not depend on the spec, so an unreadable job can be deleted.
#[derive(Clone, Debug, PartialEq)]
pub enum Deleting {
    /// Pods remain. The garbage collector waits for the owner, so the operator deletes them.
    Pods {
        /// Deletes those that are not terminating yet.
        plan: Plan,
        /// Names of the remaining Pods, and what keeps them.
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
pub fn deleting(pods: &[Arc<ObservedPod>], partitions: &[Arc<ObservedPartition>]) -> Deleting {
    if !pods.is_empty() {
        let live = pods.iter().filter(|pod| pod.termination.is_none());
        let names = pods.iter().map(|pod| describe_pod(pod));
        return Deleting::Pods {
            plan: Plan {
                delete_pods: live.map(|pod| Deletion::of(&pod.object)).collect(),
                ..Plan::default()
            },
            remaining: names.collect(),
        };
    }
    if !partitions.is_empty() {
        let live = partitions
            .iter()
            .filter(|partition| !partition.is_terminating);
        return Deleting::Partitions {
            plan: Plan {
                delete_partitions: live
                    .map(|partition| Deletion::of(&partition.object))
                    .collect(),
                ..Plan::default()
            },
            remaining: partitions
                .iter()
                .map(|partition| describe(partition))
                .collect(),
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
                listed(remaining.iter(), NAMED_MAX, ", ")
            ),
        ),
        Deleting::Partitions { remaining, .. } => (
            "WaitingForControllers",
            format!(
                "deleting: {}; where a V-IPU controller never comes back, annotate the \
                 IPUPartition with {}=true",
                listed(remaining.iter(), NAMED_MAX, "; "),
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

/// Maximum number of objects that the message names. A job can have hundreds, and each of their
/// ends changes the message.
const NAMED_MAX: usize = 8;

fn describe_pod(pod: &ObservedPod) -> String {
    let name = pod.object.name();
    let termination = pod.termination.as_ref();
    match termination.and_then(|termination| termination.held_by.as_deref()) {
        Some(finalizers) => {
            format!(
                "{name}, which has ended and is kept by the finalizer {finalizers}; who set it has to remove it"
            )
        }
        None => name.to_owned(),
    }
}

fn describe(partition: &ObservedPartition) -> String {
    let name = partition.object.name();
    match partition.state.unusable_reason() {
        Some(reason) => format!("IPUPartition {name}: {reason}"),
        None => format!("IPUPartition {name} is being released"),
    }
}
