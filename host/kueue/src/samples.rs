//! Jobs, Workloads and partitions for tests.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ipu_api::ipupartition::IPUPartition;
use ipu_jobs::build::{AgentDelivery, PodSettings};
use ipu_jobs::raw::RawJob;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::job::QueuedJob;
use crate::objects::{ResourceFlavorSpec, Workload};
use crate::partitions::JobPartition;
use crate::plan::ObservedJob;

/// A moment in tests.
pub(crate) fn now() -> Timestamp {
    "2026-01-01T00:01:00Z".parse().unwrap()
}

/// The settings of Pods in tests.
pub(crate) fn settings() -> PodSettings {
    PodSettings {
        worker_host_network: false,
        avoid_failed_nodes: false,
        launcher_image: "ipu-operator:1".to_owned(),
        launcher_image_pull_policy: None,
        agent_delivery: AgentDelivery::Init,
        launcher_resources: None,
        launcher_policy: None,
        start_timeout: None,
    }
}

/// The IPUJob `team/train` in the queue `main`: two instances of 4 IPUs with one worker each,
/// suspended and settled, with one change.
pub(crate) fn job(change: impl FnOnce(&mut Value)) -> QueuedJob {
    QueuedJob::of(&job_object(change), &settings()).unwrap()
}

/// The same, as the API server returns it.
pub(crate) fn job_object(change: impl FnOnce(&mut Value)) -> RawJob {
    let mut job = json!({
        "apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUJob",
        "metadata": {
            "namespace": "team", "name": "train", "uid": "train-uid", "resourceVersion": "7", "generation": 3,
            "labels": {"kueue.x-k8s.io/queue-name": "main"},
        },
        "spec": {
            "jobInstances": 2, "ipusPerJobInstance": "4", "suspend": true,
            "workers": {"template": {"spec": {"containers": [{
                "name": "main", "image": "a:1", "resources": {"requests": {"cpu": "1"}},
            }]}}},
        },
        "status": {
            "launcherStatus": "Suspended", "observedGeneration": 3, "desiredReplicas": 2, "lastMessage": "",
            "conditions": [],
        },
    });
    change(&mut job);
    serde_json::from_value(job).unwrap()
}

/// The Workload of that job, with one change.
pub(crate) fn workload(job: &QueuedJob, change: impl FnOnce(&mut Value)) -> Workload {
    let mut object = crate::build::workload(job, &crate::build::Priority::default());
    object["metadata"]["uid"] = json!("workload-uid");
    object["metadata"]["resourceVersion"] = json!("9");
    object["status"] = json!({"conditions": []});
    change(&mut object);
    serde_json::from_value(object).unwrap()
}

/// Adds a condition to a Workload.
pub(crate) fn condition(workload: &mut Value, type_: &str, status: &str, reason: &str) {
    let condition = json!({
        "type": type_, "status": status, "reason": reason, "message": format!("{type_} {reason}"),
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    workload["status"]["conditions"]
        .as_array_mut()
        .unwrap()
        .push(condition);
}

/// Reserves quota of the flavor `pool-a` for a Workload.
pub(crate) fn reserve(workload: &mut Value) {
    condition(workload, "QuotaReserved", "True", "QuotaReserved");
    workload["status"]["admission"] = json!({
        "clusterQueue": "all",
        "podSetAssignments": [{"name": "worker", "flavors": {"graphcore.ai/ipu": "pool-a", "cpu": "pool-a"}}],
    });
}

/// Admits a Workload.
pub(crate) fn admit(workload: &mut Value) {
    reserve(workload);
    condition(workload, "Admitted", "True", "Admitted");
}

/// The partition of an instance, with this status.
pub(crate) fn partition(instance: u32, status: &Value) -> JobPartition {
    let object: IPUPartition = serde_json::from_value(json!({
        "apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUPartition",
        "metadata": {"name": format!("p-{instance}"), "creationTimestamp": "2026-01-01T00:00:55Z"},
        "spec": {
            "owner": {
                "apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUJob", "namespace": "team", "name": "train",
                "uid": "train-uid",
            },
            "slot": instance, "ipus": 4, "gcds": 1,
        },
        "status": status,
    }))
    .unwrap();
    JobPartition::of(&object).unwrap()
}

/// A status of a partition that is ready.
pub(crate) fn ready() -> Value {
    json!({
        "phase": "Ready", "partitionId": "p",
        "controller": {
            "name": "pod1:8090", "host": "pod1", "port": 8090, "labelKey": "ipunode", "labelValue": "pod1",
        },
    })
}

/// State of a job with the flavor `pool-a` and the AdmissionCheck `partitions`.
pub(crate) fn observed_job(
    job: QueuedJob,
    workloads: impl IntoIterator<Item = Workload>,
    partitions: Vec<JobPartition>,
) -> ObservedJob {
    let flavor: ResourceFlavorSpec = serde_json::from_value(json!({
        "nodeLabels": {"pool": "a"},
        "tolerations": [{"key": "ipu", "operator": "Exists"}],
    }))
    .unwrap();
    ObservedJob {
        job,
        workloads: workloads.into_iter().map(Arc::new).collect(),
        partitions,
        flavors: Arc::new(BTreeMap::from([("pool-a".into(), flavor)])),
        checks: Arc::new(BTreeSet::from(["partitions".into()])),
    }
}
