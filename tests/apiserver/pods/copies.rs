//! Native Pods that are made from others: exported and applied again, or copied to debug them. And
//! the limits and nodes that users write.

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::fixture::{Native, condition, delete, is_bound, once_reported, pod, request};
use super::{environment, id_of};
use crate::nodes::bind;

/// The Pod as `kubectl get --output yaml` shows it. kubectl removes the version before it creates
/// an object.
async fn exported(native: &Native, name: &str) -> Value {
    let pod = native.pods().get(name).await.unwrap();
    let mut manifest = json!(pod);
    let metadata = manifest["metadata"].as_object_mut().unwrap();
    metadata.retain(|key, _| !["managedFields", "resourceVersion"].contains(&key.as_str()));
    manifest
}

async fn create(native: &Native, manifest: &Value) -> kube::Result<Pod> {
    let pod: Pod = serde_json::from_value(manifest.clone()).unwrap();
    native.pods().create(&PostParams::default(), &pod).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exported_pod_applied_again_gets_its_own_partition() {
    let native = Native::start(&[4, 4]).await;
    request(&native.pods(), "web", "4").await.unwrap();
    let first = id_of(&native.once_bound("web").await);
    bind(&native.fixture.client, "default", "web", "node")
        .await
        .unwrap();
    once_reported(&native.pods(), "web", "PartitionReady").await;
    let manifest = exported(&native, "web").await;
    assert_eq!(manifest["spec"]["nodeName"], json!("node"));

    // The partition of the first Pod is still there, so that another one is needed.
    let mut other = manifest.clone();
    other["metadata"]["name"] = json!("other");
    let created = create(&native, &other).await.unwrap();
    assert!(!is_bound(&created));
    let spec = created.spec.as_ref().unwrap();
    assert_eq!((&spec.node_name, &spec.node_selector), (&None, &None));
    let bound = native.once_bound("other").await;
    assert_ne!(id_of(&bound), first);
    let (_, used) = environment(&bound).swap_remove(2);
    assert_eq!(used, id_of(&bound));

    delete(&native.pods(), "web").await;
    create(&native, &manifest).await.unwrap();
    let again = native.once_bound("web").await;
    assert!(![first, id_of(&bound)].contains(&id_of(&again)));
    for name in ["web", "other"] {
        delete(&native.pods(), name).await;
    }
    native.once_nothing_is_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_to_debug_requests_ipus_only_by_the_limit() {
    let native = Native::start(&[4]).await;
    request(&native.pods(), "web", "4").await.unwrap();
    let id = id_of(&native.once_bound("web").await);
    let manifest = exported(&native, "web").await;
    // What kubectl debug --copy-to keeps, by its options and profiles.
    for (name, keys) in [
        ("with-annotations", &["annotations"][..]),
        ("with-labels", &["labels"]),
        ("with-nothing", &[]),
    ] {
        let mut copied = manifest.clone();
        let metadata = copied["metadata"].as_object_mut().unwrap();
        metadata.retain(|key, _| keys.contains(&key.as_str()));
        metadata.insert("name".to_owned(), json!(name));
        let created = create(&native, &copied).await.unwrap();
        let gates = created.spec.clone().unwrap().scheduling_gates;
        assert_eq!(gates.unwrap_or_default(), [], "{name}");
        assert_eq!(
            created.labels().get("graphcore.ai/partition-id"),
            None,
            "{name}"
        );
    }
    let mut limited = manifest.clone();
    limited["metadata"] = json!({"name": "limited"});
    limited["spec"]["containers"][0]["resources"] = json!({"limits": {"graphcore.ai/ipu": 4}});
    create(&native, &limited).await.unwrap();
    once_reported(&native.pods(), "limited", "WaitingForPartition").await;
    let first = native.pods().get("web").await.unwrap();
    assert_eq!((id_of(&first), is_bound(&first)), (id, true));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_of_a_waiting_pod_without_a_request_is_not_gated() {
    let native = Native::start(&[4]).await;
    request(&native.pods(), "first", "4").await.unwrap();
    native.once_bound("first").await;
    request(&native.pods(), "web", "4").await.unwrap();
    let mut copied = exported(&native, "web").await;
    assert_eq!(
        copied["spec"]["schedulingGates"][0]["name"],
        json!("graphcore.ai/partition")
    );
    copied["metadata"] = json!({"name": "copy"});
    let created = create(&native, &copied).await.unwrap();
    assert_eq!(
        created.spec.unwrap().scheduling_gates.unwrap_or_default(),
        []
    );
}

/// A Pod with this limit of its container.
fn limited(name: &str, limit: &Value) -> Value {
    let mut manifest = json!(pod(name, &json!({})));
    manifest["spec"]["containers"][0]["resources"] = json!({"limits": {"graphcore.ai/ipu": limit}});
    manifest
}

/// Creates an object as it is written: the types of the client would write the limit anew.
async fn post(native: &Native, manifest: &Value) -> kube::Result<Pod> {
    let path = "/api/v1/namespaces/default/pods";
    let request = http::Request::post(path).body(manifest.to_string().into_bytes());
    native.fixture.client.request(request.unwrap()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_counts_by_its_value() {
    let native = Native::start(&[64]).await;
    let sizes = [
        json!("4"),
        json!(4),
        json!("4000m"),
        json!("4e0"),
        json!("0.004k"),
    ];
    for (number, limit) in sizes.iter().enumerate() {
        let name = format!("web-{number}");
        post(&native, &limited(&name, limit)).await.unwrap();
        native.once_bound(&name).await;
    }
    let partitions = native.fixture.partitions().list(&Default::default()).await;
    let ipus: Vec<u32> = partitions
        .unwrap()
        .iter()
        .map(|one| one.spec.ipus)
        .collect();
    assert_eq!(ipus, [4; 5]);
    let none = post(&native, &limited("none", &json!("0"))).await.unwrap();
    assert_eq!(none.spec.unwrap().scheduling_gates, None);
    for (limit, part) in [
        ("3", "power of two"),
        ("3k", "is more than the"),
        ("1500m", "spec.containers[0].resources.limits"),
        ("-4", "spec.containers[0].resources.limits"),
    ] {
        let refused = post(&native, &limited("refused", &json!(limit))).await;
        let message = refused.unwrap_err().to_string();
        assert!(message.contains(part), "{limit}: {message}");
    }
    let mut of_the_pod = json!(pod("of-the-pod", &json!({})));
    of_the_pod["spec"]["resources"] = json!({"limits": {"graphcore.ai/ipu": "4"}});
    let message = post(&native, &of_the_pod).await.unwrap_err().to_string();
    assert!(message.contains("spec.resources.limits"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_scheduler_or_user_places_a_pod_before_its_partition() {
    let native = Native::start(&[4]).await;
    request(&native.pods(), "first", "4").await.unwrap();
    native.once_bound("first").await;
    let mut manifest = json!(pod("web", &json!({"graphcore.ai/ipu": "4"})));
    manifest["spec"]["schedulerName"] = json!("other-scheduler");
    post(&native, &manifest).await.unwrap();
    let client = &native.fixture.client;
    let early = bind(client, "default", "web", "node").await.unwrap_err();
    assert!(early.to_string().contains("schedulingGates"), "{early}");
    delete(&native.pods(), "first").await;
    let bound = native.once_bound("web").await;
    assert_eq!(
        bound.spec.unwrap().node_selector.unwrap()["ipunode"],
        "here"
    );
    bind(client, "default", "web", "node").await.unwrap();

    let mut placed = json!(pod("placed", &json!({"graphcore.ai/ipu": "4"})));
    placed["spec"]["nodeName"] = json!("node");
    let refused = post(&native, &placed).await.unwrap_err();
    let kube::Error::Api(status) = refused else {
        panic!("{refused}");
    };
    assert_eq!(status.details.unwrap().causes[0].field, "spec.nodeName");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ephemeral_container_leaves_the_partition_unchanged() {
    let native = Native::start(&[4]).await;
    request(&native.pods(), "web", "4").await.unwrap();
    let bound = native.once_bound("web").await;
    let debugger =
        json!({"spec": {"ephemeralContainers": [{"name": "debugger", "image": "none"}]}});
    let debugged = native
        .pods()
        .patch_ephemeral_containers("web", &PatchParams::default(), &Patch::Strategic(debugger))
        .await
        .unwrap();
    assert_eq!(id_of(&debugged), id_of(&bound));
    once_reported(&native.pods(), "web", "PartitionReady").await;
    assert!(condition(&native.pods().get("web").await.unwrap()).is_some());
}
