//! Reads the inputs of the page of an IPUJob or a Pod.

use ipu_api::ipujob::IPUJob;
use ipu_api::labels::JOB_UID_LABEL;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::ResourceExt;
use kube::api::{Api, DynamicObject, ListParams};

use crate::access::Access;
use crate::connection::Connection;
use crate::error::KubectlError;
use crate::reading::{known_controllers, list, partitions, read_error, resource};
use crate::why::{Around, Partitions};

/// An IPUJob, with the resources around it.
pub(crate) async fn job(
    connection: &Connection,
    name: &str,
) -> Result<(DynamicObject, Around), KubectlError> {
    let Connection { client, namespace } = connection;
    let jobs: Api<DynamicObject> =
        Api::namespaced_with(client.clone(), namespace, &resource::<IPUJob>());
    let what = format!("the IPUJob {namespace}/{name}");
    let found = jobs.get_opt(name).await;
    let found = found.map_err(|source| read_error(&what, source))?;
    let job = found.ok_or_else(|| KubectlError::NotFound {
        kind: "IPUJob",
        plural: "ipujobs",
        namespace: namespace.clone(),
        name: name.to_owned(),
    })?;
    let uid = job.uid().unwrap_or_default();
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let of_job = ListParams::default().labels(&format!("{JOB_UID_LABEL}={uid}"));
    let around = Around {
        partitions: readable(connection).await?,
        controllers: known_controllers(client).await?,
        pods: list(&pods, of_job, "the Pods of the job").await?,
        events: warnings(connection).await?,
    };
    Ok((job, around))
}

/// A Pod, with the resources around it.
pub(crate) async fn pod(
    connection: &Connection,
    name: &str,
) -> Result<(Pod, Around), KubectlError> {
    let Connection { client, namespace } = connection;
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let what = format!("the Pod {namespace}/{name}");
    let found = pods.get_opt(name).await;
    let found = found.map_err(|source| read_error(&what, source))?;
    let pod = found.ok_or_else(|| KubectlError::NotFound {
        kind: "Pod",
        plural: "pods",
        namespace: namespace.clone(),
        name: name.to_owned(),
    })?;
    let around = Around {
        partitions: readable(connection).await?,
        controllers: known_controllers(client).await?,
        pods: Access::Allowed(Vec::new()),
        events: warnings(connection).await?,
    };
    Ok((pod, around))
}

/// The IPUPartitions of the cluster: the position in the queue depends on all of them.
pub(crate) async fn readable(connection: &Connection) -> Result<Access<Partitions>, KubectlError> {
    let api = partitions(&connection.client);
    let stored = match list(&api, ListParams::default(), "IPUPartitions").await? {
        Access::Allowed(stored) => stored,
        Access::Denied(words) => return Ok(Access::Denied(words)),
    };
    let mut all = Partitions::default();
    for object in stored {
        match object.try_parse() {
            Ok(partition) => all.readable.push(partition),
            Err(_) => all.unreadable += 1,
        }
    }
    Ok(Access::Allowed(all))
}

async fn warnings(connection: &Connection) -> Result<Access<Vec<Event>>, KubectlError> {
    let events: Api<Event> = Api::namespaced(connection.client.clone(), &connection.namespace);
    let warnings = ListParams::default().fields("type=Warning");
    list(&events, warnings, "the events of the namespace").await
}
