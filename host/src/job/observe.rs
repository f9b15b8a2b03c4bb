//! Reads everything that decisions about one job need: the job itself live, what belongs to it from
//! what the watches have told.

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, DynamicObject};
use kube::core::ApiResource;
use kube::{Client, ResourceExt};
use serde_json::Value;
use thiserror::Error;

use super::facts::Observed;
use super::stranded::overdue_on;
use super::validate::decode_status;
use super::watches::Views;
use crate::api::ipujob::IPUJob;

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
    /// The node of a Pod.
    #[error("failed to read the Node {0}")]
    Node(String, #[source] kube::Error),
}

/// IPUJobs as plain JSON: one that does not decode must not stop the watch of the others.
pub fn raw_jobs() -> ApiResource {
    ApiResource::erase::<IPUJob>(&())
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

/// Reads a job and all that belongs to it.
///
/// Everything is found by the job's UID, so that nothing of an earlier job of the same name counts.
pub async fn observe(
    client: &Client,
    views: &Views,
    namespace: &str,
    name: &str,
) -> Result<Observation, ObserveError> {
    let jobs: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &raw_jobs());
    let Some(job) = jobs.get_opt(name).await.map_err(ObserveError::Job)? else {
        return Ok(Observation::Gone);
    };
    let uid = job.uid().unwrap_or_default();
    let (Some(pods), Some(partitions)) = (views.pods.of(&uid), views.partitions.of(&uid)) else {
        return Ok(Observation::Behind);
    };
    let object = as_json(&job);
    Ok(Observation::Seen(Box::new(Seen {
        observed: Observed {
            nodes: nodes(client, &pods).await?,
            pods,
            partitions,
            status: decode_status(&object),
        },
        job,
        object,
    })))
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

fn as_json(job: &DynamicObject) -> Value {
    serde_json::to_value(job).expect("an object that came as JSON can be written as JSON")
}
