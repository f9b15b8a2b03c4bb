//! Reads one IPUJob, its IPUPartitions, Pods and events on demand.

use futures::future::join_all;
use ipu_api::ipujob::IPUJob;
use ipu_api::ipupartition::IPUPartition;
use ipu_api::labels::JOB_UID_LABEL;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{Api, DynamicObject, ListParams};
use kube::{Client, ResourceExt};

use super::{PODS_MAX, ReadError, read_error};
use crate::shown::shown;
use crate::view::JobObjects;
use crate::watches::resource;

/// Most IPUPartitions of a job that are read.
const PARTITIONS_MAX: usize = 32;

/// Most events of each kind of object that are read.
const EVENTS_MAX: u32 = 500;

/// An IPUJob and the objects around it. `partitions` returns the names of the IPUPartitions of an
/// owner, if the user may list them. What cannot be read is named.
pub async fn job(
    client: &Client,
    namespace: &str,
    name: &str,
    partitions: impl FnOnce(&str) -> Option<Vec<String>>,
) -> Result<JobObjects, ReadError> {
    let jobs: Api<DynamicObject> =
        Api::namespaced_with(client.clone(), namespace, &resource::<IPUJob>());
    let found = jobs.get_opt(name).await;
    let job = found.map_err(|error| ReadError::of_job(namespace, name, error))?;
    let job = job.ok_or_else(|| ReadError::NoJob(format!("{namespace}/{name}")))?;
    let uid = job.uid().unwrap_or_default();
    let mut read = JobObjects {
        job,
        partitions: None,
        pods: None,
        events: None,
        not_shown: Vec::new(),
    };
    match partitions(&uid) {
        Some(names) => read_partitions(client, &uid, names, &mut read).await,
        None => read.not_shown.push(
            "the IPUPartitions: you may not list them, or the API server has not listed them yet"
                .to_owned(),
        ),
    }
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let of_job = ListParams::default().labels(&format!("{JOB_UID_LABEL}={uid}"));
    match pods.list(&of_job.limit(PODS_MAX)).await {
        Ok(page) => {
            if page
                .metadata
                .continue_
                .is_some_and(|token| !token.is_empty())
            {
                read.not_shown
                    .push(format!("the Pods after the first {PODS_MAX}"));
            }
            read.pods = Some(page.items);
        }
        Err(error) => read.not_shown.push(read_error("the Pods", &error)),
    }
    match events(client, namespace, &uid).await {
        Ok(events) => read.events = Some(events),
        Err(error) => read.not_shown.push(read_error("the events", &error)),
    }
    Ok(read)
}

async fn read_partitions(
    client: &Client,
    uid: &str,
    mut names: Vec<String>,
    read: &mut JobObjects,
) {
    if names.len() > PARTITIONS_MAX {
        read.not_shown.push(format!(
            "the IPUPartitions after the first {PARTITIONS_MAX}"
        ));
        names.truncate(PARTITIONS_MAX);
    }
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource::<IPUPartition>());
    let found = join_all(names.iter().map(|name| api.get_opt(name))).await;
    let mut own = Vec::new();
    for (name, found) in names.iter().zip(found) {
        match found.map(|object| object.map(DynamicObject::try_parse::<IPUPartition>)) {
            Ok(Some(Ok(partition))) if partition.spec.owner.uid == uid => own.push(partition),
            // It has just been removed.
            Ok(Some(Ok(_)) | None) => {}
            Ok(Some(Err(_))) => {
                let words = format!(
                    "the IPUPartition {name}, which this version of the plugin cannot read"
                );
                read.not_shown.push(shown(&words));
            }
            Err(error) => read.not_shown.push(read_error("an IPUPartition", &error)),
        }
    }
    read.partitions = Some(own);
}

/// The events of a job, and of the Pods of its namespace.
async fn events(client: &Client, namespace: &str, uid: &str) -> Result<Vec<Event>, kube::Error> {
    let api: Api<Event> = Api::namespaced(client.clone(), namespace);
    let mut all = Vec::new();
    for fields in [
        format!("involvedObject.uid={uid}"),
        "involvedObject.kind=Pod".to_owned(),
    ] {
        let params = ListParams::default().fields(&fields).limit(EVENTS_MAX);
        all.extend(api.list(&params).await?.items);
    }
    Ok(all)
}
