//! A node without containers: every Pod runs as soon as it is created, and ends on request.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use cluster::wait::WaitedTooLong;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::{self, watcher};
use kube::{Client, ResourceExt};
use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::{LoadError, NAMESPACE};

/// Pods whose status is written at the same time.
const AT_ONCE: usize = 16;

/// The kubelet of all Pods.
pub(super) struct FakeNode {
    running: Arc<AtomicUsize>,
    made: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl FakeNode {
    /// Runs every Pod of the jobs' namespace from now on.
    pub(super) fn start(client: Client) -> Self {
        let (made, running) = (Arc::default(), Arc::default());
        let task = tokio::spawn(run_all(client, Arc::clone(&made), Arc::clone(&running)));
        Self {
            running,
            made,
            task,
        }
    }

    /// Waits until this number of Pods exists.
    pub(super) async fn once_made(&self, pods: usize, patience: Duration) -> Result<(), LoadError> {
        Self::once(&self.made, "made", pods, patience).await
    }

    /// Waits until this number of Pods runs.
    pub(super) async fn once_running(
        &self,
        pods: usize,
        patience: Duration,
    ) -> Result<(), LoadError> {
        Self::once(&self.running, "running", pods, patience).await
    }

    async fn once(
        count: &AtomicUsize,
        what: &str,
        pods: usize,
        patience: Duration,
    ) -> Result<(), LoadError> {
        let wait = async {
            while count.load(Ordering::Relaxed) < pods {
                sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(patience, wait).await.map_err(|_| {
            LoadError::Waited(WaitedTooLong {
                what: format!("{pods} Pods to be {what}"),
                waited: patience,
                last: format!("{} are", count.load(Ordering::Relaxed)),
            })
        })
    }
}

impl Drop for FakeNode {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn run_all(client: Client, made: Arc<AtomicUsize>, running: Arc<AtomicUsize>) {
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let metadata: Api<PartialObjectMeta<Pod>> = Api::namespaced(client, NAMESPACE);
    let events = watcher(metadata, watcher::Config::default());
    let new = events.try_filter_map(async |event| {
        Ok(match event {
            watcher::Event::Apply(pod) | watcher::Event::InitApply(pod) => Some(pod),
            _ => None,
        })
    });
    let mut seen = std::collections::HashSet::new();
    new.try_for_each_concurrent(AT_ONCE, |pod| {
        let is_new = seen.insert(pod.uid().unwrap_or_default());
        let (pods, made, running) = (pods.clone(), Arc::clone(&made), Arc::clone(&running));
        async move {
            if is_new {
                made.fetch_add(1, Ordering::Relaxed);
                if run(&pods, &pod).await {
                    running.fetch_add(1, Ordering::Relaxed);
                }
            }
            Ok(())
        }
    })
    .await
    .unwrap_or_else(|error| tracing::error!(%error, "the fake node stopped watching"));
}

/// Whether the Pod runs now; one that is gone again does not.
async fn run(pods: &Api<Pod>, pod: &PartialObjectMeta<Pod>) -> bool {
    let status = json!({"status": {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": "True"}],
    }});
    let (name, params) = (pod.name_any(), PatchParams::default());
    let status = Patch::Merge(status);
    pods.patch_status(&name, &params, &status).await.is_ok()
}

/// Ends every Pod that runs and whose name ends in `suffix`, with exit code 0.
pub(super) async fn end_all(client: &Client, suffix: &str) -> Result<usize, LoadError> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let running = ListParams::default().fields("status.phase=Running");
    let found = pods.list_metadata(&running).await;
    let found = found.map_err(super::api("list the Pods"))?;
    let status = json!({"status": {
        "phase": "Succeeded",
        "conditions": [{"type": "Ready", "status": "False"}],
        "containerStatuses": [{
            "name": "launcher", "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"terminated": {"exitCode": 0, "finishedAt": "2026-01-01T00:00:00Z"}},
        }],
    }});
    let names = found.items.iter().map(ResourceExt::name_any);
    let names: Vec<String> = names.filter(|name| name.ends_with(suffix)).collect();
    let count = names.len();
    futures::stream::iter(names)
        .map(Ok)
        .try_for_each_concurrent(AT_ONCE, |name| {
            let (pods, status) = (pods.clone(), Patch::Merge(status.clone()));
            async move {
                let params = PatchParams::default();
                pods.patch_status(&name, &params, &status).await.map(drop)
            }
        })
        .await
        .map_err(super::api("end a Pod"))?;
    Ok(count)
}
