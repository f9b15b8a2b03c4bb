//! Pure: the IPUPartition of a native Pod, and the patches of the Pod.

use ipu_api::ipupartition::{IPUPartition, IPUPartitionSpec, OwnerMetadata, PartitionOptions};
use ipu_api::labels;
use ipu_api::object_ref::ObjectRef;
use ipu_api::partition_request::new_partition;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PodCondition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use crate::partition::{Partition, PartitionRef};
use crate::pod::{NativePod, owner};
use crate::report::Disruption;

/// The IPUPartition that a Pod requests.
pub fn partition(pod: &NativePod, ipus: u32) -> IPUPartition {
    let spec = IPUPartitionSpec {
        owner: owner(&pod.reference),
        slot: 0,
        ipus,
        gcds: 1,
        options: PartitionOptions {
            // A Pod cannot move to another controller: its values of annotations are in its
            // environment.
            pinned: true,
            node_selector: pod.node_selector.clone(),
            scheduling: pod.scheduling.clone(),
            ..PartitionOptions::default()
        },
        owner_metadata: OwnerMetadata {
            labels: pod.labels.clone(),
            annotations: pod.annotations.clone(),
            priority_class_name: pod.priority_class_name.clone(),
        },
        reset_generation: 0,
    };
    let labels = labels::managed(labels::POD_UID_LABEL, &spec.owner.uid);
    new_partition(spec, Some(labels))
}

/// The merge patch by which a Pod claims an IPUPartition of its Workload. The version makes it fail
/// if another Pod was faster.
pub fn claim(pod: &ObjectRef, partition: &Partition, now: Timestamp) -> Value {
    json!({"metadata": {
        "uid": partition.uid,
        "resourceVersion": partition.version.to_string(),
        "labels": {labels::POD_UID_LABEL: pod.uid},
        "annotations": {
            labels::CLAIMED_BY_ANNOTATION: pod.name,
            labels::CLAIMED_AT_ANNOTATION: now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        },
    }})
}

/// The merge patch that gives a Pod its partition and removes its last gate. The version makes it
/// fail for a Pod that has changed, so that no gate is removed unseen.
pub fn binding(pod: &NativePod, partition_ref: &PartitionRef) -> Value {
    let controller = &partition_ref.controller;
    let (key, value) = (&controller.label_key, &controller.label_value);
    // The webhook takes the added entry out of a copy of the Pod, and only that one.
    let is_added = !pod.node_selector.contains_key(key);
    let mut binding = json!({
        "metadata": {
            "uid": pod.reference.uid,
            "resourceVersion": pod.resource_version,
            "labels": {labels::PARTITION_ID_LABEL: partition_ref.id},
            "annotations": {
                labels::VIPU_HOST_ANNOTATION: controller.host,
                labels::VIPU_PORT_ANNOTATION: controller.port.to_string(),
            },
        },
        "spec": {
            "nodeSelector": {key.as_str(): value},
            "schedulingGates": null,
        },
    });
    if is_added {
        let annotations = &mut binding["metadata"]["annotations"];
        annotations[labels::NODE_LABEL_ANNOTATION] = json!(format!("{key}={value}"));
    }
    binding
}

/// The server-side apply of the condition. The UID makes it fail for another Pod of the name.
pub fn status(pod: &ObjectRef, condition: &PodCondition) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid},
        "status": {"conditions": [condition]},
    })
}

/// The condition of a Pod that is evicted.
pub fn disruption(disruption: &Disruption, now: Timestamp) -> PodCondition {
    PodCondition {
        type_: "DisruptionTarget".to_owned(),
        status: "True".to_owned(),
        reason: Some(disruption.reason.to_owned()),
        message: Some(disruption.message.clone()),
        last_transition_time: Some(Time(now)),
        ..PodCondition::default()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use ipu_api::node_scheduling::NodeScheduling;

    use super::*;
    use crate::samples::{native, partition_ref};

    #[test]
    fn the_partition_is_the_pods_alone_and_survives_it() {
        let mut pod = native(|_| {});
        pod.node_selector = BTreeMap::from([("zone".to_owned(), "a".to_owned())]);
        pod.scheduling = Some(NodeScheduling::default());
        let partition = partition(&pod, 4);
        let spec = &partition.spec;
        assert_eq!((spec.ipus, spec.gcds, spec.slot), (4, 1, 0));
        assert_eq!((&*spec.owner.kind, &*spec.owner.uid), ("Pod", "web-uid"));
        assert!(spec.options.pinned);
        assert_eq!(spec.options.node_selector, pod.node_selector);
        assert_eq!(spec.options.scheduling, pod.scheduling);
        assert_eq!(partition.metadata.owner_references, None);
        assert_eq!(
            partition.metadata.finalizers.as_deref(),
            Some([labels::PARTITION_FINALIZER.to_owned()].as_slice())
        );
        let mut stored = partition;
        stored.metadata.uid = Some("u".to_owned());
        let read = crate::partition::Partition::of(stored).unwrap();
        assert_eq!(read.pod().as_ref(), Some(&*pod.reference));
    }

    #[test]
    fn one_patch_gives_everything_and_removes_the_gate() {
        let mut expected = json!({
            "metadata": {
                "uid": "web-uid", "resourceVersion": "7",
                "labels": {"graphcore.ai/partition-id": "p-web"},
                "annotations": {
                    "graphcore.ai/vipu-host": "pod1", "graphcore.ai/vipu-port": "8090",
                    "graphcore.ai/node-label": "ipunode=pod1",
                },
            },
            "spec": {"nodeSelector": {"ipunode": "pod1"}, "schedulingGates": null},
        });
        assert_eq!(binding(&native(|_| {}), &partition_ref("p-web")), expected);
        let selecting = native(|pod| pod["spec"]["nodeSelector"] = json!({"ipunode": "pod1"}));
        let annotations = expected["metadata"]["annotations"].as_object_mut().unwrap();
        annotations.remove("graphcore.ai/node-label");
        assert_eq!(binding(&selecting, &partition_ref("p-web")), expected);
    }
}
