//! The watch of the IPUPolicies, for the replicas that call them and for the rollout leader.

use futures::{FutureExt, StreamExt};
use ipu_api::labels;
use kube::Client;
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{self, Store};
use kube::runtime::{WatchStreamExt, watcher};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use ipu_runtime::release::ReleaseOptions;
use ipu_runtime::scope::Scope;
use ipu_runtime::scope::watch::{cluster_wide, refused};

use super::observed_policy::{ObservedPolicy, UnknownHook, WatchedPolicy};

/// The IPUPolicies in the cache of the watch. Cheap to clone.
#[derive(Clone)]
pub struct PolicyStore {
    store: Store<WatchedPolicy>,
    version: watch::Receiver<u64>,
    is_defined: watch::Receiver<bool>,
}

/// The watch that updates a [`PolicyStore`].
pub struct PolicyWatch {
    writer: Writer<WatchedPolicy>,
    version: watch::Sender<u64>,
    is_defined: watch::Sender<bool>,
}

/// Creates an empty store of IPUPolicies, and the watch that fills it.
pub fn policies() -> (PolicyStore, PolicyWatch) {
    let (store, writer) = reflector::store();
    let (version, versions) = watch::channel(0);
    let (is_defined, definition) = watch::channel(true);
    let watch = PolicyWatch {
        writer,
        version,
        is_defined,
    };
    let store = PolicyStore {
        store,
        version: versions,
        is_defined: definition,
    };
    (store, watch)
}

impl PolicyStore {
    /// Returns the IPUPolicies of the hooks that this version knows.
    pub fn all(&self) -> Vec<ObservedPolicy> {
        let all = self.store.state();
        let known = all.iter().filter_map(|watched| match &**watched {
            WatchedPolicy::Known(known) => Some((**known).clone()),
            WatchedPolicy::Unknown(_) => None,
        });
        known.collect()
    }

    /// Returns the IPUPolicies of all other hooks.
    pub fn of_unknown_hooks(&self) -> Vec<UnknownHook> {
        let all = self.store.state();
        let unknown = all.iter().filter_map(|watched| match &**watched {
            WatchedPolicy::Known(_) => None,
            WatchedPolicy::Unknown(unknown) => Some((**unknown).clone()),
        });
        unknown.collect()
    }

    /// Waits until the IPUPolicies are listed, or their CRD is missing.
    pub async fn wait_listed(&self) {
        let mut is_defined = self.is_defined.clone();
        // Both fail when the watch ends, with the process.
        tokio::select! {
            _ = self.store.wait_until_ready() => {}
            _ = is_defined.wait_for(|is_defined| !is_defined) => {}
        }
    }

    /// Whether the IPUPolicies have been listed.
    pub fn is_listed(&self) -> bool {
        let listed = self.store.wait_until_ready().now_or_never();
        listed.is_some_and(|listed| listed.is_ok())
    }

    /// Returns a receiver that changes with every IPUPolicy.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.version.clone()
    }
}

impl PolicyWatch {
    /// Follows the IPUPolicies of a release until `stop`.
    pub async fn follow(self, client: Client, release: &ReleaseOptions, stop: CancellationToken) {
        let version = self.version;
        let mut has_warned = false;
        let events = cluster_wide::<WatchedPolicy>(&client, config(release))
            .modify(|object| kube::ResourceExt::managed_fields_mut(object).clear());
        let mut events =
            Box::pin(reflector::reflector(self.writer, events).take_until(stop.cancelled_owned()));
        while let Some(event) = events.next().await {
            match event {
                Ok(_) => {
                    has_warned = false;
                    version.send_modify(|version| *version += 1);
                }
                Err(error) => {
                    if refused(&error) == Some(404) {
                        self.is_defined.send_replace(false);
                    }
                    if !has_warned {
                        has_warned = true;
                        tracing::warn!(%error, "failed to watch IPUPolicies; trying again; active policies stay active");
                    }
                }
            }
        }
    }
}

/// A release that serves the whole cluster watches every IPUPolicy. A release that serves some
/// namespaces watches those with its label, because other releases can have IPUPolicies too.
fn config(release: &ReleaseOptions) -> watcher::Config {
    let config = watcher::Config::default();
    match release.scope {
        Scope::Cluster => config,
        Scope::Namespaces(_) => {
            let label = labels::OPERATOR_NAMESPACE;
            config.labels(&format!("{label}={}", release.namespace))
        }
    }
}

#[cfg(test)]
pub(crate) mod fixture {
    use super::*;

    /// A list of no IPUPolicies, and the watch that would change it.
    pub(crate) fn without_policies() -> (PolicyStore, PolicyWatch) {
        let (store, mut watch) = policies();
        for event in [watcher::Event::Init, watcher::Event::InitDone] {
            watch.writer.apply_watcher_event(&event);
        }
        (store, watch)
    }
}
