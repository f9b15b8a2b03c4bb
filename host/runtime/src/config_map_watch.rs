//! Watches one ConfigMap.

use futures::Stream;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client};

/// The events of the ConfigMap of this name. The stream does not end, and backs off after errors.
pub fn watch_config_map(
    client: Client,
    namespace: &str,
    name: &str,
) -> impl Stream<Item = Result<Event<ConfigMap>, watcher::Error>> {
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    kube::runtime::watcher(Api::namespaced(client, namespace), config).default_backoff()
}
