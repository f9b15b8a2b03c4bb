//! Watches only the labels of objects.

use futures::StreamExt;
use kube::api::{Api, PartialObjectMeta};
use kube::runtime::reflector::store::Writer;
use kube::runtime::{WatchStreamExt, reflector, watcher};
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

/// Follows the labels of all `what` of the cluster until `stop`. Without the right to do so, the labels stay unknown.
pub async fn follow<K>(
    client: Client,
    what: &str,
    writer: Writer<PartialObjectMeta<K>>,
    stop: CancellationToken,
) where
    K: Resource<DynamicType = (), Scope = kube::core::ClusterResourceScope>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned
        + Send
        + Sync
        + 'static,
{
    let all: Api<PartialObjectMeta<K>> = Api::all(client);
    let changes = watcher(all, watcher::Config::default())
        .default_backoff()
        .modify(|object| {
            object.metadata.managed_fields = None;
            object.metadata.annotations = None;
        });
    reflector(writer, changes)
        .take_until(stop.cancelled_owned())
        .for_each(async |change| {
            if let Err(error) = change {
                tracing::warn!(%error, "failed to watch the labels of {what}; trying again");
            }
        })
        .await;
}
