//! Writes of objects that the jobs of a namespace share, and that belong to none of them.

use std::fmt::Debug;

use ipu_api::labels;
use kube::api::{Api, Patch, PatchParams};
use kube::core::{NamespaceResourceScope, Resource};
use kube::{Client, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::classify::{contains_all, failed, object_name, refused_or_failed};
use super::{Obstacle, WriteError};

/// Applies an object (server-side apply), unless it is as desired. An object of the name without the operator's label is that
/// of a user, and is not changed. `creates` is false for an object that is of use only if it exists. Returns
/// the obstacle, if there is one.
pub async fn apply<K>(
    client: &Client,
    namespace: &str,
    object: &K,
    creates: bool,
) -> Result<Option<Obstacle>, WriteError>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Serialize
        + DeserializeOwned
        + Clone
        + Debug,
{
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    let name = object.name_any();
    let found = api.get_opt(&name).await;
    let found = found.map_err(|source| failed("read", object, source))?;
    let is_foreign = |found: &K| {
        let manager = found.labels().get(labels::MANAGED_BY_LABEL);
        manager.is_none_or(|manager| manager != labels::MANAGED_BY)
    };
    if found.as_ref().is_some_and(is_foreign) {
        return Ok(Some(Obstacle::NotShared {
            object: object_name(object),
        }));
    }
    let is_done = found.map_or(!creates, |found| {
        contains_all(&json!(found), &json!(object))
    });
    if is_done {
        return Ok(None);
    }
    let parameters = PatchParams::apply(labels::FIELD_MANAGER).force();
    match api.patch(&name, &parameters, &Patch::Apply(object)).await {
        Ok(_) => Ok(None),
        Err(error) => refused_or_failed("apply", object, error).map(Some),
    }
}
