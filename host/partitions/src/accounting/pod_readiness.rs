//! The Pods that use partitions, as far as accounts need them: how many are ready, and how many
//! have been.

mod watched_pod;

use std::collections::HashMap;
use std::sync::Arc;

use ipu_api::labels::PARTITION_ID_LABEL;
use ipu_api::uid::Uid;
use ipu_runtime::scope::Scope;
use ipu_runtime::scope::watch::{everywhere, observe};
use ipu_runtime::watch_store::Store;
use kube::runtime::watcher::{self, Event};
use kube::{Client, ResourceExt};
use parking_lot::Mutex;
use tokio::sync::watch;

use self::watched_pod::{Stage, WatchedPod};
use crate::pod_users::page_memory;

/// Page size of the list: whole Pods, because their readiness is in their status. Everybody who may
/// create Pods can create large ones with the label.
const PAGE: u32 = 10;

/// Maximum memory of a page, in bytes.
pub const WATCH_MEMORY: usize = page_memory(PAGE);

/// Pods of a namespace that use a partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PodCounts {
    /// Those that are ready.
    pub ready: u32,
    /// Those that are not ready any more, or have ended.
    pub started: u32,
    /// Pods that have not been ready yet, by their statuses.
    pub waiting: u32,
}

/// The Pods that use partitions, as a watch last saw them.
#[derive(Debug, Default)]
pub(crate) struct PodReadiness {
    pods: Mutex<Pods>,
    changes: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Pods {
    store: Store<Arc<str>, Readiness>,
    partitions: HashMap<(Arc<str>, Uid), PodCounts>,
}

/// The stored fields of a Pod.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Readiness {
    namespace: Arc<str>,
    /// The id of its partition.
    partition: Uid,
    stage: Stage,
}

impl PodReadiness {
    /// The Pods of a namespace that use the partition with this id. `None` until all Pods are
    /// listed.
    pub(crate) fn of(&self, namespace: &Arc<str>, partition: Uid) -> Option<PodCounts> {
        let pods = self.pods.lock();
        let key = (Arc::clone(namespace), partition);
        let counts = || pods.partitions.get(&key).copied().unwrap_or_default();
        pods.store.is_listed().then(counts)
    }

    /// A number that changes with each change of a Pod.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Follows the Pods with partitions in the namespaces of a release, without end. `ended` gets
    /// the id of the partition of each Pod that has ended.
    pub(crate) async fn follow(&self, client: &Client, scope: &Scope, ended: impl Fn(Uid)) {
        let with_partition = watcher::Config::default()
            .labels(PARTITION_ID_LABEL)
            .page_size(PAGE);
        let events = everywhere::<WatchedPod>(client, scope, with_partition);
        let apply = |event| {
            if self.apply(event, &ended) {
                self.changes.send_modify(|changes| *changes += 1);
            }
        };
        observe(events, apply).await;
    }

    /// Applies an event of the watch. Returns whether it changes a count.
    fn apply(&self, event: Event<WatchedPod>, ended: impl Fn(Uid)) -> bool {
        let is_listed = matches!(event, Event::InitDone);
        let mut pods = self.pods.lock();
        let Pods { store, partitions } = &mut *pods;
        let key = |pod: &WatchedPod| Some(key(pod).into());
        let changes = store.apply_event(event, key, |_, pod, _| readiness(&pod));
        let mut is_changed = is_listed;
        for change in changes {
            let now = store.objects().get(&change.key);
            if change.before.as_ref() == now {
                continue;
            }
            is_changed = true;
            if let Some(before) = &change.before {
                before.subtract_from(partitions);
                if now.is_none_or(|now| now.stage == Stage::Ended) {
                    ended(before.partition);
                }
            }
            if let Some(now) = now {
                now.add_to(partitions);
            }
        }
        is_changed
    }
}

impl Readiness {
    fn key(&self) -> (Arc<str>, Uid) {
        (Arc::clone(&self.namespace), self.partition)
    }

    fn add_to(&self, partitions: &mut HashMap<(Arc<str>, Uid), PodCounts>) {
        *partitions.entry(self.key()).or_default().of(self.stage) += 1;
    }

    fn subtract_from(&self, partitions: &mut HashMap<(Arc<str>, Uid), PodCounts>) {
        let Some(counts) = partitions.get_mut(&self.key()) else {
            return;
        };
        let count = counts.of(self.stage);
        *count = count.saturating_sub(1);
        if *counts == PodCounts::default() {
            partitions.remove(&self.key());
        }
    }
}

impl PodCounts {
    fn of(&mut self, stage: Stage) -> &mut u32 {
        match stage {
            Stage::Waiting => &mut self.waiting,
            Stage::Ready => &mut self.ready,
            Stage::Started | Stage::Ended => &mut self.started,
        }
    }
}

fn key(pod: &WatchedPod) -> String {
    format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any())
}

/// The readiness of a Pod that uses a partition.
fn readiness(pod: &WatchedPod) -> Option<Readiness> {
    Some(Readiness {
        namespace: pod.namespace()?.into(),
        partition: pod.partition?,
        stage: pod.stage,
    })
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use serde_json::{Value, json};

    use super::*;

    fn pod(name: &str, status: &Value) -> WatchedPod {
        serde_json::from_value(json!({
            "metadata": {
                "name": name, "namespace": "team", "labels": {PARTITION_ID_LABEL: "p-1"},
            },
            "spec": {"containers": []},
            "status": status,
        }))
        .unwrap()
    }

    fn ready() -> Value {
        json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]})
    }

    fn container(fields: &Value) -> Value {
        let mut status = json!({
            "name": "main", "image": "i", "imageID": "", "ready": false, "restartCount": 0,
        });
        json_patch::merge(&mut status, fields);
        json!({"phase": "Running", "containerStatuses": [status]})
    }

    #[test]
    fn a_pod_waits_is_ready_or_was_started() {
        let ended = json!({"terminated": {"exitCode": 1}});
        let mut over = ready();
        over["phase"] = json!("Succeeded");
        for (status, expected) in [
            (Value::Null, Stage::Waiting),
            (json!({"phase": "Pending"}), Stage::Waiting),
            (ready(), Stage::Ready),
            (over, Stage::Ended),
            (json!({"phase": "Failed"}), Stage::Ended),
            (container(&json!({})), Stage::Waiting),
            (container(&json!({"restartCount": 1})), Stage::Started),
            (container(&json!({"state": ended})), Stage::Started),
            (container(&json!({"lastState": ended})), Stage::Started),
        ] {
            let found = readiness(&pod("a", &status)).unwrap();
            assert_eq!(found.stage, expected, "{status}");
        }
        let mut unlabelled = pod("a", &ready());
        unlabelled.partition = None;
        assert_eq!(readiness(&unlabelled), None);
    }

    #[test]
    fn of_a_large_pod_with_unreadable_fields_little_is_kept() {
        let late = json!({"manager": "somebody", "time": "9999-12-31T23:59:59Z"});
        let pod: WatchedPod = serde_json::from_value(json!({
            "kind": "Pod", "apiVersion": "v1",
            "metadata": {
                "name": "large", "namespace": "team", "uid": "u", "resourceVersion": "7",
                "labels": {PARTITION_ID_LABEL: "p-1", "other": "x"},
                "annotations": {"large": "x".repeat(1 << 18)}, "managedFields": [late],
            },
            "spec": {"containers": 5},
            "status": ready(),
        }))
        .unwrap();
        let found = readiness(&pod).unwrap();
        assert_eq!(found.partition, Uid::of("p-1"));
        assert_eq!(found.stage, Stage::Ready);
        assert_eq!(pod.metadata.resource_version.as_deref(), Some("7"));
        let kept = format!("{pod:?}");
        assert!(kept.len() < 2_000, "{} bytes", kept.len());
    }

    #[test]
    fn pods_are_counted_by_partition() {
        let (pods, ended) = (PodReadiness::default(), Cell::new(0));
        let apply = |event| {
            pods.apply(event, |id| {
                assert_eq!(id, Uid::of("p-1"));
                ended.set(ended.get() + 1);
            })
        };
        let counts = |namespace: &str| pods.of(&namespace.into(), Uid::of("p-1"));
        apply(Event::Init);
        apply(Event::InitApply(pod("a", &ready())));
        assert_eq!(counts("team"), None, "not all are listed");
        assert!(apply(Event::InitDone));
        assert!(apply(Event::Apply(pod("b", &Value::Null))));
        let expected = |ready, started, waiting| {
            Some(PodCounts {
                ready,
                started,
                waiting,
            })
        };
        assert_eq!(counts("team"), expected(1, 0, 1));
        assert_eq!(counts("other"), expected(0, 0, 0));
        assert!(!apply(Event::Apply(pod("a", &ready()))));
        assert!(apply(Event::Apply(pod("a", &json!({"phase": "Failed"})))));
        assert_eq!(counts("team"), expected(0, 1, 1));
        assert_eq!(ended.get(), 1);
        assert!(apply(Event::Delete(pod("a", &Value::Null))));
        assert!(apply(Event::Delete(pod("b", &Value::Null))));
        assert_eq!(ended.get(), 3, "also that of a deleted Pod");
        assert_eq!(counts("team"), expected(0, 0, 0));
        assert_eq!(pods.pods.lock().partitions.len(), 0);
    }
}
