//! Reads objects with the rights of the user: whole lists, page by page. It skips unreadable
//! objects.

use std::fmt::Debug;
use std::iter;

use ipu_api::ipuaccounting::IPUAccounting;
use ipu_api::ipujob::IPUJob;
use ipu_api::ipupartition::IPUPartition;
use ipu_api::vipu_controller::VIPUController;
use ipu_dashboard::watches::resource;
use kube::api::{Api, DynamicObject, ListParams};
use kube::{Client, Resource};
use serde::de::DeserializeOwned;

use crate::access::{Access, Objects};
use crate::condition::shown;
use crate::error::KubectlError;

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
    let read = each_page(api, params, what, |page| all.extend(page)).await?;
    Ok(read.map(|()| all))
}

/// Passes each page of a list to `visit`, so that no more than one page is in memory. Returns why
/// the user may not list them.
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

/// The readable VIPUControllers of the cluster. An API server of an earlier version of the operator
/// does not serve the kind, and so has none.
pub(crate) async fn known_controllers(
    client: &Client,
) -> Result<Access<Objects<VIPUController>>, KubectlError> {
    match objects(&controllers(client), "the VIPUControllers").await {
        Err(error) if error.is_unknown_kind() => Ok(Access::Allowed(iter::empty().collect())),
        read => read,
    }
}

/// The readable IPUAccountings of the cluster. An API server of an earlier version of the operator
/// has none.
pub(crate) async fn known_accountings(
    client: &Client,
) -> Result<Access<Objects<IPUAccounting>>, KubectlError> {
    let api = Api::all_with(client.clone(), &resource::<IPUAccounting>());
    match objects(&api, "the IPUAccountings").await {
        Err(error) if error.is_unknown_kind() => Ok(Access::Allowed(iter::empty().collect())),
        read => read,
    }
}

/// The objects of a list. Those that cannot be parsed are only counted.
pub(crate) async fn objects<K: Resource + DeserializeOwned>(
    api: &Api<DynamicObject>,
    what: &str,
) -> Result<Access<Objects<K>>, KubectlError> {
    let stored = list(api, ListParams::default(), what).await?;
    Ok(stored.map(|all| all.into_iter().map(|one| one.try_parse().ok()).collect()))
}

/// The error of a read that the API server did not answer.
pub(crate) fn read_error(what: &str, source: kube::Error) -> KubectlError {
    KubectlError::Read(what.to_owned(), Box::new(source))
}
