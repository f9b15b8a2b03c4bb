//! Prepares the API server for a fixture: as after an installation, and empty.

use cluster::wait::{Seen, eventually};
use ipu_api::crd;
use ipu_api::ipupartition::IPUPartition;
use ipu_api::vipu_controller::VIPUController;
use k8s_openapi::api::core::v1::{Namespace, Node, ServiceAccount};
use kube::api::{Api, DeleteParams, DynamicObject, ObjectMeta, Patch, PatchParams};
use kube::core::ApiResource;
use kube::{Client, ResourceExt};

use crate::definitions::define;

/// IPUPartitions as raw objects, so that unreadable ones can be listed.
pub(super) fn raw_partitions(client: &Client) -> Api<DynamicObject> {
    let kind = ApiResource::erase::<IPUPartition>(&());
    Api::all_with(client.clone(), &kind)
}

/// Creates the CRDs, the namespace of the release and the service account of Pods, and deletes the remains of an
/// earlier fixture.
pub(super) async fn install(client: &Client, namespace: &str) {
    for definition in crd::all() {
        define(client, &definition).await;
    }
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
    let partitions = raw_partitions(client);
    eventually("the CRDs are served and empty", async || {
        let list = match partitions.list(&Default::default()).await {
            Ok(list) => list.items,
            Err(error) => return Seen::NotYet(error.to_string()),
        };
        let names: Vec<String> = list.iter().map(ResourceExt::name_any).collect();
        for name in &names {
            let nothing = Patch::Merge(serde_json::json!({"metadata": {"finalizers": null}}));
            // Another deletion can be faster.
            let _ = partitions
                .patch(name, &PatchParams::default(), &nothing)
                .await;
            let _ = partitions.delete(name, &DeleteParams::default()).await;
        }
        Seen::when(names, Vec::is_empty)
    })
    .await;
    let controllers = Api::<VIPUController>::all(client.clone());
    eventually("no cordon of another test is left", async || {
        let list = match controllers.list(&Default::default()).await {
            Ok(list) => list.items,
            Err(error) => return Seen::NotYet(error.to_string()),
        };
        let names: Vec<String> = list.iter().map(ResourceExt::name_any).collect();
        for name in &names {
            let _ = controllers.delete(name, &DeleteParams::default()).await;
        }
        Seen::when(names, Vec::is_empty)
    })
    .await;
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
    api.patch(&object.name_any(), &params, &Patch::Apply(object))
        .await
        .unwrap();
}
