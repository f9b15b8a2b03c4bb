//! What a scene finds on the API server: CRDs, a namespace, an account, and nothing of the scene before.

use ipu_operator::api::crd;
use ipu_operator::api::ipupartition::IPUPartition;
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, DynamicObject, ObjectMeta, Patch, PatchParams};
use kube::core::ApiResource;
use kube::{Client, ResourceExt};
use serde_json::json;

use super::scene::{NAMESPACE, eventually};

/// IPUPartitions as they are, also those that cannot be read.
pub(crate) fn raw_partitions(client: &Client) -> Api<DynamicObject> {
    let kind = ApiResource::erase::<IPUPartition>(&());
    Api::all_with(client.clone(), &kind)
}

/// Makes the definition what it is to be. It is served so a moment later.
pub(crate) async fn define(client: &Client, definition: &CustomResourceDefinition) {
    apply(Api::all(client.clone()), definition).await;
}

/// The CRDs, the release's namespace, the service account that Pods need, and no IPUPartition.
pub(crate) async fn install(client: &Client) {
    for definition in [crd::ipujob(), crd::ipupartition()] {
        define(client, &definition).await;
    }
    let namespace = Namespace {
        metadata: ObjectMeta {
            name: Some(NAMESPACE.to_owned()),
            ..ObjectMeta::default()
        },
        ..Namespace::default()
    };
    apply(Api::<Namespace>::all(client.clone()), &namespace).await;
    let account = serde_json::from_value(json!({"metadata": {"name": "default"}}));
    let account: ServiceAccount = account.unwrap();
    apply(Api::namespaced(client.clone(), "default"), &account).await;
    let partitions = raw_partitions(client);
    eventually("the CRDs are served and empty", async || {
        let list = partitions
            .list(&Default::default())
            .await
            .map_err(|error| error.to_string())?;
        for object in &list {
            let nothing = Patch::Merge(json!({"metadata": {"finalizers": null}}));
            let name = object.name_any();
            let _ = partitions
                .patch(&name, &PatchParams::default(), &nothing)
                .await;
            let _ = partitions.delete(&name, &DeleteParams::default()).await;
        }
        if list.items.is_empty() {
            Ok(())
        } else {
            Err(format!("{} objects", list.items.len()))
        }
    })
    .await;
}

/// Brings an object to a state, whoever wrote it before.
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
