//! Watches only the labels of objects.

use kube::api::PartialObjectMeta;
use kube::runtime::reflector::store::Writer;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use crate::scope::watch::{cluster_wide, observe};

/// Follows the labels of all objects of a kind until `stop`. Without the right to do so they stay
/// unknown.
pub async fn follow<K>(
    client: Client,
    mut writer: Writer<PartialObjectMeta<K>>,
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
    let events = cluster_wide::<PartialObjectMeta<K>>(&client, watcher::Config::default());
    let events = events.modify(|object| {
        object.metadata.managed_fields = None;
        object.metadata.annotations = None;
    });
    let following = observe(events, |event| writer.apply_watcher_event(&event));
    let _ = stop.run_until_cancelled(following).await;
}
