//! Pure: failures and resets of each V-IPU controller and its IPUs within the last day.
//!
//! The log is kept in memory only. A restart loses it; a lasting fault soon recurs.

mod recent_ids;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;

use ipu_api::ipupartition::AutoResets;
use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::Serialize;

use self::recent_ids::RecentIds;
use super::model::{Device, Lookup, ReadyState};

/// Time for which a failure counts.
const MEMORY: SignedDuration = SignedDuration::from_hours(24);

/// Failures within that time after which an IPU is suspect.
const SUSPECT: u32 = 3;

/// Most IPUs that the stats of a controller name, those with the most failures first.
const DEVICES_SHOWN: usize = 8;

/// Maximum number of IPUs kept over all failures of one controller.
const DEVICES_MAX: usize = 16_384;

/// Maximum number of failures, of resets, and of partitions with either kept for one controller.
/// The oldest are dropped.
const EVENTS_MAX: usize = 4096;

/// Failures and resets of all controllers.
#[derive(Clone, Debug, Default)]
pub struct FailureLog {
    controllers: BTreeMap<String, ControllerLog>,
}

/// Failures and resets of one controller within the last day.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailureStats {
    /// Number of changes of partitions to ERROR.
    pub failed_partitions: u32,
    /// Number of resets of partitions by the controller itself.
    pub auto_resets: u32,
    /// The IPUs that were most often in failed partitions, worst first; only those that the
    /// controller reported.
    pub devices: Vec<DeviceFailures>,
}

/// Number of failures of partitions with one IPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeviceFailures {
    /// The IPU, as a person finds it.
    pub device: String,
    /// Number of changes to ERROR of partitions with it.
    pub failures: u32,
}

/// Identifies a failure, so that its IPUs can be recorded later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailureId(u64);

/// Identity of an IPU on its controller.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct DeviceKey {
    chip_id: String,
    ip: String,
    device_id: u32,
}

#[derive(Clone, Debug, Default)]
struct ControllerLog {
    failures: VecDeque<Failure>,
    resets: VecDeque<(Timestamp, u32)>,
    /// Partitions in state ERROR, each reported once.
    open: RecentIds<()>,
    /// Last observed reset counter of each partition.
    counters: RecentIds<u32>,
    /// IPUs that were reported as suspect, each once.
    suspects: BTreeSet<DeviceKey>,
    last_failure_id: u64,
}

#[derive(Clone, Debug)]
struct Failure {
    id: FailureId,
    when: Timestamp,
    devices: BTreeSet<DeviceKey>,
}

impl FailureLog {
    /// Records the state of a partition. Returns the failure if the partition is newly in ERROR.
    pub fn record_state(
        &mut self,
        controller: &str,
        id: &str,
        lookup: &Lookup,
        now: Timestamp,
    ) -> Option<FailureId> {
        let Lookup::Present(state) = lookup else {
            self.forget(controller, id);
            return None;
        };
        if let Some(resets) = &state.auto_resets {
            self.record_resets(controller, id, resets, now);
        }
        match state.ready_state {
            ReadyState::Error => self.record_failure(controller, id, now),
            ReadyState::Active => {
                self.record_recovery(controller, id);
                None
            }
            ReadyState::Undefined | ReadyState::Pending | ReadyState::Removed => None,
        }
    }

    /// Records that a partition is in ERROR. Returns the failure if it is new.
    pub fn record_failure(
        &mut self,
        controller: &str,
        id: &str,
        now: Timestamp,
    ) -> Option<FailureId> {
        let log = self.log_of(controller, now);
        if log.open.observe(id, (), now, EVENTS_MAX).is_some() {
            return None;
        }
        log.last_failure_id += 1;
        let failure_id = FailureId(log.last_failure_id);
        log.failures.push_back(Failure {
            id: failure_id,
            when: now,
            devices: BTreeSet::new(),
        });
        if log.failures.len() > EVENTS_MAX {
            log.failures.pop_front();
        }
        Some(failure_id)
    }

    /// Records that a partition is not in ERROR.
    pub fn record_recovery(&mut self, controller: &str, id: &str) {
        if let Some(log) = self.controllers.get_mut(controller) {
            log.open.remove(id);
        }
    }

    /// Forgets a removed partition. Its id is never used again.
    pub fn forget(&mut self, controller: &str, id: &str) {
        self.record_recovery(controller, id);
        if let Some(log) = self.controllers.get_mut(controller) {
            log.counters.remove(id);
        }
    }

    /// Records the IPUs of a failed partition. Returns those that became suspect.
    pub fn record_devices(
        &mut self,
        controller: &str,
        failure_id: FailureId,
        devices: &[Device],
        now: Timestamp,
    ) -> Vec<DeviceFailures> {
        let log = self.log_of(controller, now);
        let kept: usize = log.failures.iter().map(|one| one.devices.len()).sum();
        let free = DEVICES_MAX.saturating_sub(kept);
        let Some(failure) = log.failures.iter_mut().find(|one| one.id == failure_id) else {
            return Vec::new();
        };
        failure.devices = devices.iter().take(free).map(DeviceKey::from).collect();
        let counts = log.counts();
        let is_suspect =
            |device: &DeviceKey| counts.get(device).is_some_and(|count| *count >= SUSPECT);
        // An IPU that stops being suspect is reported again if it becomes suspect again.
        log.suspects.retain(|device| is_suspect(device));
        let fresh = counts
            .iter()
            .filter(|(device, count)| **count >= SUSPECT && log.suspects.insert((*device).clone()));
        fresh
            .map(|(device, count)| device_failures(device, *count))
            .collect()
    }

    /// Records the reset counter of a partition. From a counter that was not observed before, only
    /// the last reset counts, because the others may be older than a day.
    pub fn record_resets(
        &mut self,
        controller: &str,
        id: &str,
        resets: &AutoResets,
        now: Timestamp,
    ) {
        let log = self.log_of(controller, now);
        // Most partitions are never reset, and need no entry.
        if resets.count == 0 {
            log.counters.remove(id);
            return;
        }
        let more = match log.counters.observe(id, resets.count, now, EVENTS_MAX) {
            // A requested reset restarts the counter, so it can decrease.
            Some(before) => resets.count.saturating_sub(before),
            None => u32::from(
                resets
                    .last_time
                    .as_ref()
                    .is_some_and(|last| now.duration_since(last.0) < MEMORY),
            ),
        };
        if more > 0 {
            log.resets.push_back((now, more));
            if log.resets.len() > EVENTS_MAX {
                log.resets.pop_front();
            }
        }
    }

    /// Failures and resets of a controller.
    pub fn stats(&mut self, controller: &str, now: Timestamp) -> FailureStats {
        if !self.controllers.contains_key(controller) {
            return FailureStats::default();
        }
        let log = self.log_of(controller, now);
        let counts = log.counts();
        let mut devices: Vec<_> = counts.iter().collect();
        devices.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let worst = devices.into_iter().take(DEVICES_SHOWN);
        FailureStats {
            failed_partitions: u32::try_from(log.failures.len()).unwrap_or(u32::MAX),
            auto_resets: log
                .resets
                .iter()
                .fold(0, |sum, (_, more)| sum.saturating_add(*more)),
            devices: worst
                .map(|(device, count)| device_failures(device, *count))
                .collect(),
        }
    }

    /// Time of the last failure or reset of a controller that still counts.
    pub fn last(&mut self, controller: &str, now: Timestamp) -> Option<Timestamp> {
        if !self.controllers.contains_key(controller) {
            return None;
        }
        let log = self.log_of(controller, now);
        let failed = log.failures.back().map(|failure| failure.when);
        failed.max(log.resets.back().map(|(when, _)| *when))
    }

    /// The log of a controller, without expired entries.
    fn log_of(&mut self, controller: &str, now: Timestamp) -> &mut ControllerLog {
        let log = self.controllers.entry(controller.to_owned()).or_default();
        let is_old = |when: Timestamp| now.duration_since(when) >= MEMORY;
        log.failures.retain(|failure| !is_old(failure.when));
        log.resets.retain(|(when, _)| !is_old(*when));
        log
    }
}

impl ControllerLog {
    /// The number of failures of each IPU.
    fn counts(&self) -> BTreeMap<DeviceKey, u32> {
        let mut counts = BTreeMap::new();
        for device in self.failures.iter().flat_map(|failure| &failure.devices) {
            *counts.entry(device.clone()).or_insert(0) += 1;
        }
        counts
    }
}

impl From<&Device> for DeviceKey {
    fn from(device: &Device) -> Self {
        DeviceKey {
            chip_id: device.chip_id.clone(),
            ip: device.ip.clone(),
            device_id: device.device_id,
        }
    }
}

impl fmt::Display for DeviceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IPU {} of {}", self.device_id, self.ip)?;
        match self.chip_id.as_str() {
            "" => Ok(()),
            chip => write!(f, " (chip {chip})"),
        }
    }
}

fn device_failures(device: &DeviceKey, failures: u32) -> DeviceFailures {
    DeviceFailures {
        device: device.to_string(),
        failures,
    }
}

#[cfg(test)]
mod tests;
