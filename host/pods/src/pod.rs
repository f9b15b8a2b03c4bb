//! Pure: what decisions read of a native Pod.

use std::collections::BTreeMap;
use std::sync::Arc;

use ipu_api::ipupartition::PartitionOwner;
use ipu_api::labels::{
    JOB_UID_LABEL, PARTITION_GATE, PARTITION_ID_LABEL, PARTITION_READY_CONDITION,
    WORKLOAD_ANNOTATION,
};
use ipu_api::node_scheduling::NodeScheduling;
use ipu_api::object_ref::ObjectRef;
use ipu_api::owner_metadata::{bounded_annotations, bounded_labels};
use ipu_api::pod_request::{PodRequest, PodRequestError};
use ipu_runtime::watch_store::version;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodCondition};

use crate::start::Start;

/// A Pod as the owner of an IPUPartition.
pub fn owner(pod: &ObjectRef) -> PartitionOwner {
    PartitionOwner {
        api_version: "v1".to_owned(),
        kind: "Pod".to_owned(),
        namespace: pod.namespace.to_string(),
        name: pod.name.to_string(),
        uid: pod.uid.to_string(),
    }
}

/// Stage in the life of a Pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The gate of the operator is on it, beside these.
    Gated(Vec<String>),
    /// The gate is gone: it can be scheduled, or runs.
    Ungated,
    /// All of its containers have ended for good.
    Ended,
}

/// The termination of a Pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Termination {
    /// End of its grace period.
    pub due: Timestamp,
    /// Its node.
    pub node: Option<String>,
}

impl Termination {
    fn of(pod: &Pod) -> Option<Self> {
        Some(Self {
            due: pod.metadata.deletion_timestamp.as_ref()?.0,
            node: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()),
        })
    }

    /// Returns the node if the grace period is over.
    pub fn overdue_node(&self, now: Timestamp) -> Option<&str> {
        self.node.as_deref().filter(|_| self.due < now)
    }
}

/// Fields of a native Pod that decisions read.
#[derive(Clone, Debug, PartialEq)]
pub struct NativePod {
    /// Its names.
    pub reference: Arc<ObjectRef>,
    /// The version of the object, for preconditions.
    pub resource_version: String,
    /// The same as a number.
    pub version: u64,
    /// Creation time.
    pub created: Option<Timestamp>,
    /// Its request.
    pub request: Result<PodRequest, PodRequestError>,
    /// Stage in its life.
    pub stage: Stage,
    /// Its termination, if it is being deleted.
    pub termination: Option<Termination>,
    /// Its start.
    pub start: Start,
    /// Id of the partition that it uses.
    pub partition_id: Option<String>,
    /// The Workload of Kueue that has partitions for its Pods.
    pub workload: Option<String>,
    /// Whether a controller owns it, which creates another Pod in its place.
    pub has_controller: bool,
    /// Whether that is a StatefulSet, which never has two Pods of one name at a time.
    pub is_of_stateful_set: bool,
    /// Labels that its node must have.
    pub node_selector: BTreeMap<String, String>,
    /// What it requires of its node beside these labels. `None`: it is too much to compare nodes
    /// with.
    pub scheduling: Option<NodeScheduling>,
    /// Name of its PriorityClass.
    pub priority_class_name: Option<String>,
    /// Its labels, bounded.
    pub labels: BTreeMap<String, String>,
    /// Its annotations, bounded.
    pub annotations: BTreeMap<String, String>,
    /// The condition of the operator on it.
    pub condition: Option<PodCondition>,
}

impl NativePod {
    /// Reads a Pod. `None`: it requests no IPUs, or belongs to an IPUJob.
    pub fn of(pod: &Pod) -> Option<Self> {
        let metadata = &pod.metadata;
        let label = |key: &str| metadata.labels.as_ref()?.get(key);
        if label(JOB_UID_LABEL).is_some() {
            return None;
        }
        let request = PodRequest::of_pod(pod).transpose()?;
        let (spec, status) = (pod.spec.as_ref(), pod.status.as_ref());
        let gates = spec.and_then(|spec| spec.scheduling_gates.as_ref());
        let (ours, others): (Vec<_>, Vec<_>) = gates
            .into_iter()
            .flatten()
            .map(|gate| gate.name.clone())
            .partition(|gate| gate == PARTITION_GATE);
        let stage = match status.and_then(|status| status.phase.as_deref()) {
            Some("Succeeded" | "Failed") => Stage::Ended,
            _ if ours.is_empty() => Stage::Ungated,
            _ => Stage::Gated(others),
        };
        let mut owners = metadata.owner_references.iter().flatten();
        let controller = owners.find(|owner| owner.controller == Some(true));
        let annotations = metadata.annotations.as_ref();
        let conditions = status.and_then(|status| status.conditions.as_ref());
        let ours = |condition: &&PodCondition| condition.type_ == PARTITION_READY_CONDITION;
        Some(Self {
            reference: Arc::new(ObjectRef::of(metadata)?),
            resource_version: metadata.resource_version.clone().unwrap_or_default(),
            version: version(metadata),
            created: metadata.creation_timestamp.as_ref().map(|time| time.0),
            request,
            stage,
            termination: Termination::of(pod),
            start: Start::of(pod),
            partition_id: label(PARTITION_ID_LABEL).cloned(),
            workload: annotations.and_then(|all| all.get(WORKLOAD_ANNOTATION).cloned()),
            has_controller: controller.is_some(),
            is_of_stateful_set: controller.is_some_and(|owner| owner.kind == "StatefulSet"),
            node_selector: spec
                .and_then(|spec| spec.node_selector.clone())
                .unwrap_or_default(),
            scheduling: spec.and_then(NodeScheduling::of),
            priority_class_name: spec.and_then(|spec| spec.priority_class_name.clone()),
            labels: bounded_labels(metadata.labels.iter().flatten()),
            annotations: bounded_annotations(metadata.annotations.iter().flatten()),
            condition: conditions.into_iter().flatten().find(ours).cloned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::samples::pod;

    #[test]
    fn only_pods_that_request_ipus_and_belong_to_no_job_are_read() {
        assert!(NativePod::of(&pod(|_| {})).is_some());
        let without = pod(|pod| pod["metadata"]["annotations"] = json!({}));
        assert_eq!(NativePod::of(&without), None);
        let of_job = pod(|pod| pod["metadata"]["labels"]["graphcore.ai/job-uid"] = json!("u"));
        assert_eq!(NativePod::of(&of_job), None);
        let unreadable = pod(|pod| {
            pod["metadata"]["annotations"]["graphcore.ai/ipu"] = json!("four");
        });
        assert!(NativePod::of(&unreadable).unwrap().request.is_err());
    }

    #[test]
    fn the_stage_follows_gates_and_phase() {
        let ours = json!({"name": "graphcore.ai/partition"});
        let kueue = json!({"name": "kueue.x-k8s.io/admission"});
        let cases = [
            (json!([ours]), "Pending", Stage::Gated(vec![])),
            (
                json!([kueue, ours]),
                "Pending",
                Stage::Gated(vec!["kueue.x-k8s.io/admission".to_owned()]),
            ),
            (json!([kueue]), "Pending", Stage::Ungated),
            (json!(null), "Running", Stage::Ungated),
            (json!(null), "Succeeded", Stage::Ended),
            (json!([ours]), "Failed", Stage::Ended),
        ];
        for (gates, phase, expected) in cases {
            let pod = pod(|pod| {
                pod["spec"]["schedulingGates"] = gates.clone();
                pod["status"]["phase"] = json!(phase);
            });
            assert_eq!(
                NativePod::of(&pod).unwrap().stage,
                expected,
                "{gates} {phase}"
            );
        }
    }
}
