//! The ids that the operator gives to V-IPU partitions, by the namespaces of their owners.
//!
//! An IPUPartition that is gone can have left a partition on a V-IPU controller, and only its
//! status named the id. So a watch records the ids of all statuses.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::Arc;

use futures::StreamExt;
use ipu_api::ipupartition::IPUPartition;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use parking_lot::Mutex;

/// The ids so far.
#[derive(Clone, Default)]
pub(crate) struct PartitionIds(Arc<Mutex<BTreeMap<String, BTreeSet<String>>>>);

impl PartitionIds {
    /// Records all ids from now on. Must be called within the runtime.
    pub(crate) fn follow(client: Client) -> Self {
        let ids = Self::default();
        tokio::spawn(ids.clone().record(client));
        ids
    }

    /// Returns the ids of a namespace.
    pub(crate) fn of(&self, namespace: &str) -> BTreeSet<String> {
        self.0.lock().get(namespace).cloned().unwrap_or_default()
    }

    async fn record(self, client: Client) {
        let partitions: Api<IPUPartition> = Api::all(client);
        let events = watcher(partitions, watcher::Config::default()).default_backoff();
        let mut events = pin!(events);
        while let Some(event) = events.next().await {
            // After an error, the watch begins again with a list.
            if let Ok(Event::Apply(found) | Event::InitApply(found) | Event::Delete(found)) = event
            {
                self.add(found);
            }
        }
    }

    fn add(&self, partition: IPUPartition) {
        let status = partition.status.unwrap_or_default();
        let attempts = status.attempts.into_iter().map(|attempt| attempt.id);
        let namespace = partition.spec.owner.namespace;
        let mut ids = self.0.lock();
        let of_namespace = ids.entry(namespace).or_default();
        of_namespace.extend(status.partition_id.into_iter().chain(attempts));
    }
}
