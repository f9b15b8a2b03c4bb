//! Pure: what has gone wrong on each V-IPU controller within the last day, and on which of its IPUs.
//!
//! It is kept in memory only: a restart forgets it, and what goes on going wrong is soon seen again.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::fmt;

use ipu_api::ipupartition::AutoResets;
use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::Serialize;

use super::model::{Device, ReadyState, Truth};

/// How long trouble counts.
const MEMORY: SignedDuration = SignedDuration::from_hours(24);

/// Failures within that time that make an IPU suspect.
const SUSPECT: u32 = 3;

/// IPUs that are told of each controller, those with the most failures first.
const DEVICES_TOLD: usize = 8;

/// IPUs that are kept over all failures of one controller.
const PLACES_MAX: usize = 16_384;

/// Failures and resets that are kept of one controller; older ones are forgotten.
const EVENTS_MAX: usize = 4096;

/// What has gone wrong on all controllers.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    accounts: BTreeMap<String, Account>,
}

/// What has gone wrong on one controller within the last day.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Troubles {
    /// How often a partition went to ERROR.
    pub failed_partitions: u32,
    /// How often the controller reset a partition by itself.
    pub auto_resets: u32,
    /// The IPUs that were most often in failed partitions, worst first; only those that the
    /// controller told of.
    pub devices: Vec<DeviceTroubles>,
}

/// How often one IPU was in a partition that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeviceTroubles {
    /// The IPU, as a person finds it.
    pub device: String,
    /// How often a partition with it went to ERROR.
    pub failures: u32,
}

/// A failure, by which its IPUs can be told later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Episode(u64);

/// An IPU, by what tells it from the others of its controller.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    chip_id: String,
    ip: String,
    device_id: u32,
}

#[derive(Clone, Debug, Default)]
struct Account {
    failures: VecDeque<Failure>,
    resets: VecDeque<(Timestamp, u32)>,
    /// Partitions that are in error now, each told once.
    open: BTreeSet<String>,
    /// The counter of each partition's resets as it was last seen.
    counters: HashMap<String, u32>,
    /// IPUs that were called suspect, each told once.
    suspects: BTreeSet<Place>,
    last_episode: u64,
}

#[derive(Clone, Debug)]
struct Failure {
    episode: Episode,
    when: Timestamp,
    devices: BTreeSet<Place>,
}

impl Ledger {
    /// Takes down what a controller has of a partition. Answers the episode where it is newly in error.
    pub fn look(
        &mut self,
        controller: &str,
        id: &str,
        truth: &Truth,
        now: Timestamp,
    ) -> Option<Episode> {
        let Truth::Present(state) = truth else {
            self.gone(controller, id);
            return None;
        };
        if let Some(resets) = &state.auto_resets {
            self.counted(controller, id, resets, now);
        }
        match state.ready_state {
            ReadyState::Error => self.failed(controller, id, now),
            ReadyState::Active => {
                self.recovered(controller, id);
                None
            }
            ReadyState::Undefined | ReadyState::Pending | ReadyState::Removed => None,
        }
    }

    /// A partition is in error. Answers its episode where it was not known to be.
    pub fn failed(&mut self, controller: &str, id: &str, now: Timestamp) -> Option<Episode> {
        let account = self.account(controller, now);
        if account.open.len() >= EVENTS_MAX || !account.open.insert(id.to_owned()) {
            return None;
        }
        account.last_episode += 1;
        let episode = Episode(account.last_episode);
        account.failures.push_back(Failure {
            episode,
            when: now,
            devices: BTreeSet::new(),
        });
        if account.failures.len() > EVENTS_MAX {
            account.failures.pop_front();
        }
        Some(episode)
    }

    /// A partition is not in error, or not any more.
    pub fn recovered(&mut self, controller: &str, id: &str) {
        if let Some(account) = self.accounts.get_mut(controller) {
            account.open.remove(id);
        }
    }

    /// A partition is gone: nothing of its id is ever seen again.
    pub fn gone(&mut self, controller: &str, id: &str) {
        self.recovered(controller, id);
        if let Some(account) = self.accounts.get_mut(controller) {
            account.counters.remove(id);
        }
    }

    /// The IPUs of a partition that failed. Answers those that have become suspect by it.
    pub fn found(
        &mut self,
        controller: &str,
        episode: Episode,
        devices: &[Device],
        now: Timestamp,
    ) -> Vec<DeviceTroubles> {
        let account = self.account(controller, now);
        let kept: usize = account.failures.iter().map(|one| one.devices.len()).sum();
        let room = PLACES_MAX.saturating_sub(kept);
        let Some(failure) = account
            .failures
            .iter_mut()
            .find(|one| one.episode == episode)
        else {
            return Vec::new();
        };
        failure.devices = devices.iter().take(room).map(Place::from).collect();
        let counts = account.counts();
        let is_suspect = |place: &Place| counts.get(place).is_some_and(|count| *count >= SUSPECT);
        // One that has been well for a day is news when it fails again.
        account.suspects.retain(|place| is_suspect(place));
        let fresh = counts.iter().filter(|(place, count)| {
            **count >= SUSPECT && account.suspects.insert((*place).clone())
        });
        fresh.map(|(place, count)| told(place, *count)).collect()
    }

    /// The counter of a partition's resets as the controller tells it. Where it is seen for the first
    /// time, only the last reset is known to have been within the day.
    pub fn counted(&mut self, controller: &str, id: &str, resets: &AutoResets, now: Timestamp) {
        let account = self.account(controller, now);
        let before = account.counters.get(id).copied();
        // Most partitions are never reset, and are not worth the memory.
        if resets.count == 0 || (before.is_none() && account.counters.len() >= EVENTS_MAX) {
            account.counters.remove(id);
            return;
        }
        account.counters.insert(id.to_owned(), resets.count);
        let more = match before {
            // A counter that went back was begun anew by a reset that somebody asked for.
            Some(before) => resets.count.saturating_sub(before),
            None => u32::from(
                resets
                    .last_time
                    .as_ref()
                    .is_some_and(|last| now.duration_since(last.0) < MEMORY),
            ),
        };
        if more > 0 {
            account.resets.push_back((now, more));
            if account.resets.len() > EVENTS_MAX {
                account.resets.pop_front();
            }
        }
    }

    /// What has gone wrong on a controller.
    pub fn of(&mut self, controller: &str, now: Timestamp) -> Troubles {
        if !self.accounts.contains_key(controller) {
            return Troubles::default();
        }
        let account = self.account(controller, now);
        let counts = account.counts();
        let mut devices: Vec<_> = counts.iter().collect();
        devices.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let worst = devices.into_iter().take(DEVICES_TOLD);
        Troubles {
            failed_partitions: u32::try_from(account.failures.len()).unwrap_or(u32::MAX),
            auto_resets: account
                .resets
                .iter()
                .fold(0, |sum, (_, more)| sum.saturating_add(*more)),
            devices: worst.map(|(place, count)| told(place, *count)).collect(),
        }
    }

    /// The account of a controller, without what is too old to count.
    fn account(&mut self, controller: &str, now: Timestamp) -> &mut Account {
        let account = self.accounts.entry(controller.to_owned()).or_default();
        let is_old = |when: Timestamp| now.duration_since(when) >= MEMORY;
        account.failures.retain(|failure| !is_old(failure.when));
        account.resets.retain(|(when, _)| !is_old(*when));
        account
    }
}

impl Account {
    /// In how many failures each IPU was.
    fn counts(&self) -> BTreeMap<Place, u32> {
        let mut counts = BTreeMap::new();
        for place in self.failures.iter().flat_map(|failure| &failure.devices) {
            *counts.entry(place.clone()).or_insert(0) += 1;
        }
        counts
    }
}

impl From<&Device> for Place {
    fn from(device: &Device) -> Self {
        Place {
            chip_id: device.chip_id.clone(),
            ip: device.ip.clone(),
            device_id: device.device_id,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IPU {} of {}", self.device_id, self.ip)?;
        match self.chip_id.as_str() {
            "" => Ok(()),
            chip => write!(f, " (chip {chip})"),
        }
    }
}

fn told(place: &Place, failures: u32) -> DeviceTroubles {
    DeviceTroubles {
        device: place.to_string(),
        failures,
    }
}

#[cfg(test)]
mod tests;
