//! Gathers everything that decisions about one job need, from what the watches have told.

use std::collections::BTreeSet;

use ipu_api::uid::Uid;
use ipu_runtime::clock;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Client;
use kube::api::Api;
use serde_json::Value;
use thiserror::Error;

use super::facts::Observed;
use super::raw::RawJob;
use super::stranded::overdue_on;
use super::validate::decode_status;
use super::watches::Views;

/// A job as the API server holds it, and what belongs to it.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The job's metadata, which every object has, however wrong the rest of it is.
    pub job: RawJob,
    /// The whole job as JSON.
    pub object: Value,
    /// Its Pods, its partitions and its status.
    pub observed: Observed,
}

/// What could not be read.
#[derive(Debug, Error)]
pub enum ObserveError {
    /// The node of a Pod.
    #[error("failed to read the Node {0}")]
    Node(String, #[source] kube::Error),
}

/// What is known of a job.
#[derive(Clone, Debug)]
pub enum Observation {
    /// There is none.
    Gone,
    /// The watches have yet to tell of what the controller has written.
    Behind,
    /// The job, and all that belongs to it.
    Seen(Box<Seen>),
}

/// Gathers a job, by its UID, and all that belongs to it: nothing of an earlier job of the same name
/// counts.
pub async fn observe(
    client: &Client,
    views: &Views,
    uid: Uid,
) -> Result<Observation, ObserveError> {
    let found = (
        views.jobs.of(uid),
        views.pods.of(uid),
        views.partitions.of(uid),
    );
    let (Some(jobs), Some(pods), Some(partitions)) = found else {
        return Ok(Observation::Behind);
    };
    let Some(job) = jobs.into_iter().next() else {
        return Ok(Observation::Gone);
    };
    let object = job.as_json();
    Ok(Observation::Seen(Box::new(Seen {
        observed: Observed {
            nodes: nodes(client, &pods).await?,
            pods,
            partitions,
            unmade: views.unmade.of(uid),
            status: decode_status(&object),
        },
        job,
        object,
    })))
}

/// The nodes of Pods that should have ended by now: they may be lost. Mostly there is no such Pod.
async fn nodes(client: &Client, pods: &[Pod]) -> Result<Vec<Node>, ObserveError> {
    let api: Api<Node> = Api::all(client.clone());
    let now = clock::now();
    let overdue = pods.iter().filter_map(|pod| overdue_on(pod, now));
    let mut nodes = Vec::new();
    for name in overdue.collect::<BTreeSet<_>>() {
        let found = api.get_opt(name).await;
        nodes.extend(found.map_err(|source| ObserveError::Node(name.to_owned(), source))?);
    }
    Ok(nodes)
}
