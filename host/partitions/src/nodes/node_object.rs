//! Pure: the fields of a Node that the watch decodes. Its images, addresses and other conditions
//! are skipped.

use std::borrow::Cow;

use ipu_placement::node_match::{NodeFacts, NodeTaint};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::Deserialize;

/// A Node with the fields that decide whether Pods may run on it.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct NodeObject {
    pub(super) metadata: ObjectMeta,
    #[serde(default)]
    spec: NodeSpec,
    #[serde(default)]
    status: NodeStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct NodeSpec {
    #[serde(default)]
    unschedulable: Option<bool>,
    #[serde(default)]
    taints: Option<Vec<Taint>>,
}

#[derive(Clone, Debug, Deserialize)]
struct Taint {
    key: String,
    #[serde(default)]
    value: Option<String>,
    effect: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct NodeStatus {
    #[serde(default)]
    conditions: Option<Vec<Condition>>,
}

#[derive(Clone, Debug, Deserialize)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
}

impl From<NodeObject> for NodeFacts {
    fn from(node: NodeObject) -> Self {
        let conditions = node.status.conditions.unwrap_or_default();
        let ready = conditions
            .iter()
            .find(|condition| condition.kind == "Ready");
        let taints = node.spec.taints.unwrap_or_default().into_iter();
        let taints = taints.filter(|taint| matches!(&*taint.effect, "NoSchedule" | "NoExecute"));
        Self {
            name: node.metadata.name.unwrap_or_default(),
            labels: node.metadata.labels.unwrap_or_default(),
            is_cordoned: node.spec.unschedulable.unwrap_or(false),
            is_not_ready: ready.is_some_and(|ready| ready.status != "True"),
            has_failed_check: false,
            taints: taints
                .map(|taint| NodeTaint {
                    key: taint.key,
                    value: taint.value.unwrap_or_default(),
                    effect: taint.effect,
                })
                .collect(),
        }
    }
}

impl Resource for NodeObject {
    type DynamicType = ();
    type Scope = <Node as Resource>::Scope;

    fn kind((): &()) -> Cow<'_, str> {
        Node::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        Node::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        Node::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        Node::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
