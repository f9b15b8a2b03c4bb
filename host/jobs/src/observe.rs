//! Reads everything that decisions about one job need, from the watch caches.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::future::join_all;
use ipu_api::uid::Uid;
use ipu_runtime::clock;
use ipu_runtime::pod_start::node_report::{self, NodeReport};
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::api::Api;
use serde_json::Value;
use thiserror::Error;

use super::facts::Observed;
use super::facts::projection::ObservedPod;
use super::lost_node::overdue_node;
use super::raw::RawJob;
use super::validate::decode_status;
use super::views::Views;

/// Maximum number of Pods whose events are read in one reconcile.
const REPORTS_MAX: usize = 8;

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
    /// The admission policy of launchers with shared rights, or its binding, could not be read.
    #[error("failed to read the ValidatingAdmissionPolicy {0} and its binding")]
    LauncherPolicy(String, #[source] kube::Error),
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

/// Reads a job, by its UID, and its objects. Objects of an earlier job of the same name do not
/// count.
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
    let node_reports = node_reports(client, namespace, &pods).await;
    Ok(Observation::Found(Box::new(Snapshot {
        observed: Observed {
            nodes: nodes(client, &pods).await?,
            node_reports,
            pods,
            partitions,
            uncreated: views.uncreated.of(uid),
            status: decode_status(&object),
        },
        job,
        object,
    })))
}

/// Reads the events of the first Pods whose status does not say enough. The Pods of a job have the
/// same volumes, networks and images, and more often than not the same reason.
async fn node_reports(
    client: &Client,
    namespace: &str,
    pods: &[Arc<ObservedPod>],
) -> BTreeMap<String, NodeReport> {
    let now = clock::now();
    let unclear = pods.iter().filter(|pod| {
        let preparing_since = pod.preparing_since.as_deref().copied();
        node_report::is_needed(pod.start, preparing_since, now)
    });
    let reports = unclear.take(REPORTS_MAX).map(async |pod| {
        let report = node_report::read(client, namespace, pod.object.uid()).await;
        (pod.object.name().to_owned(), report)
    });
    join_all(reports).await.into_iter().collect()
}

/// Reads the nodes of Pods whose grace period has expired, because the nodes may be lost. Usually
/// there is none.
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
