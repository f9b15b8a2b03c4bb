//! Pure: tracks the process's own writes that a watch has not reported yet.
//!
//! Writes of other clients may always arrive late: unique names and preconditions make decisions on
//! a stale cache harmless. The process's own writes must be in the cache before it decides again,
//! or it would repeat an action.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use ipu_api::uid::Uid;

/// Maximum number of remembered deletions: more than the number of concurrent requests.
const DELETIONS_MAX: usize = 1_024;

/// Minimum number of owners before expired writes are purged.
const PURGE_MIN: usize = 1_024;

/// Expected writes, by the owner whose reconcile waits for them.
#[derive(Debug)]
pub struct Expectations {
    timeout: Duration,
    writes: HashMap<Uid, Vec<Write>>,
    /// Number of owners at which expired writes are purged next.
    purge_at: usize,
    /// The latest deleted objects: the watch may report a deletion before the response to the
    /// request arrives.
    deleted: VecDeque<Uid>,
}

#[derive(Debug)]
struct Write {
    object: Uid,
    version: u64,
    at: Instant,
    /// Number of lists that had begun.
    lists: u32,
}

impl Expectations {
    /// Creates an empty set. Each write is expected for the time `timeout`.
    pub fn new(timeout: Duration) -> Self {
        Self {
            timeout,
            writes: HashMap::new(),
            purge_at: PURGE_MIN,
            deleted: VecDeque::new(),
        }
    }

    /// Expects an object at this version, or its deletion if the version is `u64::MAX`. `lists` is
    /// the number of lists that have begun.
    pub fn expect(&mut self, owner: Uid, (object, version): (Uid, u64), lists: u32, now: Instant) {
        if self.deleted.contains(&object) {
            return;
        }
        if self.writes.len() >= self.purge_at {
            let timeout = self.timeout;
            self.writes.retain(|_, writes| {
                writes
                    .iter()
                    .any(|one| one.remaining(timeout, now).is_some())
            });
            self.purge_at = PURGE_MIN.max(2 * self.writes.len());
        }
        self.writes.entry(owner).or_default().push(Write {
            object,
            version,
            at: now,
            lists,
        });
    }

    /// Observes an object at this version. `u64::MAX` ends all expectations of the object.
    pub fn observe(&mut self, owner: Uid, object: Uid, version: u64) {
        if let Some(writes) = self.writes.get_mut(&owner) {
            writes.retain(|one| one.object != object || one.version > version);
            if writes.is_empty() {
                self.writes.remove(&owner);
            }
        }
    }

    /// Observes the deletion of an object.
    pub fn observe_delete(&mut self, owner: Uid, object: Uid) {
        if self.deleted.len() == DELETIONS_MAX {
            self.deleted.pop_front();
        }
        self.deleted.push_back(object);
        self.observe(owner, object, u64::MAX);
    }

    /// Observes a complete list, the last of `lists`. Objects that it does not contain were
    /// deleted, unless they were written after the list began.
    pub fn observe_list(&mut self, lists: u32, exists: impl Fn(Uid) -> bool) {
        self.writes.retain(|_, writes| {
            writes.retain(|one| one.lists == lists || exists(one.object));
            !writes.is_empty()
        });
    }

    /// Returns the remaining time to wait for the watch, if it has not reported all writes.
    pub fn remaining(&self, owner: Uid, now: Instant) -> Option<Duration> {
        let writes = self.writes.get(&owner).into_iter().flatten();
        writes
            .filter_map(|one| one.remaining(self.timeout, now))
            .max()
    }

    /// Whether the watch has not reported all writes, regardless of their age.
    pub fn contains(&self, owner: Uid) -> bool {
        self.writes.contains_key(&owner)
    }
}

impl Write {
    fn remaining(&self, timeout: Duration, now: Instant) -> Option<Duration> {
        let left = timeout.saturating_sub(now.duration_since(self.at));
        (!left.is_zero()).then_some(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(5);

    #[test]
    fn a_write_is_expected_until_the_watch_reports_it_or_the_timeout() {
        let (mut expectations, now) = (Expectations::new(TIMEOUT), Instant::now());
        let [owner, object, other] = ["owner", "object", "other"].map(Uid::of);
        assert_eq!(expectations.remaining(owner, now), None);
        expectations.expect(owner, (object, 7), 1, now);
        expectations.expect(owner, (other, u64::MAX), 1, now + Duration::from_secs(1));
        let left = |expectations: &Expectations, after| {
            let left = expectations.remaining(owner, now + Duration::from_secs(after));
            left.map(|left| left.as_secs())
        };
        assert_eq!(left(&expectations, 2), Some(4), "the latest counts");
        assert_eq!(left(&expectations, 6), None);
        expectations.observe(owner, object, 6);
        expectations.observe_delete(owner, other);
        assert_eq!(left(&expectations, 2), Some(3));
        expectations.observe(owner, object, 7);
        assert_eq!(left(&expectations, 2), None);
        assert!(!expectations.contains(owner));
        expectations.expect(owner, (other, 9), 1, now);
        assert!(
            !expectations.contains(owner),
            "it was deleted before the response arrived"
        );
    }

    #[test]
    fn an_object_that_a_list_does_not_contain_is_expected_only_if_it_was_written_later() {
        let (mut expectations, now) = (Expectations::new(TIMEOUT), Instant::now());
        let [before, named, since] = ["before", "named", "since"].map(Uid::of);
        expectations.expect(before, (before, 7), 1, now);
        expectations.expect(named, (named, 7), 1, now);
        expectations.expect(since, (since, 7), 2, now);
        expectations.observe_list(2, |object| object == named);
        let known = [before, named, since].map(|owner| expectations.contains(owner));
        assert_eq!(known, [false, true, true]);
    }

    #[test]
    fn expired_writes_are_purged_when_there_are_many() {
        let (mut expectations, now) = (Expectations::new(TIMEOUT), Instant::now());
        let uid = |number: usize| Uid::of(&number.to_string());
        for number in 0..PURGE_MIN {
            expectations.expect(uid(number), (uid(number), 1), 0, now);
        }
        assert!(expectations.contains(uid(0)));
        let later = now + TIMEOUT;
        for number in PURGE_MIN..4 * PURGE_MIN {
            expectations.expect(uid(number), (uid(number), 1), 0, later);
        }
        assert_eq!(
            expectations.writes.len(),
            3 * PURGE_MIN,
            "all of them are expected"
        );
    }
}
