//! Prepares the API server for a fixture, as an installation does.

use k8s_openapi::api::core::v1::{Namespace, Node, ServiceAccount};
use kube::Client;
use kube::api::{Api, ObjectMeta, Patch, PatchParams};

/// Creates the namespace of the release, the service account of Pods, and a node.
pub(super) async fn install(client: &Client, namespace: &str) {
    let namespace = Namespace {
        metadata: ObjectMeta {
            name: Some(namespace.to_owned()),
            ..ObjectMeta::default()
        },
        ..Namespace::default()
    };
    apply(Api::<Namespace>::all(client.clone()), &namespace).await;
    let account = serde_json::from_value(serde_json::json!({"metadata": {"name": "default"}}));
    let account: ServiceAccount = account.unwrap();
    apply(Api::namespaced(client.clone(), "default"), &account).await;
    label_node(client, "here").await;
}

/// Creates one node, with this value of its label `ipunode`.
pub(super) async fn label_node(client: &Client, value: &str) {
    let node: Node = serde_json::from_value(serde_json::json!({
        "metadata": {"name": "node", "labels": {"ipunode": value}},
    }))
    .unwrap();
    apply(Api::<Node>::all(client.clone()), &node).await;
}

/// Applies an object as an admin does.
pub(crate) async fn apply<K>(api: Api<K>, object: &K)
where
    K: kube::Resource<DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + serde::Serialize
        + serde::de::DeserializeOwned,
{
    let params = PatchParams::apply("tests").force();
    let name = object.meta().name.as_deref().unwrap();
    api.patch(name, &params, &Patch::Apply(object))
        .await
        .unwrap();
}
