//! Reads everything that decisions about one job need, live.

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, DynamicObject, ListParams};
use kube::core::ApiResource;
use kube::{Client, ResourceExt};
use serde_json::Value;
use thiserror::Error;

use super::facts::Observed;
use super::stranded::overdue_on;
use super::validate::decode_status;
use crate::api::ipujob::IPUJob;
use crate::api::ipupartition::IPUPartition;
use crate::names;

/// A job as the API server holds it, and what belongs to it.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The job's metadata, which every object has, however wrong the rest of it is.
    pub job: DynamicObject,
    /// The whole job as JSON.
    pub object: Value,
    /// Its Pods, its partitions and its status.
    pub observed: Observed,
}

/// What could not be read.
#[derive(Debug, Error)]
pub enum ObserveError {
    /// The job itself.
    #[error("failed to read the IPUJob")]
    Job(#[source] kube::Error),
    /// Its Pods.
    #[error("failed to list the Pods of the job")]
    Pods(#[source] kube::Error),
    /// Its partitions.
    #[error("failed to list the IPUPartitions of the job")]
    Partitions(#[source] kube::Error),
    /// The node of a Pod.
    #[error("failed to read the Node {0}")]
    Node(String, #[source] kube::Error),
}

/// IPUJobs as plain JSON: one that does not decode must not stop the watch of the others.
pub fn raw_jobs() -> ApiResource {
    ApiResource::erase::<IPUJob>(&())
}

/// Reads a job and all that belongs to it. None where the job is gone.
///
/// Everything is found by the job's UID, so that nothing of an earlier job of the same name counts.
pub async fn observe(
    client: &Client,
    namespace: &str,
    name: &str,
) -> Result<Option<Seen>, ObserveError> {
    let jobs: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &raw_jobs());
    let Some(job) = jobs.get_opt(name).await.map_err(ObserveError::Job)? else {
        return Ok(None);
    };
    let uid = job.uid().unwrap_or_default();
    let mine = ListParams::default().labels(&format!("{}={uid}", names::JOB_UID_LABEL));
    let pods = Api::<Pod>::namespaced(client.clone(), namespace)
        .list(&mine)
        .await
        .map_err(ObserveError::Pods)?;
    let partitions = Api::<IPUPartition>::all(client.clone())
        .list(&mine)
        .await
        .map_err(ObserveError::Partitions)?;
    let object = as_json(&job);
    let pods = pods.items.into_iter();
    let pods: Vec<Pod> = pods.filter(|pod| belongs_to(pod, &uid)).collect();
    Ok(Some(Seen {
        observed: Observed {
            nodes: nodes(client, &pods).await?,
            pods,
            partitions: partitions
                .items
                .into_iter()
                .filter(|partition| partition.spec.owner.uid == uid)
                .collect(),
            status: decode_status(&object),
        },
        job,
        object,
    }))
}

/// The nodes of Pods that should have ended by now: they may be lost. Mostly there is no such Pod.
async fn nodes(client: &Client, pods: &[Pod]) -> Result<Vec<Node>, ObserveError> {
    let api: Api<Node> = Api::all(client.clone());
    let now = Timestamp::now();
    let overdue = pods.iter().filter_map(|pod| overdue_on(pod, now));
    let mut nodes = Vec::new();
    for name in overdue.collect::<BTreeSet<_>>() {
        let found = api.get_opt(name).await;
        nodes.extend(found.map_err(|source| ObserveError::Node(name.to_owned(), source))?);
    }
    Ok(nodes)
}

/// A label can be set by anybody; the ownerReference is what counts.
fn belongs_to(pod: &Pod, uid: &str) -> bool {
    pod.owner_references().iter().any(|owner| owner.uid == uid)
}

fn as_json(job: &DynamicObject) -> Value {
    serde_json::to_value(job).expect("an object that came as JSON can be written as JSON")
}
