//! How many IPUs each controller has and how many are free, read no more often than needed.
//!
//! Guarantees: callers that ask for the same controller at the same time share one read; an answer
//! is never older than its caller allows, nor than the last change that was told to `forget`, and
//! counts what was told to `took` since; a controller that does not answer is not asked again for a
//! while, and its reason is kept.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ipu_api::ipupartition::ControllerRef;
use ipu_api::uid::Uid;
use parking_lot::{Mutex, MutexGuard};

use super::error::VipuError;
use super::model::Inventory;
use super::registry::{Known, Registry};

/// How long a controller that did not answer is left alone.
const FAILURE_AGE: Duration = Duration::from_secs(10);

/// How long a version is believed while the controller goes on answering.
const VERSION_AGE: Duration = Duration::from_mins(10);

/// How long an inventory waits for the version that is read beside it.
const VERSION_WAIT: Duration = Duration::from_secs(2);

/// For how long it is remembered that a controller has agreed to remove a partition. It goes on listing that
/// for a time, and then it takes a moment until the IPUPartition says so too.
const REMOVED_AGE: Duration = Duration::from_mins(10);

/// What was found out about one controller.
#[derive(Clone, Debug)]
pub struct Report {
    /// The controller.
    pub controller: ControllerRef,
    /// Its inventory, or why it is not known. What was taken since it was read is in it, and not listed yet.
    pub inventory: Result<Inventory, Arc<VipuError>>,
    /// The version of its server, as it was last read. Missing: it was never told.
    pub version: Option<String>,
}

/// The inventories of all controllers.
#[derive(Debug)]
pub struct Inventories {
    registry: Arc<Registry>,
    slots: Mutex<HashMap<String, Arc<Slot>>>,
}

#[derive(Debug, Default)]
struct Slot {
    last: tokio::sync::Mutex<Option<Reading>>,
    version: Mutex<Version>,
    changes: Mutex<Changes>,
}

/// What is known to have changed on a controller besides what was read.
#[derive(Debug, Default)]
struct Changes {
    /// The last change whose effect is not known.
    unknown: Option<Instant>,
    /// Partitions that were made, how many IPUs they took, and when.
    taken: Vec<(Instant, Uid, u32)>,
    /// Partitions that the controller has agreed to remove, and when.
    removed: Vec<(Instant, Uid)>,
}

/// The version of a server, and when it was asked for.
#[derive(Debug, Default)]
struct Version {
    asked: Option<Instant>,
    told: Option<String>,
}

#[derive(Clone, Debug)]
struct Reading {
    began: Instant,
    ended: Instant,
    inventory: Result<Inventory, Arc<VipuError>>,
}

impl Inventories {
    /// Inventories of the controllers that `registry` knows; nothing is read yet.
    pub fn new(registry: Arc<Registry>) -> Self {
        Inventories {
            registry,
            slots: Mutex::default(),
        }
    }

    /// Every controller that is listed now, in order, each not older than `max_age`. Takes as long
    /// as the slowest controller.
    pub async fn all(&self, max_age: Duration) -> Vec<Report> {
        let known = self.registry.known();
        self.forget_unlisted(&known);
        let reports = known.entries.iter().map(|entry| self.of(entry, max_age));
        futures::future::join_all(reports).await
    }

    /// One controller, not older than `max_age`.
    pub async fn of(&self, controller: &ControllerRef, max_age: Duration) -> Report {
        let slot = self.slot(&controller.name);
        let asked = Instant::now();
        let mut last = slot.last.lock().await;
        let held = last
            .as_ref()
            .filter(|reading| slot.holds(reading, max_age, asked));
        let reading = if let Some(reading) = held {
            reading.clone()
        } else {
            let was_lost = last.as_ref().is_none_or(|last| last.inventory.is_err());
            let reading = self.read(controller, &slot, was_lost).await;
            last.insert(reading).clone()
        };
        Report {
            controller: controller.clone(),
            inventory: reading
                .inventory
                .clone()
                .map(|read| slot.changes().since(reading.began, read)),
            version: slot.version().told.clone(),
        }
    }

    /// Partition `id` of so many IPUs was made on this controller just now. To read its list of partitions
    /// after each one that is made would take the longer the more it has.
    pub fn took(&self, controller: &str, id: &str, ipus: u32) {
        let slot = self.slot(controller);
        let taken = (Instant::now(), Uid::of(id), ipus);
        slot.changes().taken.push(taken);
    }

    /// This controller has agreed to remove partition `id`, which nobody uses.
    pub fn removed(&self, controller: &str, id: &str) {
        let slot = self.slot(controller);
        let mut changes = slot.changes();
        changes
            .removed
            .retain(|(when, _)| when.elapsed() < REMOVED_AGE);
        changes.removed.push((Instant::now(), Uid::of(id)));
        changes.unknown = Some(Instant::now());
    }

    /// Something was removed from or asked of this controller: what was read before says nothing any
    /// more.
    pub fn forget(&self, controller: &str) {
        self.slot(controller).changes().unknown = Some(Instant::now());
    }

    /// Reads the inventory of a controller, and with it its version where that is due: a server that
    /// was lost may come back as another one.
    async fn read(&self, controller: &ControllerRef, slot: &Slot, was_lost: bool) -> Reading {
        let began = Instant::now();
        let inventory = match self.registry.client(controller) {
            Ok(client) if was_lost || slot.version().is_old() => {
                let version = tokio::time::timeout(VERSION_WAIT, client.version());
                let (inventory, version) = futures::join!(client.inventory(), version);
                // A server without the call, or without an answer to it, is none the worse for it.
                let told = version.ok().and_then(Result::ok);
                slot.learn_version(&controller.name, told.filter(|told| !told.is_empty()));
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

    /// What was read of controllers that have left the list is of no use to anybody.
    fn forget_unlisted(&self, known: &Known) {
        let mut slots = self.slots.lock();
        if slots.len() > known.entries.len() {
            let listed: HashSet<_> = known.entries.iter().map(|entry| &entry.name).collect();
            slots.retain(|name, _| listed.contains(name));
        }
    }

    fn slot(&self, controller: &str) -> Arc<Slot> {
        let mut slots = self.slots.lock();
        slots.entry(controller.to_owned()).or_default().clone()
    }
}

impl Slot {
    /// Whether `reading` still tells a caller who allows `max_age` what it needs to know. What was
    /// read while the caller waited for it is always young enough: a controller that is slow to answer
    /// would else be read for each caller anew, one after the other.
    fn holds(&self, reading: &Reading, max_age: Duration, asked: Instant) -> bool {
        if reading.inventory.is_err() {
            return reading.ended.elapsed() < FAILURE_AGE;
        }
        let is_young = reading.began >= asked || reading.began.elapsed() < max_age;
        let unknown = self.changes().unknown;
        is_young && unknown.is_none_or(|changed| reading.began > changed)
    }

    /// Takes over the version that a server told, and tells it where it is news. A server that does
    /// not tell it now is believed to be what it was.
    fn learn_version(&self, controller: &str, told: Option<String>) {
        let mut version = self.version();
        version.asked = Some(Instant::now());
        if told.is_some() && told != version.told {
            tracing::info!(controller, version = ?told, before = ?version.told, "V-IPU server");
            version.told = told;
        }
    }

    fn version(&self) -> MutexGuard<'_, Version> {
        self.version.lock()
    }

    fn changes(&self) -> MutexGuard<'_, Changes> {
        // Every change of it is whole before the next one begins.
        self.changes.lock()
    }
}

impl Changes {
    /// What was read, with what has changed since. No older reading is told of from now on.
    fn since(&mut self, reading: Instant, read: Inventory) -> Inventory {
        self.taken.retain(|(when, ..)| *when >= reading);
        let taken = self.taken.iter();
        let read = taken.fold(read, |read, (_, id, ipus)| read.with(*id, *ipus));
        let removed = self.removed.iter();
        removed.fold(read, |read, (_, id)| read.without(*id))
    }
}

impl Version {
    fn is_old(&self) -> bool {
        self.asked
            .is_none_or(|asked| asked.elapsed() >= VERSION_AGE)
    }
}
