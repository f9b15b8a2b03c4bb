//! The partitions that are ready on one V-IPU controller.

use std::collections::BTreeSet;

use futures::StreamExt;
use ipu_api::ipupartition::{IPUPartition, PartitionPhase};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::super::super::LoadError;

/// A watch of the partitions that are ready on one controller.
pub(super) struct Followed {
    ready: watch::Receiver<BTreeSet<String>>,
    _watch: JoinSet<()>,
}

impl Followed {
    /// Begins to follow the controller with this name.
    pub(super) fn start(client: Client, controller: String) -> Self {
        let (sender, ready) = watch::channel(BTreeSet::new());
        let mut task = JoinSet::new();
        task.spawn(async move {
            let changes = watcher(Api::all(client), watcher::Config::default());
            let mut changes = std::pin::pin!(changes.default_backoff());
            while let Some(change) = changes.next().await {
                let Ok(change) = change else { continue };
                sender.send_if_modified(|ready| apply(ready, change, &controller));
            }
        });
        Self {
            ready,
            _watch: task,
        }
    }

    /// One of the ready partitions.
    pub(super) async fn one(&mut self) -> Result<String, LoadError> {
        let ready = self.ready.wait_for(|ready| !ready.is_empty()).await;
        let ready = ready.map_err(|_| ended())?;
        ready.first().cloned().ok_or_else(ended)
    }

    /// Waits until this partition is gone, and another one is ready in its place.
    pub(super) async fn once_replaced(&mut self, name: &str) -> Result<(), LoadError> {
        let before = self.ready.borrow().clone();
        let is_new = |ready: &BTreeSet<String>| !ready.is_subset(&before) && !ready.contains(name);
        let replaced = self.ready.wait_for(is_new).await;
        replaced.map(drop).map_err(|_| ended())
    }
}

/// Applies a change. Returns whether the set has changed.
fn apply(
    ready: &mut BTreeSet<String>,
    change: watcher::Event<IPUPartition>,
    controller: &str,
) -> bool {
    match change {
        watcher::Event::Apply(partition) | watcher::Event::InitApply(partition) => {
            let name = partition.name_any();
            let is_there = partition.metadata.deletion_timestamp.is_none()
                && partition.status.is_some_and(|status| {
                    let there = status.controller.is_some_and(|one| one.name == controller);
                    there && status.phase == PartitionPhase::Ready
                });
            if is_there {
                ready.insert(name)
            } else {
                ready.remove(&name)
            }
        }
        watcher::Event::Delete(partition) => ready.remove(&partition.name_any()),
        watcher::Event::Init | watcher::Event::InitDone => false,
    }
}

fn ended() -> LoadError {
    LoadError::Missing("the watch of the partitions has ended".to_owned())
}
