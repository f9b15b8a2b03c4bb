//! Pure: the sizes that V-IPU controllers have refused although enough of their IPUs are free.
//!
//! No controller reports which of its IPUs are free. After a refusal, a size that was refused is not named as one that
//! fits, until IPUs are released, a partition of that size is created, or the refusal is old: it may have had another cause.
//! Placement does not depend on it, and tries again.

use std::collections::HashMap;

use ipu_guest_host::model::ControllerView;
use jiff::{SignedDuration, Timestamp};

/// How long a refusal counts. A request that waits repeats it within seconds.
const LIFETIME: SignedDuration = SignedDuration::from_mins(10);

/// The refusals of all controllers, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refusals {
    controllers: HashMap<String, Refusal>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Refusal {
    /// The smallest size that was refused.
    ipus: u32,
    /// When a refusal last was.
    at: Timestamp,
    /// The most IPUs that were used since then. `None`: not known yet.
    used: Option<u32>,
}

impl Refusals {
    /// Notes that this controller has refused a partition of so many IPUs.
    pub fn refused(&mut self, controller: &str, ipus: u32, now: Timestamp) {
        let refusal = Refusal {
            ipus,
            at: now,
            used: None,
        };
        let known = self.controllers.entry(controller.to_owned());
        let known = known.or_insert(refusal);
        known.ipus = known.ipus.min(ipus);
        known.at = now;
    }

    /// Notes that this controller has created a partition of so many IPUs.
    pub fn created(&mut self, controller: &str, ipus: u32) {
        let known = self.controllers.get(controller);
        if known.is_some_and(|known| known.ipus <= ipus) {
            self.released(controller);
        }
    }

    /// Notes that this controller releases IPUs.
    pub fn released(&mut self, controller: &str) {
        self.controllers.remove(controller);
    }

    /// Limits the largest partition of each controller to what was not refused.
    pub fn limit(&mut self, views: &mut [ControllerView], now: Timestamp) {
        self.controllers
            .retain(|_, known| now.duration_since(known.at).abs() < LIFETIME);
        for view in views.iter_mut().filter(|view| view.unreachable.is_none()) {
            let Some(known) = self.controllers.get_mut(&view.name) else {
                continue;
            };
            if known.used.is_some_and(|used| view.used_ipus < used) {
                self.controllers.remove(&view.name);
                continue;
            }
            known.used = Some(view.used_ipus);
            view.largest_free = view.largest_free.min(known.ipus / 2);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn largest(refusals: &mut Refusals, used: u32, now: Timestamp) -> u32 {
        let mut views = [ControllerView {
            name: "pod1".to_owned(),
            label_key: "ipunode".to_owned(),
            label_value: "pod1".to_owned(),
            has_nodes: true,
            unreachable: None,
            total_ipus: 16,
            used_ipus: used,
            largest_free: 8,
            free_blocks: Vec::new(),
            failures: 0,
        }];
        refusals.limit(&mut views, now);
        views[0].largest_free
    }

    #[test]
    fn a_refused_size_does_not_fit_until_something_has_changed() {
        let refused = || {
            let mut refusals = Refusals::default();
            refusals.refused("pod1", 8, at(100));
            refusals.refused("pod2", 2, at(100));
            assert_eq!(largest(&mut refusals, 8, at(100)), 4);
            refusals
        };
        let mut repeated = refused();
        repeated.refused("pod1", 4, at(600));
        assert_eq!(largest(&mut repeated, 8, at(1_000)), 2);
        assert_eq!(largest(&mut repeated, 8, at(1_200)), 8, "it is old");
        let mut released = refused();
        assert_eq!(largest(&mut released, 10, at(100)), 4, "it has less");
        assert_eq!(largest(&mut released, 8, at(100)), 8, "some were released");
        assert_eq!(largest(&mut released, 10, at(100)), 8);
        let mut removed = refused();
        removed.released("pod1");
        assert_eq!(largest(&mut removed, 8, at(100)), 8);
        for (ipus, expected) in [(4, 4), (8, 8)] {
            let mut created = refused();
            created.created("pod1", ipus);
            assert_eq!(largest(&mut created, 8, at(100)), expected);
        }
    }
}
