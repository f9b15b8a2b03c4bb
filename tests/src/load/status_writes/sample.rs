//! A job as users write it, and the status of one that runs.

use kube::api::DynamicObject;
use serde_json::{Value, json};

/// The status of a job that runs, as the controller writes it.
pub(super) fn status(number: usize, is_small: bool) -> Value {
    let time = format!(
        "2026-01-01T{:02}:{:02}:{:02}Z",
        number / 3600,
        number / 60 % 60,
        number % 60
    );
    let condition = |what: &str, status: &str, message: &str| {
        json!({
            "type": what, "status": status, "reason": format!("IPUJob{what}"), "message": message,
            "lastUpdateTime": time, "lastTransitionTime": "2026-01-01T00:00:00Z",
        })
    };
    let conditions = [
        condition(
            "Pending",
            "False",
            "IPUJob default/way is waiting for resources to be ready.",
        ),
        condition(
            "PartitionsReady",
            "True",
            "every instance has its partition",
        ),
        condition("PodsReady", "True", "every Pod exists and runs"),
        condition("Ready", "True", "the job runs"),
        condition("Running", "True", "IPUJob default/way is running."),
        condition(
            "TemplateCurrent",
            "True",
            "every worker was made from the present template",
        ),
    ];
    let mut status = json!({
        "launcherStatus": "Running",
        "currentReplicas": 1,
        "desiredReplicas": 1,
        "lastMessage": format!("update {number}"),
        "iPUPartitionCreated": true,
        "restartCount": 0,
        "startTime": "2026-01-01T00:00:00Z",
        "lastReconcileTime": time,
        "workersStatus": {"active": 2, "failed": 0, "succeeded": 0},
        "selector": "ipujob.graphcore.ai/job-uid=93a0a5a7-63c5-4f59-b3a4-d4de0ba61e90,ipujob.graphcore.ai/role=worker",
        "observedGeneration": 1,
        "run": {"number": 0, "failures": 0, "used": {"0": "way-default-0123456789abcdef/0"}},
    });
    if !is_small {
        status["conditions"] = json!(conditions);
    }
    status
}

/// A job as users write it, with volumes, variables and limits.
pub(super) fn training(group: &str, name: &str) -> DynamicObject {
    let job = json!({
        "apiVersion": format!("{group}/v1alpha1"),
        "kind": "IPUJob",
        "metadata": {"name": name},
        "spec": {
            "jobInstances": 1,
            "ipusPerJobInstance": "2",
            "workersPerJobInstance": "2",
            "cleanPodPolicy": "Workers",
            "restartPolicy": {"type": "Never", "backOffLimit": 3},
            "launcher": {"command": [
                "mpirun", "--allow-run-as-root", "--bind-to", "none", "-np", "2", "python3",
                "/public_examples/applications/tensorflow/cnns/training/train.py", "--dataset=cifar-10",
            ]},
            "workers": {"template": {
                "metadata": {"labels": {"app": "resnet-launcher"}},
                "spec": {
                    "hostIPC": true,
                    "volumes": [
                        {"name": "mypvc", "persistentVolumeClaim": {"claimName": "nfs-pvc"}},
                        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "8Gi"}},
                    ],
                    "containers": [{
                        "name": "resnet",
                        "image": "resnet:latest",
                        "env": [
                            {"name": "IPUOF_LOG_LEVEL", "value": "INFO"},
                            {"name": "POPLAR_LOG_LEVEL", "value": "INFO"},
                        ],
                        "resources": {"limits": {"cpu": "4", "memory": "16Gi", "rdma/hca": "1"}},
                        "securityContext": {"capabilities": {"add": ["IPC_LOCK"]}},
                        "volumeMounts": [
                            {"name": "mypvc", "mountPath": "/mnt/sample"},
                            {"name": "shm", "mountPath": "/dev/shm"},
                        ],
                    }],
                },
            }},
        },
    });
    serde_json::from_value(job).expect("a job is an object with a kind and a name")
}
