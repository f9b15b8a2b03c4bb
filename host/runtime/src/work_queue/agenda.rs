//! Pure: which objects are to be reconciled and when, each by one at a time however often it is asked for.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::time::Instant;

use super::Requeue;

/// What is to be done, by key. There are thousands of keys: a key is small, or is shared with whoever asks.
#[derive(Debug)]
pub(super) struct Agenda<K> {
    due: BTreeSet<(Instant, K)>,
    entries: HashMap<K, Entry>,
    asked: usize,
}

#[derive(Debug, Default)]
struct Entry {
    /// When it is to begin: after its end, where it is under way.
    at: Option<Instant>,
    is_running: bool,
    /// Whether something has asked for it since it began last.
    is_asked: bool,
    /// How often in a row it has ended with a back-off.
    back_offs: u32,
}

impl<K> Default for Agenda<K> {
    fn default() -> Self {
        Self {
            due: BTreeSet::new(),
            entries: HashMap::new(),
            asked: 0,
        }
    }
}

impl<K: Clone + Ord + Hash> Agenda<K> {
    /// Something asks for the object of this key. One that is under way comes to its end first.
    pub(super) fn ask(&mut self, key: K, now: Instant) {
        let entry = self.entries.entry(key.clone()).or_default();
        self.asked += usize::from(!entry.is_asked);
        entry.is_asked = true;
        self.schedule(key, now);
    }

    /// Objects that something has asked for and whose reconcile has not begun.
    pub(super) fn asked(&self) -> usize {
        self.asked
    }

    /// When the first one is to begin.
    pub(super) fn first(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    /// The one that has been due longest by `now`; it is under way from then on.
    pub(super) fn begin(&mut self, now: Instant) -> Option<K> {
        self.first().filter(|at| *at <= now)?;
        let (_, key) = self.due.pop_first()?;
        let entry = self.entries.get_mut(&key)?;
        self.asked -= usize::from(entry.is_asked);
        (entry.at, entry.is_running, entry.is_asked) = (None, true, false);
        Some(key)
    }

    /// The one of this key has come to its end.
    pub(super) fn end(&mut self, key: K, requeue: Requeue, now: Instant) {
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
        let asked = entry.at.take();
        match asked
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

    /// An earlier time that it was to begin at stays.
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

    /// An agenda, and its times in seconds.
    struct Scene(Agenda<&'static str>, Instant);

    impl Scene {
        fn at(&self, second: u64) -> Instant {
            self.1 + Duration::from_secs(second)
        }

        fn ask(&mut self, name: &'static str, second: u64) {
            let at = self.at(second);
            self.0.ask(name, at);
        }

        fn begin(&mut self, second: u64) -> Option<&'static str> {
            let now = self.at(second);
            self.0.begin(now)
        }

        fn end(&mut self, name: &'static str, now: u64, requeue: Requeue) {
            let now = self.at(now);
            self.0.end(name, requeue, now);
        }
    }

    fn scene() -> Scene {
        Scene(Agenda::default(), Instant::now())
    }

    fn after(seconds: u64) -> Requeue {
        Requeue::After(Duration::from_secs(seconds))
    }

    #[test]
    fn the_earliest_time_that_was_asked_for_counts_and_each_begins_once() {
        let mut scene = scene();
        for (name, second) in [("a", 9), ("a", 5), ("a", 7), ("b", 6)] {
            scene.ask(name, second);
        }
        assert_eq!(scene.0.first(), Some(scene.at(5)));
        assert_eq!(scene.begin(4), None, "none is due");
        assert_eq!(scene.begin(6), Some("a"));
        assert_eq!(scene.begin(6), Some("b"));
        assert_eq!(scene.begin(99), None);
    }

    #[test]
    fn whatever_is_asked_for_while_it_is_under_way_waits_for_its_end() {
        let mut scene = scene();
        scene.ask("a", 0);
        assert_eq!(scene.begin(0), Some("a"));
        scene.ask("a", 3);
        scene.ask("a", 1);
        assert_eq!(scene.begin(9), None, "one at a time");
        scene.end("a", 0, after(8));
        assert_eq!(
            scene.0.first(),
            Some(scene.at(1)),
            "sooner than it asks for"
        );
        assert_eq!(scene.begin(9), Some("a"));
        scene.end("a", 0, after(8));
        assert_eq!(scene.0.first(), Some(scene.at(8)));
    }

    #[test]
    fn nothing_is_kept_of_what_nobody_asks_for_again() {
        let mut scene = scene();
        scene.ask("a", 0);
        assert_eq!(scene.begin(0), Some("a"));
        scene.end("a", 0, Requeue::Never);
        assert!(scene.0.entries.is_empty() && scene.0.due.is_empty());
        scene.end("a", 0, after(1));
        assert_eq!(scene.0.first(), None, "it was not under way");
    }

    #[test]
    fn an_object_waits_once_from_the_moment_it_is_asked_for_until_its_reconcile_begins() {
        let mut scene = scene();
        for name in ["a", "a", "b"] {
            scene.ask(name, 0);
        }
        assert_eq!(scene.0.asked(), 2);
        assert_eq!(scene.begin(0), Some("a"));
        assert_eq!(scene.0.asked(), 1);
        scene.ask("a", 1);
        assert_eq!(scene.0.asked(), 2, "under way, and changed meanwhile");
        scene.end("a", 1, Requeue::Never);
        assert_eq!((scene.begin(1), scene.begin(1)), (Some("b"), Some("a")));
        scene.end("a", 1, after(1));
        assert_eq!(scene.0.asked(), 0, "nothing has changed");
        assert_eq!(scene.begin(2), Some("a"));
        assert_eq!(scene.0.asked(), 0);
    }

    #[test]
    fn delays_double_up_to_a_ceiling_and_start_again_after_a_success() {
        let mut scene = scene();
        let back_off = Requeue::BackOff {
            first: Duration::from_secs(1),
            most: Duration::from_mins(1),
        };
        let delay = |scene: &mut Scene, name, requeue| {
            scene.ask(name, 0);
            assert_eq!(scene.begin(0), Some(name));
            scene.end(name, 0, requeue);
            scene
                .0
                .first()
                .map(|at| at.duration_since(scene.1).as_secs())
        };
        for expected in [1, 2, 4, 8, 16, 32, 60, 60] {
            assert_eq!(delay(&mut scene, "a", back_off), Some(expected));
        }
        for _ in 0..100 {
            delay(&mut scene, "a", back_off);
        }
        assert_eq!(delay(&mut scene, "b", back_off), Some(1), "another object");
        assert_eq!(delay(&mut scene, "b", Requeue::Never), Some(60));
        assert_eq!(delay(&mut scene, "a", after(7)), Some(7));
        assert_eq!(delay(&mut scene, "a", back_off), Some(1));
    }
}
