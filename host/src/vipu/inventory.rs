//! How many IPUs each controller has and how many are free, read no more often than needed.
//!
//! Guarantees: callers that ask for the same controller at the same time share one read; an answer
//! is never older than its caller allows, nor than the last change that was told to `forget`, and
//! counts what was told to `took` since; a controller that does not answer is not asked again for a
//! while, and its reason is kept.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::error::VipuError;
use super::model::Inventory;
use super::registry::Registry;
use crate::api::ipupartition::ControllerRef;

/// How long a controller that did not answer is left alone.
const FAILURE_AGE: Duration = Duration::from_secs(10);

/// What was found out about one controller.
#[derive(Clone, Debug)]
pub struct Report {
    /// The controller.
    pub controller: ControllerRef,
    /// Its inventory, or why it is not known.
    pub inventory: Result<Inventory, Arc<VipuError>>,
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

#[derive(Clone, Debug)]
struct Reading {
    began: Instant,
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
        let reports = known.entries.iter().map(|entry| self.of(entry, max_age));
        futures::future::join_all(reports).await
    }

    /// One controller, not older than `max_age`.
    pub async fn of(&self, controller: &ControllerRef, max_age: Duration) -> Report {
        let slot = self.slot(&controller.name);
        let mut last = slot.last.lock().await;
        let reading = match last.as_ref().filter(|reading| slot.holds(reading, max_age)) {
            Some(reading) => reading.clone(),
            None => last.insert(self.read(controller).await).clone(),
        };
        Report {
            controller: controller.clone(),
            inventory: reading.inventory.clone().map(|read| Inventory {
                used: read.used.saturating_add(slot.taken_since(reading.began)),
                ..read
            }),
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

    async fn read(&self, controller: &ControllerRef) -> Reading {
        let began = Instant::now();
        let inventory = match self.registry.client(controller) {
            Ok(client) => client.inventory().await,
            Err(error) => Err(error),
        };
        Reading {
            began,
            inventory: inventory.map_err(Arc::new),
        }
    }

    fn slot(&self, controller: &str) -> Arc<Slot> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.entry(controller.to_owned()).or_default().clone()
    }
}

impl Slot {
    /// Whether `reading` still tells a caller who allows `max_age` what it needs to know.
    fn holds(&self, reading: &Reading, max_age: Duration) -> bool {
        let age = reading.began.elapsed();
        if reading.inventory.is_err() {
            return age < FAILURE_AGE;
        }
        let unknown = self.changes().unknown;
        age < max_age && unknown.is_none_or(|changed| reading.began > changed)
    }

    /// IPUs that were taken since a reading, which is the oldest that anybody is told of from now on.
    fn taken_since(&self, reading: Instant) -> u32 {
        let mut changes = self.changes();
        changes.taken.retain(|(when, _)| *when >= reading);
        let taken = changes.taken.iter().map(|(_, ipus)| ipus);
        taken.fold(0, |sum, ipus| sum.saturating_add(*ipus))
    }

    fn changes(&self) -> MutexGuard<'_, Changes> {
        // Every change of it is whole before the next one begins.
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
