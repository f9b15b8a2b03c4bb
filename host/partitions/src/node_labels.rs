//! The labels of the nodes: a partition is useless if no node reaches its IPUs.

use std::time::Duration;

use futures::FutureExt;
use k8s_openapi::api::core::v1::Node;
use kube::api::PartialObjectMeta;
use kube::runtime::reflector;
use kube::runtime::reflector::store::Writer;
use kube::{Client, ResourceExt};
use tokio_util::sync::CancellationToken;

use ipu_runtime::label_watch;

/// Longest wait for the first list of the nodes, before partitions are placed without it.
const FIRST_LIST: Duration = Duration::from_secs(10);

/// A node with only its labels.
type Labelled = PartialObjectMeta<Node>;

/// The labels of all nodes, as the watch last saw them.
#[derive(Clone, Debug)]
pub struct NodeLabels {
    nodes: reflector::Store<Labelled>,
}

/// The watch that updates [`NodeLabels`].
#[derive(Debug)]
pub struct NodeWatch {
    writer: Writer<Labelled>,
}

/// Labels of nodes, empty until the watch is followed.
pub fn node_labels() -> (NodeLabels, NodeWatch) {
    let (nodes, writer) = reflector::store();
    (NodeLabels { nodes }, NodeWatch { writer })
}

impl NodeLabels {
    /// Whether a node has the label; true while the nodes are unknown.
    pub fn any_has(&self, key: &str, value: &str) -> bool {
        let is_known = self.nodes.wait_until_ready().now_or_never().is_some();
        let has = |node: &Labelled| node.labels().get(key).is_some_and(|found| found == value);
        !is_known || self.nodes.state().iter().any(|node| has(node))
    }

    /// Returns the number of nodes with the label.
    pub fn count(&self, key: &str, value: &str) -> usize {
        let has = |node: &Labelled| node.labels().get(key).is_some_and(|found| found == value);
        self.nodes.state().iter().filter(|node| has(node)).count()
    }

    /// Waits for the list of nodes, for a limited time: without the right to list them it never arrives.
    pub async fn known(&self) {
        let known = self.nodes.wait_until_ready();
        if tokio::time::timeout(FIRST_LIST, known).await.is_err() {
            tracing::warn!("the nodes are not known; no controller is skipped for lack of nodes");
        }
    }
}

impl NodeWatch {
    /// Follows the nodes until `stop`.
    pub async fn follow(self, client: Client, stop: CancellationToken) {
        label_watch::follow(client, self.writer, stop).await;
    }
}

#[cfg(test)]
mod tests {
    use kube::runtime::watcher;

    use super::*;

    #[test]
    fn a_label_is_missed_only_once_the_nodes_are_known() {
        let (labels, mut watch) = node_labels();
        assert!(labels.any_has("ipunode", "pod1"), "nothing is known yet");
        let node: Labelled = serde_json::from_value(serde_json::json!({
            "apiVersion": "meta.k8s.io/v1",
            "kind": "PartialObjectMetadata",
            "metadata": {"name": "a", "labels": {"ipunode": "pod1"}},
        }))
        .unwrap();
        for event in [
            watcher::Event::Init,
            watcher::Event::InitApply(node),
            watcher::Event::InitDone,
        ] {
            watch.writer.apply_watcher_event(&event);
        }
        assert!(labels.any_has("ipunode", "pod1"));
        assert!(!labels.any_has("ipunode", "pod2"));
        assert!(!labels.any_has("zone", "pod1"));
        assert_eq!(
            [("ipunode", "pod1"), ("ipunode", "pod2")].map(|(key, value)| labels.count(key, value)),
            [1, 0]
        );
    }
}
