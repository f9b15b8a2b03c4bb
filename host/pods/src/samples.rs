//! Pods and IPUPartitions for tests.

use ipu_api::ipupartition::{ControllerRef, IPUPartition, PartitionOwner};
use ipu_api::naming;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use crate::partition::{Partition, PartitionRef};
use crate::pod::NativePod;

/// The Pod `team/web`, which requests 4 IPUs and is gated, with one change.
pub(crate) fn pod(change: impl FnOnce(&mut Value)) -> Pod {
    let mut pod = json!({
        "metadata": {
            "namespace": "team", "name": "web", "uid": "web-uid", "resourceVersion": "7",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"graphcore.ai/native-pod": "true"},
            "annotations": {"graphcore.ai/ipu": "4"},
        },
        "spec": {
            "schedulingGates": [{"name": "graphcore.ai/partition"}],
            "containers": [{"name": "main", "image": "a:1"}],
        },
        "status": {"phase": "Pending"},
    });
    change(&mut pod);
    serde_json::from_value(pod).unwrap()
}

/// The same, as it is read.
pub(crate) fn native(change: impl FnOnce(&mut Value)) -> NativePod {
    NativePod::of(&pod(change)).unwrap()
}

/// The IPUPartition of that Pod, with one change.
pub(crate) fn partition(change: impl FnOnce(&mut Value)) -> IPUPartition {
    let owner = PartitionOwner {
        api_version: "v1".to_owned(),
        kind: "Pod".to_owned(),
        namespace: "team".to_owned(),
        name: "web".to_owned(),
        uid: "web-uid".to_owned(),
    };
    let mut object = json!({
        "apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUPartition",
        "metadata": {
            "name": naming::partition_object(&owner, 0), "uid": "partition-uid",
            "resourceVersion": "7", "labels": {"graphcore.ai/pod-uid": "web-uid"},
        },
        "spec": {"owner": owner, "slot": 0, "ipus": 4, "gcds": 1},
    });
    change(&mut object);
    serde_json::from_value(object).unwrap()
}

/// The same, as it is read, with this state and the id `p-web`.
pub(crate) fn offering(state: crate::partition::State) -> Partition {
    let mut read = Partition::of(partition(|_| {})).unwrap();
    read.id = Some("p-web".to_owned());
    read.state = state;
    read
}

/// A partition on the first controller.
pub(crate) fn partition_ref(id: &str) -> PartitionRef {
    PartitionRef {
        controller: ControllerRef {
            name: "pod1:8090".to_owned(),
            host: "pod1".to_owned(),
            port: 8090,
            label_key: "ipunode".to_owned(),
            label_value: "pod1".to_owned(),
        },
        id: id.to_owned(),
    }
}
