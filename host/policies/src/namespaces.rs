//! What is known of every namespace, for policies: its labels, and the IPUs that its owners have and
//! want. Kept in memory from two watches.

pub mod usage;

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::{FutureExt, StreamExt};
use ipu_api::ipupartition::IPUPartition;
use ipu_guest_host::facts::{NamespaceFacts, Usage};
use ipu_runtime::label_watch;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, PartialObjectMeta};
use kube::core::DeserializeGuard;
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt, reflector, watcher};
use kube::{Client, ResourceExt};
use parking_lot::{Mutex, MutexGuard};
use tokio_util::sync::CancellationToken;

use self::usage::{Promise, Stamp, Tally};

/// A namespace, of which only the labels are kept.
type Labelled = PartialObjectMeta<Namespace>;

/// What is known of every namespace. Cheap to clone; all clones know the same.
#[derive(Clone, Debug)]
pub struct Namespaces {
    labels: Store<Labelled>,
    tally: Arc<Mutex<Tally>>,
}

/// What keeps the labels of [`Namespaces`] up to date.
#[derive(Debug)]
pub struct NamespaceWatch {
    writer: Writer<Labelled>,
}

/// Namespaces of which nothing is known until the watches are followed.
pub fn namespaces() -> (Namespaces, NamespaceWatch) {
    let (labels, writer) = reflector::store();
    let tally = Arc::default();
    (Namespaces { labels, tally }, NamespaceWatch { writer })
}

impl Namespaces {
    /// What is known of a namespace, the IPUPartition of UID `but` not counted.
    pub fn facts(&self, namespace: &str, but: &str) -> NamespaceFacts {
        NamespaceFacts {
            labels: self.labels(namespace),
            usage: self.tally().of(namespace, but),
        }
    }

    /// What the other namespaces have and want.
    pub fn others(&self, namespace: &str) -> BTreeMap<String, Usage> {
        self.tally().others(namespace)
    }

    /// What every namespace has and wants, where it has or wants anything.
    pub fn usages(&self) -> Vec<(String, Usage)> {
        self.tally().all()
    }

    /// The moment of what is known of IPUs now.
    pub fn stamp(&self) -> Stamp {
        self.tally().stamp()
    }

    /// Counts a partition as held, if nobody was given IPUs since `stamp`. Whether it was.
    pub fn promise(&self, promise: Promise, stamp: Stamp) -> bool {
        self.tally().promise(promise, stamp)
    }

    /// Takes back what was promised to the IPUPartition of this UID.
    pub fn withdraw(&self, uid: &str) {
        self.tally().withdraw(uid);
    }

    /// Takes in what a watch of all IPUPartitions tells.
    pub fn hear(&self, event: &Event<DeserializeGuard<IPUPartition>>) {
        self.tally().hear(event);
    }

    /// Counts the IPUPartitions until `stop`, in a process that does not follow them for anything
    /// else: a few words of each are kept.
    pub async fn follow_partitions(&self, client: Client, stop: CancellationToken) {
        watcher(
            Api::<DeserializeGuard<IPUPartition>>::all(client),
            watcher::Config::default(),
        )
        .default_backoff()
        .take_until(stop.cancelled_owned())
        .for_each(async |event| match event {
            Ok(event) => self.hear(&event),
            Err(error) => {
                tracing::warn!(%error, "failed to watch IPUPartitions for policies; trying again");
            }
        })
        .await;
    }

    fn labels(&self, namespace: &str) -> Option<BTreeMap<String, String>> {
        let is_known = self.labels.wait_until_ready().now_or_never()?.is_ok();
        let found = self.labels.get(&ObjectRef::new(namespace));
        is_known
            .then_some(found)?
            .map(|namespace| namespace.labels().clone())
    }

    fn tally(&self) -> MutexGuard<'_, Tally> {
        // Every change of it is whole before the next one begins.
        self.tally.lock()
    }
}

impl NamespaceWatch {
    /// Follows the labels of all namespaces until `stop`. Without the right to do so they stay
    /// unknown, and policies are told that.
    pub async fn follow(self, client: Client, stop: CancellationToken) {
        label_watch::follow(client, "namespaces", self.writer, stop).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_labels_are_not_missing_labels() {
        let (namespaces, mut watch) = namespaces();
        assert_eq!(namespaces.facts("team", "").labels, None);
        let team: Labelled = serde_json::from_value(serde_json::json!({
            "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
            "metadata": {"name": "team", "labels": {"tier": "gold"}},
        }))
        .unwrap();
        for event in [Event::Init, Event::InitApply(team), Event::InitDone] {
            watch.writer.apply_watcher_event(&event);
        }
        let labels = namespaces.facts("team", "").labels.unwrap();
        assert_eq!(labels["tier"], "gold");
        assert_eq!(namespaces.facts("just-made", "").labels, None);
    }
}
