//! Pure: what happened to objects lately, forgotten once it is too old to matter.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use ipu_api::uid::Uid;

/// Events that are kept however old they are: to look through so few is not worth it.
const FEW: usize = 1_024;

/// The last event of each object, by its UID, and when it was.
#[derive(Debug)]
pub(super) struct ExpiringMap<E> {
    events: HashMap<Uid, (E, Instant)>,
    /// How long an event matters.
    matters: Duration,
    /// So many events are looked through for those that do not matter any more.
    full: usize,
}

impl<E> ExpiringMap<E> {
    /// None yet, of events that matter so long.
    pub(super) fn new(matters: Duration) -> Self {
        Self {
            events: HashMap::new(),
            matters,
            full: FEW,
        }
    }

    /// This has just happened to the object of this UID, instead of what was before.
    pub(super) fn note(&mut self, uid: &str, event: E, now: Instant) {
        if self.events.len() >= self.full {
            self.events
                .retain(|_, (_, at)| now.duration_since(*at) < self.matters);
            self.events.shrink_to(FEW);
            self.full = FEW.max(2 * self.events.len());
        }
        self.events.insert(Uid::of(uid), (event, now));
    }

    /// What happened last to the object of this UID, and when. What does not matter any more may be gone.
    pub(super) fn of(&self, uid: &str) -> Option<&(E, Instant)> {
        self.events.get(&Uid::of(uid))
    }

    /// Forgets the object of this UID.
    pub(super) fn forget(&mut self, uid: &str) {
        self.events.remove(&Uid::of(uid));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_matter_any_more_goes_once_there_is_much() {
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
