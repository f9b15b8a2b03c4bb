//! An IPUJob that runs, with its stages, Pods and events.

use ipu_api::ipujob::IPUJob;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{Api, Patch, PatchParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use super::fixture::{create, on, partition};
use crate::job::single;

/// Namespace and name of the job.
const JOB: (&str, &str) = ("team-a", "train");

/// Creates it, with a partition of 16 IPUs. The operator has counted six seconds, two of which it
/// waited.
pub(super) async fn run(client: &Client) {
    let (namespace, name) = JOB;
    let job = create::<IPUJob>(client, Some(namespace), single(name)).await;
    let uid = job.uid().unwrap();
    let created = job.metadata.creation_timestamp.as_ref().unwrap().0;
    let accounting = json!({
        "until": created + SignedDuration::from_secs(6), "current": "running",
        "waiting": 2, "forming": 1, "starting": 2, "running": 1, "currentRun": 1,
    });
    let status = json!({"status": {
        "launcherStatus": "Running", "desiredReplicas": 1, "lastMessage": "all Pods run",
        "accounting": accounting,
    }});
    let jobs: Api<IPUJob> = Api::namespaced(client.clone(), namespace);
    let params = PatchParams::default();
    jobs.patch_status(name, &params, &Patch::Merge(status))
        .await
        .unwrap();
    let at = |seconds| created + SignedDuration::from_secs(seconds);
    let mut placed = on("pod1", &format!("{namespace}/{name}"), "Ready");
    placed["firstIpu"] = json!(0);
    placed["attempts"][0]["started"] = json!(at(2));
    placed["conditions"] = json!([{
        "type": "Ready", "status": "True", "reason": "Ready", "message": "",
        "lastTransitionTime": at(3),
    }]);
    partition(client, (&format!("{namespace}/{name}"), &uid), 16, placed).await;
    for index in 0..2 {
        pod(client, &uid, created, index).await;
    }
}

/// A Pod of the job that runs, and its events.
async fn pod(client: &Client, job: &str, created: Timestamp, index: u32) {
    let (namespace, _) = JOB;
    let name = format!("train-worker-{index}");
    let at = |seconds| created + SignedDuration::from_secs(seconds);
    let object = json!({
        "metadata": {"name": name, "labels": {
            "graphcore.ai/job-uid": job, "graphcore.ai/partition-id": "p-team-a-train",
        }},
        "spec": {
            "nodeName": "node1", "automountServiceAccountToken": false,
            "containers": [{"name": "main", "image": "image"}],
        },
        "status": {
            "phase": "Running",
            "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": at(3)}],
            "containerStatuses": [{
                "name": "main", "image": "image", "imageID": "", "ready": true, "restartCount": 0,
                "state": {"running": {"startedAt": at(5)}},
            }],
        },
    });
    let pod = create::<Pod>(client, Some(namespace), object).await;
    let uid = pod.uid().unwrap();
    for (seconds, type_, reason, message) in [
        (3, "Normal", "Scheduled", "the Pod was assigned to node1"),
        (
            4,
            "Warning",
            "Failed",
            "Failed to pull the image: the registry did not answer",
        ),
    ] {
        event(client, (&name, &uid), at(seconds), [type_, reason, message]).await;
    }
}

async fn event(
    client: &Client,
    (pod, uid): (&str, &str),
    time: Timestamp,
    [type_, reason, message]: [&str; 3],
) {
    let (namespace, _) = JOB;
    let object: Value = json!({
        "metadata": {"name": format!("{pod}.{}", reason.to_lowercase())},
        "involvedObject": {
            "apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": pod, "uid": uid,
        },
        "type": type_, "reason": reason, "message": message, "count": 1,
        "firstTimestamp": time, "lastTimestamp": time,
    });
    create::<Event>(client, Some(namespace), object).await;
}
