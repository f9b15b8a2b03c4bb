//! Reads the inputs of the page of an IPUJob or a Pod.

use std::fmt::Debug;

use ipu_api::labels::JOB_UID_LABEL;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::ResourceExt;
use kube::api::{Api, DynamicObject, ListParams};
use serde::de::DeserializeOwned;

use crate::access::Access;
use crate::connection::Connection;
use crate::error::KubectlError;
use crate::reading::{jobs, known_controllers, list, objects, partitions, read_error};
use crate::why::Around;

/// An IPUJob, with the resources around it.
pub(crate) async fn job(
    connection: &Connection,
    name: &str,
) -> Result<(DynamicObject, Around), KubectlError> {
    let Connection { client, namespace } = connection;
    let jobs = jobs(client, Some(namespace.as_str()));
    let job = existing(&jobs, ("IPUJob", "ipujobs"), namespace, name).await?;
    let uid = job.uid().unwrap_or_default();
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let of_job = ListParams::default().labels(&format!("{JOB_UID_LABEL}={uid}"));
    let pods = list(&pods, of_job, "the Pods of the job").await?;
    Ok((job, around(connection, pods).await?))
}

/// A Pod, with the resources around it.
pub(crate) async fn pod(
    connection: &Connection,
    name: &str,
) -> Result<(Pod, Around), KubectlError> {
    let Connection { client, namespace } = connection;
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let pod = existing(&pods, ("Pod", "pods"), namespace, name).await?;
    let of_no_job = Access::Allowed(Vec::new());
    Ok((pod, around(connection, of_no_job).await?))
}

/// Reads the object of this name. A missing object is an error.
async fn existing<K>(
    api: &Api<K>,
    (kind, plural): (&'static str, &'static str),
    namespace: &str,
    name: &str,
) -> Result<K, KubectlError>
where
    K: Clone + DeserializeOwned + Debug,
{
    let what = format!("the {kind} {namespace}/{name}");
    let found = api.get_opt(name).await;
    let found = found.map_err(|source| read_error(&what, source))?;
    found.ok_or_else(|| KubectlError::NotFound {
        kind,
        plural,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    })
}

/// Reads the objects around an object. The position in the queue depends on all IPUPartitions of
/// the cluster.
async fn around(connection: &Connection, pods: Access<Vec<Pod>>) -> Result<Around, KubectlError> {
    let Connection { client, namespace } = connection;
    let events: Api<Event> = Api::namespaced(client.clone(), namespace);
    let warnings = ListParams::default().fields("type=Warning");
    Ok(Around {
        partitions: objects(&partitions(client), "IPUPartitions").await?,
        controllers: known_controllers(client).await?,
        pods,
        events: list(&events, warnings, "the events of the namespace").await?,
    })
}
