//! The watch of VIPUControllers in each replica: it caches the objects, and passes the requests of
//! admins to the registry.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::StreamExt;
use ipu_api::vipu_controller::{VIPUController, VIPUControllerStatus};
use ipu_runtime::scope::watch::{cluster_wide, readable, refused};
use ipu_runtime::trimmed::Guarded;
use ipu_runtime::watch_store::Store;
use ipu_runtime::{panics, wait};
use kube::runtime::watcher;
use kube::{Client, ResourceExt};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use vipu_client::Registry;
use vipu_client::cordon::{CordonRequest, CordonRequests};

use super::ManagingRelease;
use super::plan::Object;
use super::status::ObservedSpec;

/// Objects that are read at once.
const PAGE: u32 = 100;

/// Whether the VIPUControllers are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SyncState {
    /// No list is complete yet.
    NotYet,
    /// The API server has no such kind, so there are none.
    NotServed,
    /// A list is complete, and the watch follows.
    Listed,
}

/// The VIPUControllers, as the watch last saw them. Clones are cheap and share the data.
#[derive(Clone)]
pub struct ControllerObjects {
    store: Arc<Mutex<Store<String, Object>>>,
    sync: watch::Receiver<SyncState>,
    changes: watch::Receiver<u64>,
}

/// The watch that updates [`ControllerObjects`].
pub struct ControllerObjectWatch {
    store: Arc<Mutex<Store<String, Object>>>,
    sync: watch::Sender<SyncState>,
    changes: watch::Sender<u64>,
    registry: Arc<Registry>,
}

/// The VIPUControllers, unknown until the watch is followed. The registry gets the requests of
/// admins in them.
pub fn controller_objects(registry: Arc<Registry>) -> (ControllerObjects, ControllerObjectWatch) {
    let (publish_sync, sync) = watch::channel(SyncState::NotYet);
    let (publish_changes, changes) = watch::channel(0);
    let objects = ControllerObjects {
        store: Arc::default(),
        sync,
        changes,
    };
    let watch = ControllerObjectWatch {
        store: Arc::clone(&objects.store),
        sync: publish_sync,
        changes: publish_changes,
        registry,
    };
    (objects, watch)
}

impl ControllerObjects {
    /// Waits until it is known which controllers are cordoned: nothing is placed before.
    pub async fn known(&self) {
        wait::until(self.sync.clone(), |sync| *sync != SyncState::NotYet).await;
    }

    /// All of them, by name. `None`: they are not known, or the API server has no such kind.
    pub(super) fn all(&self) -> Option<BTreeMap<String, Object>> {
        let is_listed = *self.sync.borrow() == SyncState::Listed;
        is_listed.then(|| self.store.lock().objects().clone())
    }

    /// The numbers of IPUs in the statuses of the listed controllers of this release, with their
    /// addresses.
    pub fn sizes(&self, release: &str) -> Vec<(String, u32)> {
        let all = self.all().unwrap_or_default().into_values();
        let all = all.filter(|object| object.release.as_deref() == Some(release));
        let statuses = all.filter_map(Object::listed_status);
        statuses
            .map(|status| (status.address, status.ipus.total))
            .collect()
    }

    /// The statuses of the controllers that other releases list. `None`: they are not known.
    pub(crate) fn of_others(&self, manager: &ManagingRelease) -> Option<Vec<VIPUControllerStatus>> {
        let releases = manager.conflicts.other_releases();
        let is_there = |release: &String| match &releases {
            Some(releases) => releases.contains(release),
            None => *release != manager.namespace,
        };
        let all = self.all()?.into_values();
        let of_others = all.filter(|object| object.release.as_ref().is_some_and(is_there));
        Some(of_others.filter_map(Object::listed_status).collect())
    }

    /// A number that changes when an object is created or deleted, or when its request of an admin
    /// or its managing release changes.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.clone()
    }
}

impl ControllerObjectWatch {
    /// Follows the VIPUControllers until `stop`.
    pub async fn follow(self, client: Client, stop: CancellationToken) {
        let config = watcher::Config::default().page_size(PAGE);
        readable(cluster_wide::<Guarded<VIPUController>>(&client, config))
            .take_until(stop.cancelled_owned())
            .for_each(async |event| match event {
                Ok(event) => {
                    if panics::caught_now(|| self.apply_event(event)).is_err() {
                        tracing::error!("an object that the watch reported is left out");
                    }
                }
                Err(error) => self.apply_error(&error),
            })
            .await;
    }

    /// Applies an event of the watch.
    fn apply_event(&self, event: watcher::Event<VIPUController>) {
        // An incomplete list proves nothing about missing objects.
        let is_part = matches!(event, watcher::Event::Init | watcher::Event::InitApply(_));
        let (requests, has_changed) = {
            let mut store = self.store.lock();
            let changes = store.apply_event(
                event,
                |object| Some(object.name_any()),
                |_, object, _| Some(Object::of(object)),
            );
            let has_changed = changes.iter().any(|change| {
                let now = store.objects().get(&change.key).map(essence);
                now != change.before.as_ref().map(essence)
            });
            (requests(store.objects()), has_changed)
        };
        let was_listed = *self.sync.borrow() == SyncState::Listed;
        if !was_listed && is_part {
            return;
        }
        self.registry.set_cordons(requests);
        if !was_listed {
            tracing::info!("the VIPUControllers are known");
            self.sync.send_replace(SyncState::Listed);
        }
        if has_changed || !was_listed {
            self.changes.send_modify(|count| *count += 1);
        }
    }

    /// Without the CRD there are no objects, and no controller is cordoned: the proxy runs without
    /// them until the CRD is applied. After any other error, the known state stays.
    fn apply_error(&self, error: &watcher::Error) {
        if refused(error) != Some(404) {
            tracing::warn!(
                %error,
                "failed to watch VIPUControllers, whose cordons stay as they were; nothing is placed before a first list"
            );
            return;
        }
        if *self.sync.borrow() == SyncState::NotServed {
            return;
        }
        tracing::warn!(
            "the definition of VIPUControllers is missing, so that no V-IPU controller can be cordoned; apply the CRDs of this version"
        );
        *self.store.lock() = Store::default();
        self.registry.set_cordons(CordonRequests::new());
        self.sync.send_replace(SyncState::NotServed);
    }
}

/// The requests of admins in these objects.
fn requests(objects: &BTreeMap<String, Object>) -> CordonRequests {
    let requests = objects.iter().filter_map(|(name, object)| {
        let request = CordonRequest {
            cordon_state: object.spec.cordon_state?,
            address: object.status.as_ref().map(|status| status.address.clone()),
        };
        Some((name.clone(), request))
    });
    requests.collect()
}

/// The fields of an object with an immediate effect: its managing release, the request of an admin,
/// and whether it is being deleted.
fn essence(object: &Object) -> (Option<&str>, ObservedSpec, bool) {
    let release = object.release.as_deref();
    (release, object.spec, object.is_deleted)
}

#[cfg(test)]
mod tests;
