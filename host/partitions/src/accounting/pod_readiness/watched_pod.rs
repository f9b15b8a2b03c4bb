//! Pure: a Pod as the watch reads it. The author of a Pod can fill the other fields with megabytes,
//! which are skipped.

use ipu_api::uid::Uid;
use k8s_openapi::api::core::v1::Pod;
use kube::Resource;
use kube::core::ObjectMeta;
use serde::Deserialize;
use serde::de::IgnoredAny;

/// The fields of a Pod that its readiness depends on.
#[derive(Clone, Debug, Deserialize, Resource)]
#[resource(inherit = Pod)]
#[serde(from = "Fields")]
pub(super) struct WatchedPod {
    /// Its name, namespace and version.
    pub(super) metadata: ObjectMeta,
    /// The id of its partition.
    pub(super) partition: Option<Uid>,
    pub(super) stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Waiting,
    Ready,
    Started,
    Ended,
}

#[derive(Deserialize)]
struct Fields {
    metadata: Metadata,
    status: Option<Status>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: Option<String>,
    namespace: Option<String>,
    resource_version: Option<String>,
    #[serde(default)]
    labels: Labels,
}

#[derive(Default, Deserialize)]
struct Labels {
    #[serde(rename = "graphcore.ai/partition-id")]
    partition_id: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    phase: Option<String>,
    #[serde(default)]
    conditions: Vec<Condition>,
    #[serde(default)]
    container_statuses: Vec<Container>,
}

#[derive(Deserialize)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Container {
    #[serde(default)]
    restart_count: i32,
    #[serde(default)]
    state: ContainerState,
    #[serde(default)]
    last_state: ContainerState,
}

#[derive(Default, Deserialize)]
struct ContainerState {
    terminated: Option<IgnoredAny>,
}

impl From<Fields> for WatchedPod {
    fn from(Fields { metadata, status }: Fields) -> Self {
        let stage = status.as_ref().map_or(Stage::Waiting, stage);
        let partition = metadata.labels.partition_id.as_deref().map(Uid::of);
        let metadata = ObjectMeta {
            name: metadata.name,
            namespace: metadata.namespace,
            resource_version: metadata.resource_version,
            ..ObjectMeta::default()
        };
        Self {
            metadata,
            partition,
            stage,
        }
    }
}

fn stage(status: &Status) -> Stage {
    let mut conditions = status.conditions.iter();
    if matches!(status.phase.as_deref(), Some("Succeeded" | "Failed")) {
        return Stage::Ended;
    }
    if conditions.any(|one| one.kind == "Ready" && one.status == "True") {
        return Stage::Ready;
    }
    // A container that has ended was started before, and so may have been the Pod.
    let mut containers = status.container_statuses.iter();
    let has_ended = containers.any(|one| {
        let states = [&one.state, &one.last_state];
        one.restart_count > 0 || states.iter().any(|state| state.terminated.is_some())
    });
    if has_ended {
        Stage::Started
    } else {
        Stage::Waiting
    }
}
