//! The nodes as the watch last saw them, with only what decides whether Pods may run on them: a
//! partition is useless if no Pod of its owner can reach its IPUs.

mod node_object;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ipu_api::labels::{IPU_NOT_READY, IPU_READY_LABEL};
use ipu_placement::node_match::NodeFacts;
use ipu_placement::unsuited::NodeSnapshot;
use ipu_runtime::scope::watch::{cluster_wide, observe};
use ipu_runtime::trimmed::{Trimmed, untrimmed};
use ipu_runtime::wait;
use ipu_runtime::watch_store::Store;
use kube::Client;
use kube::runtime::watcher::{Config, Event};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use node_object::NodeObject;

/// Longest wait for the first list of the nodes, before partitions are placed without it.
const FIRST_LIST: Duration = Duration::from_secs(10);

/// The nodes, as the watch last saw them. Clones are cheap and share the data.
#[derive(Clone, Debug)]
pub struct Nodes {
    state: Arc<Mutex<State>>,
    changes: watch::Receiver<u64>,
}

#[derive(Debug, Default)]
struct State {
    store: Store<Arc<str>, Arc<NodeFacts>>,
    /// Built when it is needed after a change.
    snapshot: Option<Arc<NodeSnapshot>>,
    /// Numbers of nodes by key and value of a label, counted when they are needed after a change.
    counts: HashMap<String, HashMap<String, usize>>,
}

/// The watch that updates [`Nodes`].
#[derive(Debug)]
pub struct NodeWatch {
    state: Arc<Mutex<State>>,
    changes: watch::Sender<u64>,
    reads_checks: bool,
}

/// The nodes, unknown until the watch is followed.
pub fn nodes() -> (Nodes, NodeWatch) {
    let state = Arc::<Mutex<State>>::default();
    let (sender, changes) = watch::channel(0);
    let nodes = Nodes {
        state: Arc::clone(&state),
        changes,
    };
    let watch = NodeWatch {
        state,
        changes: sender,
        reads_checks: false,
    };
    (nodes, watch)
}

impl Nodes {
    /// Whether a node has the label; true while the nodes are unknown.
    pub fn any_has(&self, key: &str, value: &str) -> bool {
        let mut state = self.state.lock();
        !state.store.is_listed() || state.count(key, value) > 0
    }

    /// Returns the number of nodes with the label.
    pub fn count(&self, key: &str, value: &str) -> usize {
        self.state.lock().count(key, value)
    }

    /// Returns the nodes as they are now. `None`: they are not known.
    pub fn snapshot(&self) -> Option<Arc<NodeSnapshot>> {
        let mut state = self.state.lock();
        if !state.store.is_listed() {
            return None;
        }
        if state.snapshot.is_none() {
            let nodes = state.store.objects().values().cloned().collect();
            state.snapshot = Some(Arc::new(NodeSnapshot::of(nodes)));
        }
        state.snapshot.clone()
    }

    /// A number that changes with each change that can decide where Pods may run. Heartbeats do not
    /// change it.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.clone()
    }

    /// Waits for the list of nodes, for a limited time: without the right to list them it never
    /// arrives.
    pub async fn known(&self) {
        let known = wait::until(self.changes.clone(), |changes| *changes > 0);
        if tokio::time::timeout(FIRST_LIST, known).await.is_err() {
            tracing::warn!("the nodes are not known; no controller is skipped for lack of nodes");
        }
    }
}

impl State {
    /// The number of nodes with this label. Hundreds of controllers mostly share a few keys, each
    /// of which is counted once.
    fn count(&mut self, key: &str, value: &str) -> usize {
        if !self.counts.contains_key(key) {
            let mut values: HashMap<String, usize> = HashMap::new();
            for node in self.store.objects().values() {
                if let Some(found) = node.labels.get(key) {
                    *values.entry(found.clone()).or_default() += 1;
                }
            }
            self.counts.insert(key.to_owned(), values);
        }
        self.counts[key].get(value).copied().unwrap_or(0)
    }
}

impl NodeWatch {
    /// Whether a node counts as blocked if it failed a check of ipu-node. Otherwise the label of
    /// the check has no effect, because one that nothing updates any more can remain.
    #[must_use]
    pub fn reading_checks(self, reads_checks: bool) -> Self {
        Self {
            reads_checks,
            ..self
        }
    }

    fn facts(&self, node: NodeObject) -> NodeFacts {
        let mut facts = NodeFacts::from(node);
        let result = facts.labels.get(IPU_READY_LABEL).map(String::as_str);
        facts.has_failed_check = self.reads_checks && result == Some(IPU_NOT_READY);
        facts
    }

    /// Follows the nodes until `stop`.
    pub async fn follow(self, client: Client, stop: CancellationToken) {
        let events = cluster_wide::<Trimmed<NodeObject>>(&client, Config::default());
        let following = observe(events, |event| self.apply_event(untrimmed(event)));
        let _ = stop.run_until_cancelled(following).await;
    }

    /// Applies an event of the watch.
    fn apply_event(&self, event: Event<NodeObject>) {
        let is_complete = matches!(event, Event::InitDone);
        let mut state = self.state.lock();
        let name = |node: &NodeObject| node.metadata.name.as_deref().map(Arc::from);
        let changes = state
            .store
            .apply_event(event, name, |_, node, _| Some(Arc::new(self.facts(node))));
        let objects = state.store.objects();
        let is_change = changes
            .iter()
            .any(|change| objects.get(&change.key) != change.before.as_ref());
        if is_change {
            state.snapshot = None;
            state.counts.clear();
        }
        // Nothing is known of the nodes before their first list is complete.
        let is_news = is_complete || (is_change && state.store.is_listed());
        drop(state);
        if is_news {
            self.changes.send_modify(|changes| *changes += 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn node(name: &str, controller: &str, change: impl FnOnce(&mut Value)) -> NodeObject {
        let mut node = json!({
            "metadata": {"name": name, "resourceVersion": "1", "labels": {"ipunode": controller}},
            "spec": {},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        });
        change(&mut node);
        serde_json::from_value(node).unwrap()
    }

    #[test]
    fn a_label_is_missed_only_once_the_nodes_are_known() {
        let (nodes, watch) = nodes();
        assert!(nodes.any_has("ipunode", "pod1"), "nothing is known yet");
        assert!(nodes.snapshot().is_none());
        for event in [
            Event::Init,
            Event::InitApply(node("a", "pod1", |_| {})),
            Event::InitDone,
        ] {
            watch.apply_event(event);
        }
        assert!(nodes.snapshot().is_some());
        assert!(nodes.any_has("ipunode", "pod1"));
        assert!(!nodes.any_has("ipunode", "pod2"));
        assert!(!nodes.any_has("zone", "pod1"));
        assert_eq!(
            [("ipunode", "pod1"), ("ipunode", "pod2")].map(|(key, value)| nodes.count(key, value)),
            [1, 0]
        );
    }

    #[test]
    fn the_label_of_the_checks_counts_only_while_the_admin_checks_nodes() {
        for reads_checks in [false, true] {
            for (result, is_failed) in [("true", false), ("false", reads_checks)] {
                let (_, watch) = nodes();
                let node = node("a", "pod1", |node| {
                    node["metadata"]["labels"]["graphcore.ai/ipu-ready"] = json!(result);
                });
                let facts = watch.reading_checks(reads_checks).facts(node);
                assert_eq!(facts.has_failed_check, is_failed, "{reads_checks} {result}");
            }
        }
    }

    #[test]
    fn heartbeats_are_no_changes() {
        let (nodes, watch) = nodes();
        let changes = nodes.changes();
        let mut seen = 0;
        let mut changed_by = |event| {
            watch.apply_event(event);
            let before = std::mem::replace(&mut seen, *changes.borrow());
            before != seen
        };
        assert!(!changed_by(Event::Init));
        assert!(!changed_by(Event::InitApply(node("a", "pod1", |_| {}))));
        assert!(changed_by(Event::InitDone));
        let heartbeat = |node: &mut Value| {
            node["metadata"]["resourceVersion"] = json!("2");
            node["metadata"]["annotations"] = json!({"a": "b"});
            node["status"]["conditions"][0]["lastHeartbeatTime"] = json!("2026-01-01T00:00:00Z");
            node["status"]["images"] = json!([{"names": ["large"]}]);
        };
        assert!(!changed_by(Event::Apply(node("a", "pod1", heartbeat))));
        let changes: [fn(&mut Value); 5] = [
            |node| node["spec"]["unschedulable"] = json!(true),
            |node| node["spec"]["taints"] = json!([{"key": "a", "effect": "NoSchedule"}]),
            |node| node["status"]["conditions"][0]["status"] = json!("Unknown"),
            |node| node["metadata"]["labels"]["zone"] = json!("b"),
            |_| {},
        ];
        for change in changes {
            assert!(changed_by(Event::Apply(node("a", "pod1", change))));
        }
        let preference = |node: &mut Value| {
            node["spec"]["taints"] = json!([{"key": "a", "effect": "PreferNoSchedule"}]);
        };
        assert!(!changed_by(Event::Apply(node("a", "pod1", preference))));
        assert!(changed_by(Event::Delete(node("a", "pod1", |_| {}))));
    }
}
