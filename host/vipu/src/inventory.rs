//! Caches the number of IPUs and of free IPUs of each controller.
//!
//! Guarantees: concurrent callers for one controller share one read. An answer is not older than its caller allows, nor
//! than the last call of `forget`. It includes the partitions of later calls of `took`. A controller that does not
//! answer is not called again for a while, and the error is cached.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ipu_api::ipupartition::ControllerRef;
use ipu_api::uid::Uid;
use parking_lot::Mutex;

use super::error::VipuError;
use super::model::Inventory;
use super::registry::{Known, Registry};

/// Time without calls to a controller that did not answer.
const FAILURE_AGE: Duration = Duration::from_secs(10);

/// Age up to which the version of an answering controller is valid.
const VERSION_AGE: Duration = Duration::from_mins(10);

/// Time for which an inventory waits for the concurrent read of the version.
const VERSION_WAIT: Duration = Duration::from_secs(2);

/// Time for which the agreement of a controller to remove a partition is kept. The controller lists the partition for a
/// while, and then the IPUPartition takes a moment to reflect the removal.
const REMOVED_AGE: Duration = Duration::from_mins(10);

/// Cached state of one controller.
#[derive(Clone, Debug)]
pub struct Report {
    /// The controller.
    pub controller: ControllerRef,
    /// Its inventory, or the error of the read. It includes partitions that were created since the read.
    pub inventory: Result<Inventory, Arc<VipuError>>,
    /// Version of its server at the last read. `None`: it has never reported one.
    pub version: Option<String>,
}

/// A partition that is being requested.
#[derive(Debug)]
pub struct Requested {
    cache: Arc<ControllerCache>,
    id: Uid,
}

impl Drop for Requested {
    fn drop(&mut self) {
        let mut changes = self.cache.changes.lock();
        let index = changes.requested.iter().position(|(id, _)| *id == self.id);
        if let Some(index) = index {
            changes.requested.swap_remove(index);
        }
    }
}

/// The inventories of all controllers.
#[derive(Debug)]
pub struct Inventories {
    registry: Arc<Registry>,
    caches: Mutex<HashMap<String, Arc<ControllerCache>>>,
}

/// The last read of one controller, and the changes since.
#[derive(Debug, Default)]
struct ControllerCache {
    last: tokio::sync::Mutex<Option<Reading>>,
    version: Mutex<Version>,
    changes: Mutex<Changes>,
}

/// Changes on a controller since the read.
#[derive(Debug, Default)]
struct Changes {
    /// Time of the last change with an unknown effect.
    unknown: Option<Instant>,
    /// Partitions that are being requested, each with its number of IPUs. The controller may list them or not.
    requested: Vec<(Uid, u32)>,
    /// Created partitions, each with its time and its number of IPUs.
    taken: Vec<(Instant, Uid, u32)>,
    /// Partitions that the controller has agreed to remove, each with its time.
    removed: Vec<(Instant, Uid)>,
}

/// The version of a server, and the time of its last read.
#[derive(Debug, Default)]
struct Version {
    read_at: Option<Instant>,
    reported: Option<String>,
}

#[derive(Clone, Debug)]
struct Reading {
    began: Instant,
    ended: Instant,
    inventory: Result<Inventory, Arc<VipuError>>,
}

impl Inventories {
    /// Inventories of the controllers of `registry`. Nothing has been read yet.
    pub fn new(registry: Arc<Registry>) -> Self {
        Inventories {
            registry,
            caches: Mutex::default(),
        }
    }

    /// Every listed controller in order, each not older than `max_age`. It takes as long as the slowest controller.
    pub async fn all(&self, max_age: Duration) -> Vec<Report> {
        let known = self.registry.known();
        self.forget_unlisted(&known);
        let reports = known.entries.iter().map(|entry| self.of(entry, max_age));
        futures::future::join_all(reports).await
    }

    /// One controller, not older than `max_age`.
    pub async fn of(&self, controller: &ControllerRef, max_age: Duration) -> Report {
        let cache = self.cache_of(&controller.name);
        let called = Instant::now();
        let mut last = cache.last.lock().await;
        let held = last
            .as_ref()
            .filter(|reading| cache.is_fresh(reading, max_age, called));
        let reading = if let Some(reading) = held {
            reading.clone()
        } else {
            let was_lost = last.as_ref().is_none_or(|last| last.inventory.is_err());
            let reading = self.read(controller, &cache, was_lost).await;
            last.insert(reading).clone()
        };
        Report {
            controller: controller.clone(),
            inventory: reading
                .inventory
                .clone()
                .map(|read| cache.changes.lock().since(reading.began, read)),
            version: cache.version.lock().reported.clone(),
        }
    }

    /// Records that partition `id` with this number of IPUs was just created on this controller. Reading the list after
    /// each creation would take longer with each partition.
    pub fn took(&self, controller: &str, id: &str, ipus: u32) {
        let cache = self.cache_of(controller);
        let taken = (Instant::now(), Uid::of(id), ipus);
        cache.changes.lock().taken.push(taken);
    }

    /// Counts a partition of so many IPUs on this controller until the result is dropped: the request is under way, and the
    /// controller lists the partition at some time before it answers.
    pub fn requests(&self, controller: &str, id: &str, ipus: u32) -> Requested {
        let (cache, id) = (self.cache_of(controller), Uid::of(id));
        cache.changes.lock().requested.push((id, ipus));
        Requested { cache, id }
    }

    /// Records that this controller has agreed to remove partition `id`, which no Pod uses.
    pub fn removed(&self, controller: &str, id: &str) {
        let cache = self.cache_of(controller);
        let mut changes = cache.changes.lock();
        changes
            .removed
            .retain(|(when, _)| when.elapsed() < REMOVED_AGE);
        changes.removed.push((Instant::now(), Uid::of(id)));
        changes.unknown = Some(Instant::now());
    }

    /// Records a removal or a request on this controller with an unknown effect, so that the cached inventory is stale.
    pub fn forget(&self, controller: &str) {
        self.cache_of(controller).changes.lock().unknown = Some(Instant::now());
    }

    /// Reads the inventory of a controller, and its version if that is due. A controller that was unreachable may have
    /// another version afterwards.
    async fn read(
        &self,
        controller: &ControllerRef,
        cache: &ControllerCache,
        was_lost: bool,
    ) -> Reading {
        let began = Instant::now();
        let inventory = match self.registry.client(controller) {
            Ok(client) if was_lost || cache.version.lock().is_old() => {
                let version = tokio::time::timeout(VERSION_WAIT, client.version());
                let (inventory, version) = futures::join!(client.inventory(), version);
                // A server without this call, or without an answer to it, stays usable.
                let reported = version.ok().and_then(Result::ok);
                let reported = reported.filter(|version| !version.is_empty());
                cache.learn_version(&controller.name, reported);
                inventory
            }
            Ok(client) => client.inventory().await,
            Err(error) => Err(error),
        };
        Reading {
            began,
            ended: Instant::now(),
            inventory: inventory.map_err(Arc::new),
        }
    }

    /// Drops the inventories of controllers that have left the list.
    fn forget_unlisted(&self, known: &Known) {
        let mut caches = self.caches.lock();
        if caches.len() > known.entries.len() {
            let listed: HashSet<_> = known.entries.iter().map(|entry| &entry.name).collect();
            caches.retain(|name, _| listed.contains(name));
        }
    }

    fn cache_of(&self, controller: &str) -> Arc<ControllerCache> {
        let mut caches = self.caches.lock();
        caches.entry(controller.to_owned()).or_default().clone()
    }
}

impl ControllerCache {
    /// Whether `reading` is fresh enough for a caller with `max_age`. A read that began after the caller's request is
    /// always fresh enough: otherwise every caller of a slow controller would read it again, one after the other.
    fn is_fresh(&self, reading: &Reading, max_age: Duration, called: Instant) -> bool {
        if reading.inventory.is_err() {
            return reading.ended.elapsed() < FAILURE_AGE;
        }
        let is_recent = reading.began >= called || reading.began.elapsed() < max_age;
        let unknown = self.changes.lock().unknown;
        is_recent && unknown.is_none_or(|changed| reading.began > changed)
    }

    /// Stores the version that a server reported, and logs a new one. A server that reports none keeps its last
    /// version.
    fn learn_version(&self, controller: &str, reported: Option<String>) {
        let mut version = self.version.lock();
        version.read_at = Some(Instant::now());
        if reported.is_some() && reported != version.reported {
            tracing::info!(controller, version = ?reported, before = ?version.reported, "V-IPU server");
            version.reported = reported;
        }
    }
}

impl Changes {
    /// The inventory of a read, with the changes since then. Changes before the read are dropped, because no earlier
    /// read is used again.
    fn since(&mut self, reading: Instant, read: Inventory) -> Inventory {
        self.taken.retain(|(when, ..)| *when >= reading);
        let taken = self.taken.iter().map(|(_, id, ipus)| (id, ipus));
        let requested = self.requested.iter().map(|(id, ipus)| (id, ipus));
        let taken = taken.chain(requested);
        let read = taken.fold(read, |read, (id, ipus)| read.with(*id, *ipus));
        let removed = self.removed.iter();
        removed.fold(read, |read, (_, id)| read.without(*id))
    }
}

impl Version {
    fn is_old(&self) -> bool {
        self.read_at
            .is_none_or(|read_at| read_at.elapsed() >= VERSION_AGE)
    }
}
