//! Labels and IPU usage of every namespace, for policies. Two watches keep both in memory.

pub mod counter;

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::FutureExt;
use ipu_api::guest::namespace::{NamespaceContext, Usage};
use ipu_api::ipupartition::IPUPartition;
use ipu_runtime::label_watch;
use ipu_runtime::scope::watch::{cluster_wide, observe};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::PartialObjectMeta;
use kube::core::DeserializeGuard;
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::watcher::{Config, Event};
use kube::{Client, ResourceExt};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use self::counter::{Reservation, UsageCounter};

/// The metadata of a namespace.
type NamespaceMeta = PartialObjectMeta<Namespace>;

/// Labels and IPU usage of every namespace. Cheap to clone; all clones share one state.
#[derive(Clone, Debug)]
pub struct Namespaces {
    labels: Store<NamespaceMeta>,
    usage: Arc<Mutex<UsageCounter>>,
}

/// The watch that updates the labels of [`Namespaces`].
#[derive(Debug)]
pub struct NamespaceWatch {
    writer: Writer<NamespaceMeta>,
}

/// Creates an empty store of namespaces, and the watch that fills it.
pub fn namespaces() -> (Namespaces, NamespaceWatch) {
    let (labels, writer) = reflector::store();
    let usage = Arc::default();
    (Namespaces { labels, usage }, NamespaceWatch { writer })
}

impl Namespaces {
    /// Returns the context of a namespace. Its usage excludes the IPUPartition with the UID
    /// `excluded`.
    pub fn context(&self, namespace: &str, excluded: &str) -> NamespaceContext {
        NamespaceContext {
            labels: self.labels(namespace),
            usage: self.usage.lock().of(namespace, excluded),
        }
    }

    /// Returns the usage of the other namespaces.
    pub fn others(&self, namespace: &str) -> BTreeMap<String, Usage> {
        self.usage.lock().others(namespace)
    }

    /// Returns the usage of every namespace that has or requests IPUs.
    pub fn usages(&self) -> Vec<(String, Usage)> {
        self.usage.lock().all()
    }

    /// Counts a partition as placed.
    pub fn reserve(&self, reservation: Reservation) {
        self.usage.lock().reserve(reservation);
    }

    /// Releases the reservation of the IPUPartition with this UID.
    pub fn release(&self, uid: &str) {
        self.usage.lock().release(uid);
    }

    /// Releases all reservations: those of a former leadership of this replica may never get a
    /// result.
    pub fn release_all(&self) {
        self.usage.lock().release_all();
    }

    /// Applies an event of a watch of all IPUPartitions.
    pub fn apply_event(&self, event: &Event<DeserializeGuard<IPUPartition>>) {
        self.usage.lock().apply_event(event);
    }

    /// Counts the IPUPartitions until `stop`, in a process without another watch of them.
    pub async fn follow_partitions(&self, client: Client, stop: CancellationToken) {
        let events = cluster_wide::<DeserializeGuard<IPUPartition>>(&client, Config::default());
        let following = observe(events, |event| self.apply_event(&event));
        let _ = stop.run_until_cancelled(following).await;
    }

    fn labels(&self, namespace: &str) -> Option<BTreeMap<String, String>> {
        let is_known = self.labels.wait_until_ready().now_or_never()?.is_ok();
        let found = self.labels.get(&ObjectRef::new(namespace));
        is_known
            .then_some(found)?
            .map(|namespace| namespace.labels().clone())
    }
}

impl NamespaceWatch {
    /// Follows the labels of all namespaces until `stop`. Without permission for it the labels stay
    /// unknown, which policies can see.
    pub async fn follow(self, client: Client, stop: CancellationToken) {
        label_watch::follow(client, self.writer, stop).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_labels_are_not_missing_labels() {
        let (namespaces, mut watch) = namespaces();
        assert_eq!(namespaces.context("team", "").labels, None);
        let team: NamespaceMeta = serde_json::from_value(serde_json::json!({
            "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
            "metadata": {"name": "team", "labels": {"tier": "gold"}},
        }))
        .unwrap();
        for event in [Event::Init, Event::InitApply(team), Event::InitDone] {
            watch.writer.apply_watcher_event(&event);
        }
        let labels = namespaces.context("team", "").labels.unwrap();
        assert_eq!(labels["tier"], "gold");
        assert_eq!(namespaces.context("just-made", "").labels, None);
    }
}
