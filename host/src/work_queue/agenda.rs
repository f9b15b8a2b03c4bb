//! Pure: which objects are to be reconciled and when, each by one at a time however often it is asked for.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Instant;

/// What is to be done, by name. There are thousands of names: each is in memory once, where whoever asks
/// shares it.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    due: BTreeSet<(Instant, Arc<str>)>,
    stands: HashMap<Arc<str>, Stand>,
}

#[derive(Clone, Copy, Debug)]
enum Stand {
    /// It is to begin at this time.
    Due(Instant),
    /// It is under way, and was asked for again meanwhile.
    Running { again: Option<Instant> },
}

impl Agenda {
    /// The object of this name is to be reconciled at `at`, or earlier where that was asked for before.
    /// One that is under way comes to its end first.
    pub(super) fn want(&mut self, name: Arc<str>, at: Instant) {
        match self.stands.get_mut(&name) {
            Some(Stand::Running { again }) => {
                *again = Some(again.map_or(at, |before| before.min(at)));
            }
            Some(Stand::Due(before)) if *before <= at => {}
            Some(Stand::Due(before)) => {
                self.due.remove(&(*before, Arc::clone(&name)));
                *before = at;
                self.due.insert((at, name));
            }
            None => {
                self.stands.insert(Arc::clone(&name), Stand::Due(at));
                self.due.insert((at, name));
            }
        }
    }

    /// When the first one is to begin.
    pub(super) fn first(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    /// The one that has been due longest by `now`; it is under way from then on.
    pub(super) fn begin(&mut self, now: Instant) -> Option<Arc<str>> {
        self.first().filter(|at| *at <= now)?;
        let (_, name) = self.due.pop_first()?;
        let under_way = Stand::Running { again: None };
        self.stands.insert(Arc::clone(&name), under_way);
        Some(name)
    }

    /// The one of this name has come to its end, and is to be looked at `again`, if ever by itself.
    pub(super) fn end(&mut self, name: Arc<str>, again: Option<Instant>) {
        let Some(Stand::Running { again: asked }) = self.stands.remove(&name) else {
            return;
        };
        if let Some(at) = again.into_iter().chain(asked).min() {
            self.want(name, at);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// An agenda, and its times in seconds.
    struct Scene(Agenda, Instant);

    impl Scene {
        fn at(&self, second: u64) -> Instant {
            self.1 + Duration::from_secs(second)
        }

        fn want(&mut self, name: &str, second: u64) {
            let at = self.at(second);
            self.0.want(name.into(), at);
        }

        fn begin(&mut self, second: u64) -> Option<String> {
            let now = self.at(second);
            self.0.begin(now).map(|name| name.to_string())
        }

        fn end(&mut self, name: &str, again: Option<u64>) {
            let again = again.map(|second| self.at(second));
            self.0.end(name.into(), again);
        }
    }

    fn scene() -> Scene {
        Scene(Agenda::default(), Instant::now())
    }

    #[test]
    fn the_earliest_time_that_was_asked_for_counts_and_each_begins_once() {
        let mut scene = scene();
        for (name, second) in [("a", 9), ("a", 5), ("a", 7), ("b", 6)] {
            scene.want(name, second);
        }
        assert_eq!(scene.0.first(), Some(scene.at(5)));
        assert_eq!(scene.begin(4), None, "none is due");
        assert_eq!(scene.begin(6).as_deref(), Some("a"));
        assert_eq!(scene.begin(6).as_deref(), Some("b"));
        assert_eq!(scene.begin(99), None);
    }

    #[test]
    fn whatever_is_asked_for_while_it_is_under_way_waits_for_its_end() {
        let mut scene = scene();
        scene.want("a", 0);
        assert_eq!(scene.begin(0).as_deref(), Some("a"));
        scene.want("a", 3);
        scene.want("a", 1);
        assert_eq!(scene.begin(9), None, "one at a time");
        scene.end("a", Some(8));
        assert_eq!(
            scene.0.first(),
            Some(scene.at(1)),
            "sooner than it asks for"
        );
        assert_eq!(scene.begin(9).as_deref(), Some("a"));
        scene.end("a", Some(8));
        assert_eq!(scene.0.first(), Some(scene.at(8)));
    }

    #[test]
    fn nothing_is_kept_of_what_nobody_asks_for_again() {
        let mut scene = scene();
        scene.want("a", 0);
        assert_eq!(scene.begin(0).as_deref(), Some("a"));
        scene.end("a", None);
        assert!(scene.0.stands.is_empty() && scene.0.due.is_empty());
        scene.end("a", Some(1));
        assert_eq!(scene.0.first(), None, "it was not under way");
    }
}
