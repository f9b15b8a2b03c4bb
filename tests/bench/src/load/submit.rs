//! The user: submits many jobs, several at a time.

use std::time::Duration;

use cluster::wait::{Seen, until};
use futures::{StreamExt, TryStreamExt, stream};
use kube::Client;
use kube::api::{Api, DynamicObject, ListParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::Value;

use super::{LoadError, NAMESPACE, SUBMITTED_AT_ONCE, api};

/// The API of a kind in the jobs' namespace.
pub(crate) fn jobs(client: &Client, group: &str, version: &str, kind: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk(group, version, kind);
    Api::namespaced_with(client.clone(), NAMESPACE, &ApiResource::from_gvk(&kind))
}

/// Waits until the API server serves a kind, which is a moment after its CRD was made.
pub(crate) async fn once_served(jobs: &Api<DynamicObject>) -> Result<(), LoadError> {
    let patience = Duration::from_mins(1);
    until("a new kind to be served", patience, async || {
        let list = ListParams::default().limit(1);
        jobs.list(&list).await.map(|_| Seen::Yes(()))
    })
    .await?;
    Ok(())
}

/// Creates `count` objects, each as `object` makes it for its number.
pub(super) async fn submit(
    jobs: &Api<DynamicObject>,
    count: usize,
    object: impl Fn(usize) -> Value,
) -> Result<(), LoadError> {
    stream::iter(0..count)
        .map(Ok)
        .try_for_each_concurrent(SUBMITTED_AT_ONCE, |number| {
            let object = serde_json::from_value(object(number));
            async move {
                let object: DynamicObject = object.map_err(kube::Error::SerdeError)?;
                jobs.create(&PostParams::default(), &object).await.map(drop)
            }
        })
        .await
        .map_err(api("submit a job"))
}
