//! Pure: the fields that the dashboard stores of a node.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node as KubernetesNode;
use kube::core::DynamicObject;

use crate::shown::shown;

/// A node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Its labels, one of which names its V-IPU controller.
    pub labels: BTreeMap<String, String>,
    /// Whether its kubelet reports that it is ready.
    pub is_ready: bool,
    /// Since when.
    pub since: Option<Timestamp>,
    /// Whether it is cordoned.
    pub is_cordoned: bool,
}

impl Node {
    /// The stored fields of an object. `None`: it is unreadable.
    pub fn of(object: DynamicObject) -> Option<Self> {
        let object: KubernetesNode = object.try_parse().ok()?;
        let conditions = object.status.and_then(|status| status.conditions);
        let ready = conditions
            .into_iter()
            .flatten()
            .find(|one| one.type_ == "Ready");
        let labels = object.metadata.labels.unwrap_or_default();
        Some(Self {
            name: shown(&object.metadata.name.unwrap_or_default()),
            labels: labels
                .iter()
                .map(|(key, value)| (shown(key), shown(value)))
                .collect(),
            is_ready: ready.as_ref().is_some_and(|one| one.status == "True"),
            since: ready
                .and_then(|one| one.last_transition_time)
                .map(|time| time.0),
            is_cordoned: object.spec.and_then(|spec| spec.unschedulable) == Some(true),
        })
    }

    /// Whether it has a label.
    pub fn has(&self, (key, value): &(String, String)) -> bool {
        self.labels.get(key) == Some(value)
    }
}
