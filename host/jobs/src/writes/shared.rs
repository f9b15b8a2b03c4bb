//! Writes of objects that the jobs of a namespace share, and that belong to none of them.

use std::fmt::Debug;

use ipu_api::labels;
use kube::api::Api;
use kube::core::{NamespaceResourceScope, Resource};
use kube::{Client, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::classify::{failed, object_name};
use super::{CreateResult, Obstacle, apply_unless};

/// Applies an object. An object of the name without the operator's label is that of a user, and is
/// not changed.
pub async fn apply<K>(client: &Client, namespace: &str, object: &K) -> CreateResult
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Serialize
        + DeserializeOwned
        + Clone
        + Debug,
{
    let conflict = |found: &K| {
        let manager = found.labels().get(labels::MANAGED_BY_LABEL);
        let is_own = manager.is_some_and(|manager| manager == labels::MANAGED_BY);
        (!is_own).then(|| Obstacle::NotShared {
            object: object_name(object),
        })
    };
    let applied = apply_unless(client, namespace, object, true, conflict).await?;
    Ok(applied.err())
}

/// Applies an object that takes rights away, if it exists.
pub async fn withdraw<K>(client: &Client, namespace: &str, object: &K) -> CreateResult
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Serialize
        + DeserializeOwned
        + Clone
        + Debug,
{
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    let found = api.get_metadata_opt(&object.name_any()).await;
    match found.map_err(|source| failed("read", object, source))? {
        Some(_) => apply(client, namespace, object).await,
        None => Ok(None),
    }
}
