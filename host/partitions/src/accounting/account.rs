//! Pure: the account of one V-IPU controller: which states its IPUs were in, and for how long.

use std::mem;

use ipu_api::accounting::Accounting;
use jiff::Timestamp;

use super::ipu_states::{ControllerUse, IpuState, IpuStates};
use super::periods::{Periods, Sums, time};

/// Maximum milliseconds between two observations for which the state of the first one counts. A
/// longer time was not observed.
const UNSEEN_AFTER: i64 = 60_000;

/// Milliseconds by which a clock may be set back. If it is set back further, it was wrong before,
/// and the account begins again.
const SET_BACK_MAX: i64 = 24 * 3_600_000;

/// The account of one V-IPU controller. Each moment since its beginning is counted exactly once,
/// with all IPUs that the controller had.
///
/// A record contains times in whole seconds. Therefore the time since the last full second stays
/// open until the second is over: another leader can continue from the record without counting a
/// part of a second twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// The millisecond in which it began: a full second.
    since: i64,
    /// The millisecond of the last observation.
    until: i64,
    /// The IPUs of the controller.
    capacity: u32,
    /// Their states since the last observation. `None`: they are unknown.
    states: Option<IpuStates>,
    /// Times within the second that is not over.
    open: Vec<(i64, i64, IpuStates)>,
    total: Sums,
    hours: Periods,
    days: Periods,
}

impl Account {
    /// An account that begins with the first full second after `now`.
    pub fn begin(now: Timestamp) -> Self {
        let since = full_second(now.as_millisecond() + 999);
        Self {
            since,
            until: since,
            capacity: 0,
            states: None,
            open: Vec::new(),
            total: Sums::default(),
            hours: Periods::hours(),
            days: Periods::days(),
        }
    }

    /// Continues an account from a record. `capacity` is the number of IPUs at that time, or 0 if
    /// it is not known. The time from then until the next observation was not observed.
    pub fn resume(status: &Accounting, capacity: u32) -> Self {
        let since = full_second(status.since.0.as_millisecond());
        let until = full_second(status.until.0.as_millisecond()).max(since);
        Self {
            since,
            until,
            capacity,
            states: None,
            open: Vec::new(),
            total: Sums::of_period(&status.total),
            hours: Periods::hours().resumed(&status.hours, until),
            days: Periods::days().resumed(&status.days, until),
        }
    }

    /// Whether this account contains all that `written` contains, an account that continues a
    /// record.
    pub(super) fn contains(&self, written: &Self) -> bool {
        self.since == written.since && self.until >= written.until
    }

    /// The account, continued after a time without observations.
    pub(super) fn after_a_gap(self) -> Self {
        Self {
            states: None,
            ..self
        }
    }

    /// Counts the time until `now` with the states of the last observation, and takes over those of
    /// this one.
    pub fn observe(&mut self, observed: &ControllerUse, now: Timestamp) {
        if now.as_millisecond() < self.until - SET_BACK_MAX {
            *self = Self::begin(now);
        }
        if self.capacity == 0 && self.states.is_none() {
            self.capacity = observed.total.unwrap_or(0);
        }
        self.advance(now.as_millisecond());
        self.capacity = observed.total.unwrap_or(self.capacity);
        self.states = Some(IpuStates::of(observed, self.capacity));
    }

    /// Counts the time until `now` with the states of the last observation, if that is recent
    /// enough. They stay, for a later observation counts the time after `now` in the same way.
    pub fn count_until(&mut self, now: Timestamp) {
        let now = now.as_millisecond();
        if now - self.until <= UNSEEN_AFTER && self.states.is_some() {
            let states = self.states.clone();
            self.advance(now);
            self.states = states;
        }
    }

    /// The account until the last full second, as the IPUAccounting records it.
    pub fn status(&self) -> Accounting {
        Accounting {
            since: time(self.since),
            until: time(full_second(self.until)),
            total: self.total.period(self.since),
            hours: self.hours.reported(),
            days: self.days.reported(),
        }
    }

    /// The IPUs of the controller.
    pub(super) fn capacity(&self) -> u32 {
        self.capacity
    }

    /// IPU-seconds of each state since the beginning.
    pub fn seconds(&self) -> [(IpuState, f64); IpuState::ALL.len()] {
        self.total.seconds()
    }

    /// Counts the time until `now`. A clock that was set back counts no time twice.
    fn advance(&mut self, now: i64) {
        let from = self.until;
        if now <= from {
            return;
        }
        let is_seen = now - from <= UNSEEN_AFTER;
        let states = self.states.take().filter(|_| is_seen);
        let states = states.unwrap_or_else(|| IpuStates::all(IpuState::Unknown, self.capacity));
        self.until = now;
        let second = full_second(now);
        if second <= from {
            self.open.push((from, now, states));
            return;
        }
        for (from, until, states) in mem::take(&mut self.open) {
            self.count(from, until, &states);
        }
        self.count(from, second, &states);
        if second < now {
            self.open.push((second, now, states));
        }
    }

    fn count(&mut self, from: i64, until: i64, states: &IpuStates) {
        self.total.add(states, until - from);
        self.hours.add(from, until, states);
        self.days.add(from, until, states);
    }
}

/// The full second before this millisecond, in milliseconds.
fn full_second(millisecond: i64) -> i64 {
    millisecond - millisecond.rem_euclid(1_000)
}

#[cfg(test)]
mod tests;
