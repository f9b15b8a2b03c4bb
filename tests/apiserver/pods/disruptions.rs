//! Native Pods whose partition or node is lost, or that cannot start: they are replaced, and their
//! IPUs are released.

use std::time::Duration;

use ipu_pods::NativePodSettings;
use k8s_openapi::api::core::v1::{Pod, PodCondition};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::fixture::{Native, delete, once_reported, pod};
use super::id_of;
use crate::nodes::{bind, set_ready};

const NODE: &str = "lost";

/// A finalizer with which a deleted Pod stays visible, as that of a Job does.
const FINALIZER: &str = "example.com/tracking";

/// Starts everything with these settings.
async fn start(settings: NativePodSettings) -> Native {
    let mut native = Native::without_reconciler(&[4]).await;
    native.start_reconciler(settings);
    native
}

/// Creates a Pod that requests 4 IPUs and has an owner of this kind, and waits for its partition.
async fn owned(native: &Native, name: &str, kind: Option<&str>) -> Pod {
    let mut manifest = json!(pod(name, &json!({"graphcore.ai/ipu": "4"})));
    manifest["spec"]["terminationGracePeriodSeconds"] = json!(1);
    if let Some(kind) = kind {
        manifest["metadata"]["finalizers"] = json!([FINALIZER]);
        manifest["metadata"]["ownerReferences"] = json!([
            {"apiVersion": "example.com/v1", "kind": kind, "name": "owner", "uid": "u", "controller": true},
        ]);
    }
    let pod: Pod = serde_json::from_value(manifest).unwrap();
    let created = native.pods().create(&PostParams::default(), &pod).await;
    created.unwrap();
    native.once_bound(name).await;
    once_reported(&native.pods(), name, "PartitionReady").await;
    native.pods().get(name).await.unwrap()
}

/// Returns the condition of an eviction, once the Pod is being deleted.
async fn once_evicted(native: &Native, name: &str) -> Option<PodCondition> {
    let is_deleted = |pod: &Pod| pod.metadata.deletion_timestamp.is_some();
    let pod = native.once(name, "it is evicted", is_deleted).await;
    let mut conditions = pod.status.unwrap().conditions.unwrap().into_iter();
    conditions.find(|condition| condition.type_ == "DisruptionTarget")
}

/// Removes the finalizer, as the owner does once it has counted the Pod.
async fn counted(native: &Native, name: &str) {
    let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    let patched = native
        .pods()
        .patch(name, &PatchParams::default(), &patch)
        .await;
    patched.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_of_controllers_are_evicted_if_they_lose_a_partition() {
    let native = start(NativePodSettings::default()).await;
    for kind in [Some("Job"), None] {
        let bound = owned(&native, "web", kind).await;
        native.fixture.pods[0].server.with(|world, now| {
            world
                .pod
                .break_down(&id_of(&bound), "link 3 is down", false, now)
                .unwrap();
        });
        let message = once_reported(&native.pods(), "web", "PartitionLost").await;
        assert!(message.contains("link 3 is down"), "{message}");
        if kind.is_some() {
            let condition = once_evicted(&native, "web").await.unwrap();
            assert_eq!(
                (&*condition.status, condition.reason.as_deref()),
                ("True", Some("PartitionLost"))
            );
            assert_eq!(condition.message, Some(message));
            counted(&native, "web").await;
        } else {
            assert!(
                message.contains("delete the Pod and create it again"),
                "{message}"
            );
            native.fixture.once_event("web", "PartitionLost").await;
            assert_eq!(
                native
                    .pods()
                    .get("web")
                    .await
                    .unwrap()
                    .metadata
                    .deletion_timestamp,
                None
            );
            delete(&native.pods(), "web").await;
        }
        native.once_nothing_is_left().await;
    }
}

/// Deletes the Pod as Kubernetes does after its own timeout, and makes its node unreachable.
async fn lose(native: &Native, name: &str) {
    let client = &native.fixture.client;
    set_ready(client, NODE, "True").await;
    bind(client, "default", name, NODE).await.unwrap();
    let deleted = native.pods().delete(name, &DeleteParams::default()).await;
    deleted.unwrap();
    set_ready(client, NODE, "Unknown").await;
}

fn lost_nodes() -> NativePodSettings {
    NativePodSettings {
        lost_node: Some(Duration::from_mins(10)),
        ..NativePodSettings::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ipus_of_a_pod_on_a_lost_node_are_released() {
    let native = start(lost_nodes()).await;
    owned(&native, "web", None).await;
    lose(&native, "web").await;
    let note = native.fixture.once_event("web", "NodeLost").await;
    for part in [NODE, "2026-01-01T00:00:00Z", "by force"] {
        assert!(note.contains(part), "{part}: {note}");
    }
    native.once_nothing_is_left().await;
    assert!(native.pods().get_opt("web").await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn pod_of_a_stateful_set_on_a_lost_node_stays_with_advice() {
    let native = start(lost_nodes()).await;
    let bound = owned(&native, "web", Some("StatefulSet")).await;
    lose(&native, "web").await;
    let message = once_reported(&native.pods(), "web", "NodeLost").await;
    for part in ["StatefulSet", "node.kubernetes.io/out-of-service"] {
        assert!(message.contains(part), "{part}: {message}");
    }
    native.fixture.once_event("web", "NodeLost").await;
    let kept = native.pods().get("web").await.unwrap();
    assert_eq!(
        kept.metadata.deletion_grace_period_seconds,
        Some(1),
        "not by force"
    );
    assert_eq!(native.fixture.ids().concat(), [id_of(&bound)]);
    delete(&native.pods(), "web").await;
    counted(&native, "web").await;
    native.once_nothing_is_left().await;
}

/// What the scheduler reports of a Pod that fits on no node.
fn unschedulable() -> Value {
    json!({"status": {"conditions": [{
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes are available",
    }]}})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_cannot_start_says_why_and_releases_its_ipus() {
    let settings = NativePodSettings {
        start_timeout: Some(Duration::from_secs(1)),
        ..NativePodSettings::default()
    };
    let native = start(settings).await;
    for kind in [Some("ReplicaSet"), None] {
        owned(&native, "web", kind).await;
        let (params, status) = (PatchParams::default(), Patch::Strategic(unschedulable()));
        let patched = native.pods().patch_status("web", &params, &status).await;
        patched.unwrap();
        let message = once_reported(&native.pods(), "web", "PodNotStarting").await;
        assert!(message.contains("0/1 nodes are available"), "{message}");
        native.fixture.once_event("web", "PodNotStarting").await;
        if kind.is_some() {
            let condition = once_evicted(&native, "web").await.unwrap();
            assert_eq!(condition.reason.as_deref(), Some("PodNotStarting"));
            counted(&native, "web").await;
        } else {
            assert!(message.contains("delete the Pod"), "{message}");
            delete(&native.pods(), "web").await;
        }
        native.once_nothing_is_left().await;
    }
}
