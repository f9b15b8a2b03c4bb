//! Caches the number of IPUs and of free IPUs of each controller.
//!
//! Guarantees: callers for one controller share one read at a time, which ends even without them.
//! An answer of `all` and `of` is not older than its caller allows, nor than the last call of
//! `forget` before. Every answer includes the partitions of later calls of `took`. A controller
//! that does not answer is not called again for a while, and the error is cached. No controller
//! delays a caller of `all_soon`, `all_usable` or `of_soon` for long.

mod cache;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use ipu_api::ipupartition::ControllerRef;
use ipu_api::uid::Uid;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::error::VipuError;
use super::model::{Inventory, ListedPartition};
use super::registry::{Known, Registry};
use cache::{Answer, ControllerCache, ReadFuture};

/// Time for which an inventory waits for the concurrent read of the version.
const VERSION_WAIT: Duration = Duration::from_secs(2);

/// Cached state of one controller.
#[derive(Clone, Debug)]
pub struct Report {
    /// The controller.
    pub controller: ControllerRef,
    /// Its inventory, or the error of the read. It includes partitions that were created since the
    /// read.
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
        self.cache.state().end_request(self.id);
    }
}

/// The inventories of all controllers.
#[derive(Debug)]
pub struct Inventories {
    registry: Arc<Registry>,
    caches: Mutex<HashMap<String, Arc<ControllerCache>>>,
    late_answers: Arc<Notify>,
}

impl Inventories {
    /// Inventories of the controllers of `registry`. Nothing has been read yet.
    pub fn new(registry: Arc<Registry>) -> Self {
        Inventories {
            registry,
            caches: Mutex::default(),
            late_answers: Arc::default(),
        }
    }

    /// Every listed controller in order, also under a second name, each read at most `max_age` ago.
    /// It takes as long as the slowest controller.
    pub async fn all(&self, max_age: Duration) -> Vec<Report> {
        let known = self.listed();
        let reports = known.listed.iter().map(|entry| self.of(entry, max_age));
        futures::future::join_all(reports).await
    }

    /// The same, but it takes half a second at most. A controller that has not answered by then has
    /// its last reading, or is unreachable if that is older than half a minute. Its later answer
    /// ends `late_answer` if it differs.
    pub async fn all_soon(&self, max_age: Duration) -> Vec<Report> {
        let known = self.listed();
        let entries = known.entries.iter();
        let reports = entries.map(|entry| self.of_soon(entry, max_age));
        futures::future::join_all(reports).await
    }

    /// The same, but readings that are at most `usable` old are taken as they are. Controllers
    /// whose reading is older than `max_age` are read meanwhile: another inventory ends
    /// `late_answer`.
    pub async fn all_usable(&self, max_age: Duration, usable: Duration) -> Vec<Report> {
        let known = self.listed();
        let reports = known.entries.iter().map(async |entry| {
            let cache = self.cache_of(&entry.name);
            let read = || self.read(entry, &cache);
            let answer = cache.usable(max_age, usable, read).await;
            report(entry, &cache, answer)
        });
        futures::future::join_all(reports).await
    }

    /// The last readings, as with `all_soon`, without a read.
    pub fn known(&self) -> Vec<Report> {
        let known = self.listed();
        let reports = known.entries.iter().map(|entry| {
            let cache = self.cache_of(&entry.name);
            let answer = cache.state().last_known();
            report(entry, &cache, answer)
        });
        reports.collect()
    }

    /// The partitions in the last list of a controller. Empty: it has not answered.
    pub fn last_list(&self, controller: &str) -> Arc<[ListedPartition]> {
        self.cache_of(controller).state().last_list()
    }

    /// One controller, read at most `max_age` ago.
    pub async fn of(&self, controller: &ControllerRef, max_age: Duration) -> Report {
        let cache = self.cache_of(&controller.name);
        let read = || self.read(controller, &cache);
        let answer = cache.fresh(max_age, read).await;
        report(controller, &cache, answer)
    }

    /// The same, as with `all_soon`.
    pub async fn of_soon(&self, controller: &ControllerRef, max_age: Duration) -> Report {
        let cache = self.cache_of(&controller.name);
        let read = || self.read(controller, &cache);
        let answer = cache.soon(max_age, read).await;
        report(controller, &cache, answer)
    }

    /// Waits until a controller, for which a caller did not wait, answers with another inventory.
    pub async fn late_answer(&self) {
        self.late_answers.notified().await;
    }

    /// Records that partition `id` with this number of IPUs was just created on this controller.
    /// Reading the list after each creation would take longer with each partition.
    pub fn took(&self, controller: &str, id: &str, ipus: u32) {
        let cache = self.cache_of(controller);
        cache.state().add_taken(Uid::of(id), ipus);
    }

    /// Counts a partition of this size on this controller until the result is dropped: the
    /// request is under way, and the controller lists the partition at some time before it answers.
    pub fn requests(&self, controller: &str, id: &str, ipus: u32) -> Requested {
        let (cache, id) = (self.cache_of(controller), Uid::of(id));
        cache.state().begin_request(id, ipus);
        Requested { cache, id }
    }

    /// Records that this controller has agreed to remove partition `id`, which no Pod uses.
    pub fn removed(&self, controller: &str, id: &str) {
        self.cache_of(controller).state().add_removed(Uid::of(id));
    }

    /// Records a removal or a request on this controller with an unknown effect, so that the cached
    /// inventory is stale.
    pub fn forget(&self, controller: &str) {
        self.cache_of(controller).state().forget();
    }

    /// Reads the inventory of a controller, and its version if that is due.
    fn read(&self, controller: &ControllerRef, cache: &Arc<ControllerCache>) -> ReadFuture {
        let (registry, cache) = (self.registry.clone(), cache.clone());
        let controller = controller.clone();
        Box::pin(async move {
            let is_version_due = cache.version().is_due();
            let inventory = match registry.client(&controller) {
                Ok(client) if is_version_due => {
                    let version = tokio::time::timeout(VERSION_WAIT, client.version());
                    let (inventory, version) = futures::join!(client.inventory(), version);
                    // A server without this call, or without an answer to it, stays usable.
                    let reported = version.ok().and_then(Result::ok);
                    let reported = reported.filter(|version| !version.is_empty());
                    cache.version().learn(&controller.name, reported);
                    inventory
                }
                Ok(client) => client.inventory().await,
                Err(error) => Err(error),
            };
            if inventory.is_err() {
                cache.version().expire();
            }
            inventory
        })
    }

    /// The listed controllers. The caches of others are dropped.
    fn listed(&self) -> Arc<Known> {
        let known = self.registry.known();
        let mut caches = self.caches.lock();
        if caches.len() > known.listed.len() {
            let listed: HashSet<_> = known.listed.iter().map(|entry| &entry.name).collect();
            caches.retain(|name, _| listed.contains(name));
        }
        known
    }

    fn cache_of(&self, controller: &str) -> Arc<ControllerCache> {
        let new = || Arc::new(ControllerCache::new(self.late_answers.clone()));
        let mut caches = self.caches.lock();
        let cache = caches.entry(controller.to_owned()).or_insert_with(new);
        cache.clone()
    }
}

fn report(controller: &ControllerRef, cache: &ControllerCache, answer: Answer) -> Report {
    Report {
        controller: controller.clone(),
        inventory: answer,
        version: cache.version().reported(),
    }
}
