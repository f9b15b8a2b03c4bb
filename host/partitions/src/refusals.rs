//! Pure: the sizes that V-IPU controllers have refused although enough of their IPUs are free.
//!
//! No controller reports which of its IPUs are free. After a refusal for lack of IPUs, a size that was refused is not
//! named as one that fits, until IPUs are released, a partition of that size is created, or the refusal is old: it may
//! have had another cause. Placement does not depend on it, and tries again.

use std::collections::HashMap;

use ipu_api::ipupartition::{PartitionOptions, WaitingReason};
use ipu_guest_host::model::ControllerView;
use jiff::{SignedDuration, Timestamp};

/// Time for which a refusal counts. A request that waits repeats it within seconds.
const LIFETIME: SignedDuration = SignedDuration::from_mins(10);

/// The refusals of all controllers, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Refusals {
    controllers: HashMap<String, Refusal>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Refusal {
    /// The smallest size that was refused.
    ipus: u32,
    /// The reason of the controller, the last time.
    reason: String,
    /// Time of the last refusal.
    at: Timestamp,
    /// The most IPUs that were used since then. `None`: not known yet.
    used: Option<u32>,
}

/// A controller that has refused a size although enough of its IPUs are free.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    /// Its name.
    pub controller: String,
    /// The largest partition that its free IPUs would hold.
    pub largest_free: u32,
    /// Its reason, and the likely cause, for users.
    pub reason: String,
}

impl Refusals {
    /// Notes that this controller has refused a partition of so many IPUs for this reason.
    pub(crate) fn refused(&mut self, controller: &str, ipus: u32, reason: &str, now: Timestamp) {
        let known = self.controllers.entry(controller.to_owned());
        let known = known.or_insert_with(|| Refusal {
            ipus,
            reason: String::new(),
            at: now,
            used: None,
        });
        known.ipus = known.ipus.min(ipus);
        reason.clone_into(&mut known.reason);
        known.at = now;
    }

    /// Notes that this controller has created a partition of so many IPUs.
    pub(crate) fn created(&mut self, controller: &str, ipus: u32) {
        let known = self.controllers.get(controller);
        if known.is_some_and(|known| known.ipus <= ipus) {
            self.released(controller);
        }
    }

    /// Notes that this controller releases IPUs.
    pub(crate) fn released(&mut self, controller: &str) {
        self.controllers.remove(controller);
    }

    /// Limits the largest partition of each controller to sizes that it has not refused. Returns the controllers that
    /// have refused a partition smaller than their free IPUs.
    pub(crate) fn limit(&mut self, views: &mut [ControllerView], now: Timestamp) -> Vec<Refused> {
        self.controllers
            .retain(|_, known| now.duration_since(known.at).abs() < LIFETIME);
        let mut refused = Vec::new();
        for view in views.iter_mut().filter(|view| view.unreachable.is_none()) {
            let Some(known) = self.controllers.get_mut(&view.name) else {
                continue;
            };
            if known.used.is_some_and(|used| view.used_ipus < used) {
                self.controllers.remove(&view.name);
                continue;
            }
            known.used = Some(view.used_ipus);
            if view.largest_free >= known.ipus {
                refused.push(Refused {
                    controller: view.name.clone(),
                    largest_free: view.largest_free,
                    reason: format!("was tried: {}; {}", known.reason, likely_cause(view)),
                });
                view.largest_free = known.ipus / 2;
            }
        }
        refused
    }
}

/// Whether a refusal of a partition with these options holds for others of its size: none of them limits which IPUs can
/// form it.
pub(crate) fn are_options_usual(options: &PartitionOptions) -> bool {
    !options.reconfigurable && !options.relocatable
}

/// Returns the probable cause of a refusal of a partition that the controller's free IPUs would hold.
pub(crate) fn likely_cause(view: &ControllerView) -> String {
    let (free, total) = (view.free_ipus(), view.total_ipus);
    format!("{free} of its {total} IPUs are free, perhaps not together")
}

/// The reasons of a guest about a partition of so many IPUs, with the refusals that the guest does not know.
pub(crate) fn explained(
    mut reasons: Vec<WaitingReason>,
    refused: &[Refused],
    ipus: u32,
) -> Vec<WaitingReason> {
    for reason in &mut reasons {
        let mut refused = refused.iter();
        let refused = refused.find(|one| one.controller == reason.controller);
        if let Some(refused) = refused.filter(|one| one.largest_free >= ipus) {
            reason.reason.clone_from(&refused.reason);
        }
    }
    reasons
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn view(used: u32) -> ControllerView {
        samples::view("pod1", 16, used)
    }

    fn largest(refusals: &mut Refusals, used: u32, now: Timestamp) -> u32 {
        let mut views = [view(used)];
        refusals.limit(&mut views, now);
        views[0].largest_free
    }

    #[test]
    fn the_reason_of_a_refusal_is_that_of_the_sizes_that_are_free() {
        let mut refusals = Refusals::default();
        refusals.refused("pod1", 4, "no such block", at(100));
        let refused = refusals.limit(&mut [view(8)], at(101));
        let reasons_for = |ipus: u32| {
            let reasons = ["pod1", "pod2"].map(|controller| WaitingReason {
                controller: controller.to_owned(),
                reason: "its own".to_owned(),
            });
            let reasons = explained(reasons.to_vec(), &refused, ipus);
            reasons
                .into_iter()
                .map(|one| one.reason)
                .collect::<Vec<_>>()
        };
        let why = "was tried: no such block; 8 of its 16 IPUs are free, perhaps not together";
        assert_eq!(reasons_for(8), [why, "its own"]);
        assert_eq!(
            reasons_for(16),
            ["its own", "its own"],
            "so many are not free"
        );
        assert!(refusals.limit(&mut [view(14)], at(101)).is_empty());
    }

    #[test]
    fn a_refusal_with_unusual_options_says_nothing_of_other_requests() {
        let usual = PartitionOptions {
            replicas: Some(2),
            gang_size: Some(4),
            ..PartitionOptions::default()
        };
        assert!(are_options_usual(&usual));
        for (reconfigurable, relocatable) in [(true, false), (false, true)] {
            let unusual = PartitionOptions {
                reconfigurable,
                relocatable,
                ..usual.clone()
            };
            assert!(!are_options_usual(&unusual), "{unusual:?}");
        }
    }

    #[test]
    fn a_refused_size_does_not_fit_until_something_has_changed() {
        let refused = || {
            let mut refusals = Refusals::default();
            refusals.refused("pod1", 8, "it refused", at(100));
            refusals.refused("pod2", 2, "it refused", at(100));
            assert_eq!(largest(&mut refusals, 8, at(100)), 4);
            refusals
        };
        let mut repeated = refused();
        repeated.refused("pod1", 4, "it refused", at(600));
        assert_eq!(largest(&mut repeated, 8, at(1_000)), 2);
        assert_eq!(largest(&mut repeated, 8, at(1_200)), 8, "it is old");
        let mut released = refused();
        assert_eq!(largest(&mut released, 10, at(100)), 4, "it has less");
        assert_eq!(largest(&mut released, 8, at(100)), 8, "some were released");
        assert_eq!(largest(&mut released, 8, at(100)), 8);
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
