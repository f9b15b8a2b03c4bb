//! Pure: a map of recent events by UID, from which old events expire.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use ipu_api::uid::Uid;

/// Number of events below which none are dropped: a scan of so few is not worth it.
const FEW: usize = 1_024;

/// The last event of each object, by its UID, with its time.
#[derive(Debug)]
pub(super) struct ExpiringMap<E> {
    events: HashMap<Uid, (E, Instant)>,
    /// Lifetime of an event.
    matters: Duration,
    /// Number of events at which expired ones are dropped.
    full: usize,
}

impl<E> ExpiringMap<E> {
    /// An empty map for events with this lifetime.
    pub(super) fn new(matters: Duration) -> Self {
        Self {
            events: HashMap::new(),
            matters,
            full: FEW,
        }
    }

    /// Replaces the last event of the object with this UID.
    pub(super) fn note(&mut self, uid: &str, event: E, now: Instant) {
        if self.events.len() >= self.full {
            self.events
                .retain(|_, (_, at)| now.duration_since(*at) < self.matters);
            self.events.shrink_to(FEW);
            self.full = FEW.max(2 * self.events.len());
        }
        self.events.insert(Uid::of(uid), (event, now));
    }

    /// The last event of the object with this UID, and its time. An expired one may be missing.
    pub(super) fn of(&self, uid: &str) -> Option<&(E, Instant)> {
        self.events.get(&Uid::of(uid))
    }

    /// Drops the object with this UID.
    pub(super) fn forget(&mut self, uid: &str) {
        self.events.remove(&Uid::of(uid));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expired_events_are_dropped_when_there_are_many() {
        let matters = Duration::from_secs(5);
        let (mut map, now) = (ExpiringMap::new(matters), Instant::now());
        for number in 0..FEW {
            map.note(&number.to_string(), number, now);
        }
        assert_eq!(map.of("0"), Some(&(0, now)));
        let later = now + matters;
        map.note("1", 7, later);
        assert_eq!(map.of("0"), None);
        assert_eq!(map.of("1"), Some(&(7, later)));
        for number in 2..=3 * FEW {
            map.note(&number.to_string(), number, later);
        }
        assert_eq!(map.events.len(), 3 * FEW, "all of them matter");
        map.forget("1");
        assert_eq!(map.of("1"), None);
    }
}
