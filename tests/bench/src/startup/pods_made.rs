//! The times at which Pods were created, from a watch: the API server records them only to the
//! second.

use std::collections::BTreeMap;
use std::future::ready;
use std::sync::Arc;

use futures::TryStreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::ResourceExt;
use kube::api::Api;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::{self, Event};
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use super::contender::NAMESPACE;
use super::since_epoch;

/// Follows the Pods until it is dropped.
pub(super) struct PodsMade {
    first_seen: Arc<Mutex<BTreeMap<String, f64>>>,
    task: JoinHandle<()>,
}

impl PodsMade {
    /// Begins to follow the Pods.
    pub(super) fn follow(client: Client) -> Self {
        let first_seen = Arc::default();
        let task = tokio::spawn(follow(client, Arc::clone(&first_seen)));
        Self { first_seen, task }
    }

    /// The first Pod with this prefix of its name, and the time at which the watch first showed it.
    pub(super) fn first_with(&self, prefix: &str) -> Option<(String, f64)> {
        let seen = self.first_seen.lock();
        let mut seen = seen.range(prefix.to_owned()..);
        let (name, at) = seen.next().filter(|(name, _)| name.starts_with(prefix))?;
        Some((name.clone(), *at))
    }
}

impl Drop for PodsMade {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn follow(client: Client, first_seen: Arc<Mutex<BTreeMap<String, f64>>>) {
    let pods: Api<PartialObjectMeta<Pod>> = Api::namespaced(client, NAMESPACE);
    let followed = watcher::watcher(pods, watcher::Config::default()).try_for_each(|event| {
        if let Event::Apply(pod) | Event::InitApply(pod) = event {
            let mut first_seen = first_seen.lock();
            first_seen.entry(pod.name_any()).or_insert_with(since_epoch);
        }
        ready(Ok(()))
    });
    if let Err(error) = followed.await {
        tracing::error!(%error, "nobody follows the Pods any more");
    }
}
