//! Pure: schedules the keys of a work queue. A key is reconciled once at a time, regardless of the
//! number of its events.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::time::Instant;

use super::Requeue;

/// The scheduled keys. There are thousands of them, so keys are small or shared.
#[derive(Debug)]
pub(super) struct Queue<K> {
    due: BTreeSet<(Instant, K)>,
    entries: HashMap<K, Entry>,
    pending: usize,
}

#[derive(Debug, Default)]
struct Entry {
    /// Due time. A key that is being reconciled waits for the end of the reconcile.
    at: Option<Instant>,
    is_running: bool,
    /// Whether an event has added it since its last reconcile began.
    is_pending: bool,
    /// Number of consecutive back-offs.
    back_offs: u32,
}

impl<K> Default for Queue<K> {
    fn default() -> Self {
        Self {
            due: BTreeSet::new(),
            entries: HashMap::new(),
            pending: 0,
        }
    }
}

impl<K: Clone + Ord + Hash> Queue<K> {
    /// Adds a key at a time. A reconcile in progress finishes first.
    pub(super) fn add_at(&mut self, key: K, now: Instant) {
        let entry = self.entries.entry(key.clone()).or_default();
        self.pending += usize::from(!entry.is_pending);
        entry.is_pending = true;
        self.schedule(key, now);
    }

    /// Returns the number of added keys whose reconcile has not begun.
    pub(super) fn pending(&self) -> usize {
        self.pending
    }

    /// Returns the earliest due time.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Returns the key that has been due longest, and marks it as being reconciled.
    pub(super) fn get(&mut self, now: Instant) -> Option<K> {
        self.next_due().filter(|at| *at <= now)?;
        let (_, key) = self.due.pop_first()?;
        let entry = self.entries.get_mut(&key)?;
        self.pending -= usize::from(entry.is_pending);
        (entry.at, entry.is_running, entry.is_pending) = (None, true, false);
        Some(key)
    }

    /// Marks the reconcile of a key as finished, and requeues the key.
    pub(super) fn done(&mut self, key: K, requeue: Requeue, now: Instant) {
        let Some(entry) = self.entries.get_mut(&key).filter(|entry| entry.is_running) else {
            return;
        };
        entry.is_running = false;
        let delay = match requeue {
            Requeue::Never => None,
            Requeue::After(delay) => Some(delay),
            Requeue::BackOff { first, most } => {
                let factor = 2_u32.saturating_pow(entry.back_offs);
                Some(first.saturating_mul(factor).min(most))
            }
        };
        let is_back_off = matches!(requeue, Requeue::BackOff { .. });
        entry.back_offs = if is_back_off {
            entry.back_offs.saturating_add(1)
        } else {
            0
        };
        let scheduled = entry.at.take();
        match scheduled
            .into_iter()
            .chain(delay.map(|delay| now + delay))
            .min()
        {
            Some(at) => self.schedule(key, at),
            None => {
                self.entries.remove(&key);
            }
        }
    }

    /// Schedules a key, unless it is due earlier.
    fn schedule(&mut self, key: K, at: Instant) {
        let Some(entry) = self.entries.get_mut(&key) else {
            return;
        };
        let before = entry
            .at
            .replace(entry.at.map_or(at, |before| before.min(at)));
        if entry.is_running || before.is_some_and(|before| before <= at) {
            return;
        }
        if let Some(before) = before {
            self.due.remove(&(before, key.clone()));
        }
        self.due.insert((at, key));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// A queue, and its times in seconds.
    struct Fixture(Queue<&'static str>, Instant);

    impl Fixture {
        fn at(&self, second: u64) -> Instant {
            self.1 + Duration::from_secs(second)
        }

        fn add_at(&mut self, name: &'static str, second: u64) {
            let at = self.at(second);
            self.0.add_at(name, at);
        }

        fn get(&mut self, second: u64) -> Option<&'static str> {
            let now = self.at(second);
            self.0.get(now)
        }

        fn done(&mut self, name: &'static str, now: u64, requeue: Requeue) {
            let now = self.at(now);
            self.0.done(name, requeue, now);
        }
    }

    fn fixture() -> Fixture {
        Fixture(Queue::default(), Instant::now())
    }

    fn after(seconds: u64) -> Requeue {
        Requeue::After(Duration::from_secs(seconds))
    }

    #[test]
    fn the_earliest_time_counts_and_each_key_is_returned_once() {
        let mut fixture = fixture();
        for (name, second) in [("a", 9), ("a", 5), ("a", 7), ("b", 6)] {
            fixture.add_at(name, second);
        }
        assert_eq!(fixture.0.next_due(), Some(fixture.at(5)));
        assert_eq!(fixture.get(4), None, "none is due");
        assert_eq!(fixture.get(6), Some("a"));
        assert_eq!(fixture.get(6), Some("b"));
        assert_eq!(fixture.get(99), None);
    }

    #[test]
    fn a_key_that_is_added_during_its_reconcile_waits_for_the_end() {
        let mut fixture = fixture();
        fixture.add_at("a", 0);
        assert_eq!(fixture.get(0), Some("a"));
        fixture.add_at("a", 3);
        fixture.add_at("a", 1);
        assert_eq!(fixture.get(9), None, "one at a time");
        fixture.done("a", 0, after(8));
        assert_eq!(
            fixture.0.next_due(),
            Some(fixture.at(1)),
            "earlier than its requeue delay"
        );
        assert_eq!(fixture.get(9), Some("a"));
        fixture.done("a", 0, after(8));
        assert_eq!(fixture.0.next_due(), Some(fixture.at(8)));
    }

    #[test]
    fn a_key_without_requeue_is_forgotten() {
        let mut fixture = fixture();
        fixture.add_at("a", 0);
        assert_eq!(fixture.get(0), Some("a"));
        fixture.done("a", 0, Requeue::Never);
        assert!(fixture.0.entries.is_empty() && fixture.0.due.is_empty());
        fixture.done("a", 0, after(1));
        assert_eq!(fixture.0.next_due(), None, "it was not being reconciled");
    }

    #[test]
    fn an_added_key_is_pending_once_until_its_reconcile_begins() {
        let mut fixture = fixture();
        for name in ["a", "a", "b"] {
            fixture.add_at(name, 0);
        }
        assert_eq!(fixture.0.pending(), 2);
        assert_eq!(fixture.get(0), Some("a"));
        assert_eq!(fixture.0.pending(), 1);
        fixture.add_at("a", 1);
        assert_eq!(
            fixture.0.pending(),
            2,
            "being reconciled, and changed meanwhile"
        );
        fixture.done("a", 1, Requeue::Never);
        assert_eq!((fixture.get(1), fixture.get(1)), (Some("b"), Some("a")));
        fixture.done("a", 1, after(1));
        assert_eq!(fixture.0.pending(), 0, "nothing has changed");
        assert_eq!(fixture.get(2), Some("a"));
        assert_eq!(fixture.0.pending(), 0);
    }

    #[test]
    fn delays_double_up_to_a_ceiling_and_start_again_after_a_success() {
        let mut fixture = fixture();
        let back_off = Requeue::BackOff {
            first: Duration::from_secs(1),
            most: Duration::from_mins(1),
        };
        let delay = |fixture: &mut Fixture, name, requeue| {
            fixture.add_at(name, 0);
            assert_eq!(fixture.get(0), Some(name));
            fixture.done(name, 0, requeue);
            fixture
                .0
                .next_due()
                .map(|at| at.duration_since(fixture.1).as_secs())
        };
        for expected in [1, 2, 4, 8, 16, 32, 60, 60] {
            assert_eq!(delay(&mut fixture, "a", back_off), Some(expected));
        }
        for _ in 0..100 {
            delay(&mut fixture, "a", back_off);
        }
        assert_eq!(
            delay(&mut fixture, "b", back_off),
            Some(1),
            "another object"
        );
        assert_eq!(delay(&mut fixture, "b", Requeue::Never), Some(60));
        assert_eq!(delay(&mut fixture, "a", after(7)), Some(7));
        assert_eq!(delay(&mut fixture, "a", back_off), Some(1));
    }
}
