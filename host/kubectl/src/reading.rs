//! Reads objects with the rights of the user: whole lists, page by page. It skips unreadable objects.

use std::fmt::Debug;

use ipu_api::ipujob::IPUJob;
use ipu_api::ipupartition::IPUPartition;
use ipu_api::vipu_controller::VIPUController;
use kube::api::{Api, DynamicObject, ListParams};
use kube::core::ApiResource;
use kube::{Client, Resource};
use serde::de::DeserializeOwned;

use crate::access::Access;
use crate::controllers::Controllers;
use crate::error::KubectlError;
use crate::fact::shown;

/// Number of objects in one page.
const PAGE: u32 = 500;

/// All objects of a list, or why the user may not list them.
pub(crate) async fn list<K>(
    api: &Api<K>,
    params: ListParams,
    what: &str,
) -> Result<Access<Vec<K>>, KubectlError>
where
    K: Clone + DeserializeOwned + Debug,
{
    let mut all = Vec::new();
    match each_page(api, params, what, |page| all.extend(page)).await? {
        Access::Allowed(()) => Ok(Access::Allowed(all)),
        Access::Denied(words) => Ok(Access::Denied(words)),
    }
}

/// Passes each page of a list to `visit`, so that no more than one page is in memory. Returns why the user may not list
/// them.
pub(crate) async fn each_page<K>(
    api: &Api<K>,
    params: ListParams,
    what: &str,
    mut visit: impl FnMut(Vec<K>),
) -> Result<Access<()>, KubectlError>
where
    K: Clone + DeserializeOwned + Debug,
{
    let mut params = params.limit(PAGE);
    loop {
        let page = match api.list(&params).await {
            Ok(page) => page,
            Err(kube::Error::Api(status)) if status.is_forbidden() => {
                return Ok(Access::Denied(shown(&status.message)));
            }
            Err(source) => return Err(read_error(what, source)),
        };
        visit(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params.continue_token = Some(token),
            None => return Ok(Access::Allowed(())),
        }
    }
}

/// The IPUPartitions of the cluster, untyped, so that an unreadable one does not affect the others.
pub(crate) fn partitions(client: &Client) -> Api<DynamicObject> {
    Api::all_with(client.clone(), &resource::<IPUPartition>())
}

/// The IPUJobs of a namespace, or of the cluster, untyped.
pub(crate) fn jobs(client: &Client, namespace: Option<&str>) -> Api<DynamicObject> {
    let (client, kind) = (client.clone(), resource::<IPUJob>());
    match namespace {
        Some(namespace) => Api::namespaced_with(client, namespace, &kind),
        None => Api::all_with(client, &kind),
    }
}

/// The VIPUControllers of the cluster, untyped.
pub(crate) fn controllers(client: &Client) -> Api<DynamicObject> {
    Api::all_with(client.clone(), &resource::<VIPUController>())
}

/// The readable VIPUControllers of the cluster. An API server of an earlier version of the operator does not serve the
/// kind, and so has none.
pub(crate) async fn known_controllers(
    client: &Client,
) -> Result<Access<Controllers>, KubectlError> {
    let api = controllers(client);
    let stored = match list(&api, ListParams::default(), "the VIPUControllers").await {
        Ok(Access::Allowed(stored)) => stored,
        Ok(Access::Denied(words)) => return Ok(Access::Denied(words)),
        Err(error) if error.is_unknown_kind() => Vec::new(),
        Err(error) => return Err(error),
    };
    let mut all = Controllers::default();
    for object in stored {
        match object.try_parse() {
            Ok(controller) => all.readable.push(controller),
            Err(_) => all.unreadable += 1,
        }
    }
    Ok(Access::Allowed(all))
}

/// A kind of the operator, for untyped objects.
pub(crate) fn resource<K: Resource<DynamicType = ()>>() -> ApiResource {
    ApiResource::erase::<K>(&())
}

/// The error of a read that the API server did not answer.
pub(crate) fn read_error(what: &str, source: kube::Error) -> KubectlError {
    KubectlError::Read {
        what: what.to_owned(),
        source: Box::new(source),
    }
}
