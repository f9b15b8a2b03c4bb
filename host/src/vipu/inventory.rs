//! How many IPUs each controller has and how many are free, read no more often than needed.
//!
//! Guarantees: callers that ask for the same controller at the same time share one read; an answer
//! is never older than its caller allows, nor than the last change that was told to `forget`, and
//! counts what was told to `took` since; a controller that does not answer is not asked again for a
//! while, and its reason is kept.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::error::VipuError;
use super::model::Inventory;
use super::registry::{Known, Registry};
use crate::api::ipupartition::ControllerRef;

/// How long a controller that did not answer is left alone.
const FAILURE_AGE: Duration = Duration::from_secs(10);

/// How long a version is believed while the controller goes on answering.
const VERSION_AGE: Duration = Duration::from_mins(10);

/// How long an inventory waits for the version that is read beside it.
const VERSION_WAIT: Duration = Duration::from_secs(2);

/// What was found out about one controller.
#[derive(Clone, Debug)]
pub struct Report {
    /// The controller.
    pub controller: ControllerRef,
    /// Its inventory, or why it is not known. IPUs that were taken since it was read are in `used`,
    /// and their partitions are not listed yet.
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
    /// IPUs that were taken, and when.
    taken: Vec<(Instant, u32)>,
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
            inventory: reading.inventory.clone().map(|read| Inventory {
                used: read.used.saturating_add(slot.taken_since(reading.began)),
                ..read
            }),
            version: slot.version().told.clone(),
        }
    }

    /// So many IPUs were taken on this controller just now. To read its list of partitions after
    /// each one that is made would take the longer the more it has. A read that is under way may
    /// have counted them already: until the next one they are then counted twice, and somebody who
    /// asks meanwhile may wait for another turn.
    pub fn took(&self, controller: &str, ipus: u32) {
        self.slot(controller)
            .changes()
            .taken
            .push((Instant::now(), ipus));
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
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        if slots.len() > known.entries.len() {
            let listed: HashSet<_> = known.entries.iter().map(|entry| &entry.name).collect();
            slots.retain(|name, _| listed.contains(name));
        }
    }

    fn slot(&self, controller: &str) -> Arc<Slot> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
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

    /// IPUs that were taken since a reading, which is the oldest that anybody is told of from now on.
    fn taken_since(&self, reading: Instant) -> u32 {
        let mut changes = self.changes();
        changes.taken.retain(|(when, _)| *when >= reading);
        let taken = changes.taken.iter().map(|(_, ipus)| ipus);
        taken.fold(0, |sum, ipus| sum.saturating_add(*ipus))
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
        self.version.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn changes(&self) -> MutexGuard<'_, Changes> {
        // Every change of it is whole before the next one begins.
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Version {
    fn is_old(&self) -> bool {
        self.asked
            .is_none_or(|asked| asked.elapsed() >= VERSION_AGE)
    }
}
