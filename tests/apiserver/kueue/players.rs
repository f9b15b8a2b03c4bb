//! Players for the missing parts around an API server with Kueue: the kubelet, the garbage
//! collector, and an observer of the IPUs in partitions.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures::StreamExt;
use ipu_api::ipujob::IPUJob;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use tests::kueue::workload::{of_job, workloads};
use tokio::time::sleep;
use vipu_simulator::Server;

use super::fixture::{NAMESPACE, taken};

/// Observes the quota on the V-IPU controllers. Each partition exists for longer than the interval
/// between two observations.
pub(super) async fn watch_over(servers: [Arc<Server>; 2], most: Arc<AtomicU32>) {
    loop {
        let taken = servers.iter().map(|server| taken(server)).sum();
        most.fetch_max(taken, Ordering::Relaxed);
        sleep(Duration::from_millis(1)).await;
    }
}

/// The garbage collector: deletes the Workloads of deleted jobs.
pub(super) async fn collect_garbage(client: Client) {
    let jobs: Api<IPUJob> = Api::namespaced(client.clone(), NAMESPACE);
    let events = watcher(jobs, watcher::Config::default()).default_backoff();
    let gone = events.filter_map(async |event| match event {
        Ok(watcher::Event::Delete(job)) => Some(job),
        _ => None,
    });
    gone.for_each(async |job| {
        let owned = of_job(&client, NAMESPACE, &job.name_any()).await;
        for workload in owned.unwrap_or_default() {
            let mut owners = workload.0.owner_references().iter();
            if owners.any(|owner| Some(&owner.uid) == job.metadata.uid.as_ref()) {
                let api = workloads(&client, NAMESPACE);
                // It can be gone already.
                let _ = api.delete(&workload.name(), &DeleteParams::default()).await;
            }
        }
    })
    .await;
}

/// The kubelet: runs every Pod, and completes it at once if `ends`.
pub(crate) async fn run_pods(pods: Api<Pod>, ends: bool) {
    let changes = watcher(pods.clone(), watcher::Config::default());
    let changes = changes.default_backoff().applied_objects();
    let changes = changes.filter_map(async |change| change.ok());
    changes
        .for_each_concurrent(16, |pod| {
            let pods = pods.clone();
            async move {
                if let Some(status) = next_status(&pod, ends) {
                    let (name, params) = (pod.name_any(), PatchParams::default());
                    // It can be gone already.
                    let _ = pods
                        .patch_status(&name, &params, &Patch::Merge(status))
                        .await;
                }
            }
        })
        .await;
}

/// Returns the next status of a Pod.
fn next_status(pod: &Pod, ends: bool) -> Option<Value> {
    let gates = pod.spec.as_ref()?.scheduling_gates.as_ref();
    let is_held = gates.is_some_and(|gates| !gates.is_empty());
    if is_held || pod.metadata.deletion_timestamp.is_some() {
        return None;
    }
    match pod.status.as_ref()?.phase.as_deref()? {
        "Pending" => Some(json!({"status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True"}],
        }})),
        "Running" if ends => Some(json!({"status": {
            "phase": "Succeeded",
            "conditions": [{"type": "Ready", "status": "False"}],
            "containerStatuses": [{
                "name": "main", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                "state": {"terminated": {"exitCode": 0, "reason": "Completed"}},
            }],
        }})),
        _ => None,
    }
}
