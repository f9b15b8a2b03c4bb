//! Reads everything that decisions about one job need, from the watch caches.

use std::collections::BTreeSet;
use std::sync::Arc;

use ipu_api::uid::Uid;
use ipu_runtime::clock;
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::api::Api;
use serde_json::Value;
use thiserror::Error;

use super::facts::Observed;
use super::facts::projection::ObservedPod;
use super::failed_mounts;
use super::lost_node::overdue_node;
use super::raw::RawJob;
use super::validate::decode_status;
use super::views::Views;

/// A job as the API server returned it, and its objects.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The job. Its metadata is always readable; its spec may be invalid.
    pub job: RawJob,
    /// The whole job as JSON.
    pub object: Value,
    /// Its Pods, its partitions and its status.
    pub observed: Observed,
}

/// A failed read.
#[derive(Debug, Error)]
pub enum ObserveError {
    /// A Pod's Node could not be read.
    #[error("failed to read the Node {0}")]
    Node(String, #[source] kube::Error),
    /// The ServiceAccount of the workers could not be read.
    #[error("failed to read the ServiceAccount {0}")]
    ServiceAccount(String, #[source] kube::Error),
    /// The job in the cache could not be decoded.
    #[error("failed to decode the job in the cache")]
    Job(#[from] serde_json::Error),
}

/// The result of reading a job.
#[derive(Clone, Debug)]
pub enum Observation {
    /// The job does not exist.
    NotFound,
    /// The watches have not reported the controller's own writes yet.
    CacheStale,
    /// The job and its objects.
    Found(Box<Snapshot>),
}

/// Reads a job, by its UID, and its objects. Objects of an earlier job of the same name do not count.
pub async fn observe(
    client: &Client,
    views: &Views,
    uid: Uid,
) -> Result<Observation, ObserveError> {
    let found = (
        views.jobs.job(uid),
        views.pods.of(uid),
        views.partitions.of(uid),
    );
    let (Some(job), Some(mut pods), Some(mut partitions)) = found else {
        return Ok(Observation::CacheStale);
    };
    // The caches have them in the order of UIDs.
    pods.sort_by(|one, other| one.object.name().cmp(other.object.name()));
    partitions.sort_by(|one, other| one.object.name().cmp(other.object.name()));
    let Some(job) = job? else {
        return Ok(Observation::NotFound);
    };
    let object = job.as_json();
    let namespace = job.metadata.namespace.as_deref().unwrap_or_default();
    let failed_mount = match failed_mounts::slow_mount(&pods, clock::now()) {
        Some(pod) => failed_mounts::read(client, namespace, pod).await,
        None => None,
    };
    Ok(Observation::Found(Box::new(Snapshot {
        observed: Observed {
            nodes: nodes(client, &pods).await?,
            failed_mount,
            pods,
            partitions,
            uncreated: views.uncreated.of(uid),
            status: decode_status(&object),
        },
        job,
        object,
    })))
}

/// Reads the nodes of Pods whose grace period has expired, because the nodes may be lost. Usually there is none.
async fn nodes(client: &Client, pods: &[Arc<ObservedPod>]) -> Result<Vec<Node>, ObserveError> {
    let api: Api<Node> = Api::all(client.clone());
    let now = clock::now();
    let overdue = pods.iter().filter_map(|pod| overdue_node(pod, now));
    let mut nodes = Vec::new();
    for name in overdue.collect::<BTreeSet<_>>() {
        let found = api.get_opt(name).await;
        nodes.extend(found.map_err(|source| ObserveError::Node(name.to_owned(), source))?);
    }
    Ok(nodes)
}
