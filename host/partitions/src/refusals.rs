//! Pure: the sizes that V-IPU controllers have refused for lack of IPUs, although enough of them are free.
//!
//! Placement requests such a size from no controller that has refused it, whoever waits for it, until IPUs are released
//! there, a partition of that size is created, or a pause has passed: the refusal may have had another cause. Then the
//! first request of the queue is tried alone. So no later request goes before an earlier one of which alone a refusal
//! is known, and requests of a size that does not fit do not try one after the other.

use std::collections::{BTreeMap, HashMap};

use ipu_api::ipupartition::{PartitionOptions, WaitingReason};
use ipu_guest_host::model::{ControllerView, PlaceAttempt, PlaceOutcome};
use jiff::{SignedDuration, Timestamp};

/// Time after which a refusal is forgotten.
const LIFETIME: SignedDuration = SignedDuration::from_mins(10);

/// Time from the first refusal to the next attempt.
const FIRST_PAUSE: SignedDuration = SignedDuration::from_secs(10);

/// The longest time between two attempts.
const LONGEST_PAUSE: SignedDuration = SignedDuration::from_mins(1);

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
    /// Time of the last refusal, or of an attempt since then.
    at: Timestamp,
    /// Time from then to the next attempt.
    pause: SignedDuration,
    /// IPUs in partitions in the last list of the controller since then. `None`: not known yet.
    listed: Option<u32>,
}

/// A refusal as placement sees it at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StandingRefusal {
    /// The smallest size that was refused.
    pub ipus: u32,
    /// The reason of the controller.
    pub reason: String,
    /// Whether one request may be tried again.
    pub is_due: bool,
}

/// The refusals at one time, by the name of the controller.
pub(crate) type StandingRefusals = BTreeMap<String, StandingRefusal>;

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
        let known = self.controllers.get(controller);
        let pause = known.map_or(FIRST_PAUSE, |known| (known.pause * 2).min(LONGEST_PAUSE));
        let smallest = known.map_or(ipus, |known| known.ipus.min(ipus));
        let refusal = Refusal {
            ipus: smallest,
            reason: reason.to_owned(),
            at: now,
            pause,
            listed: None,
        };
        self.controllers.insert(controller.to_owned(), refusal);
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

    /// Notes that this controller lists partitions with so many IPUs. With fewer than before, IPUs were released.
    pub(crate) fn listed(&mut self, controller: &str, ipus: u32) {
        let Some(known) = self.controllers.get_mut(controller) else {
            return;
        };
        if known.listed.is_some_and(|before| ipus < before) {
            self.released(controller);
        } else {
            known.listed = Some(ipus);
        }
    }

    /// Notes that a request of so many IPUs is sent to this controller. No other one follows before its result.
    pub(crate) fn tried(&mut self, controller: &str, ipus: u32, now: Timestamp) {
        let known = self.controllers.get_mut(controller);
        if let Some(known) = known.filter(|known| known.ipus <= ipus) {
            known.at = now;
        }
    }

    /// The refusals as placement sees them at `now`.
    pub(crate) fn standing(&self, now: Timestamp) -> StandingRefusals {
        let known = self.controllers.iter();
        let known = known.filter(|(_, known)| known.age(now) < LIFETIME);
        let standing = known.map(|(controller, known)| {
            let refusal = StandingRefusal {
                ipus: known.ipus,
                reason: known.reason.clone(),
                is_due: known.age(now) >= known.pause,
            };
            (controller.clone(), refusal)
        });
        standing.collect()
    }

    /// Limits the largest partition of each controller to sizes that it has not refused. Returns the controllers that
    /// have refused a partition smaller than their free IPUs.
    pub(crate) fn limit(&mut self, views: &mut [ControllerView], now: Timestamp) -> Vec<Refused> {
        self.controllers
            .retain(|_, known| known.age(now) < LIFETIME);
        let mut refused = Vec::new();
        for view in views.iter_mut().filter(|view| view.unreachable.is_none()) {
            let Some(known) = self.controllers.get(&view.name) else {
                continue;
            };
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

impl Refusal {
    /// Time since it was noted. After the clock was set back by an hour, it is an hour old.
    fn age(&self, now: Timestamp) -> SignedDuration {
        now.duration_since(self.at).abs()
    }
}

/// The refusals as attempts of a request of so many IPUs, for its guest: those of controllers on which it seems to fit.
pub(crate) fn attempts(
    standing: &StandingRefusals,
    views: &[ControllerView],
    ipus: u32,
) -> Vec<PlaceAttempt> {
    let fitting = views.iter().filter(|view| view.largest_free >= ipus);
    let refusing = fitting.filter_map(|view| {
        let refusal = standing.get(&view.name)?;
        let holds = refusal.ipus <= ipus && !refusal.is_due;
        holds.then(|| PlaceAttempt {
            controller: view.name.clone(),
            outcome: PlaceOutcome::Refused,
            reason: refusal.reason.clone(),
        })
    });
    refusing.collect()
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
        let mut listed = refused();
        for (ipus, expected) in [(8, 4), (10, 4), (10, 4), (8, 8)] {
            listed.listed("pod1", ipus);
            assert_eq!(largest(&mut listed, 8, at(100)), expected, "{ipus}");
        }
        let mut removed = refused();
        removed.released("pod1");
        assert_eq!(largest(&mut removed, 8, at(100)), 8);
        for (ipus, expected) in [(4, 4), (8, 8)] {
            let mut created = refused();
            created.created("pod1", ipus);
            assert_eq!(largest(&mut created, 8, at(100)), expected);
        }
    }

    /// Whether one request of a size may be tried at this second.
    fn is_due(refusals: &Refusals, second: i64) -> bool {
        let standing = refusals.standing(at(second));
        standing.get("pod1").is_none_or(|refusal| refusal.is_due)
    }

    #[test]
    fn one_request_is_tried_again_after_pauses_that_grow_to_a_minute() {
        let mut refusals = Refusals::default();
        let mut now = 100;
        for pause in [10, 20, 40, 60, 60] {
            refusals.refused("pod1", 8, "it refused", at(now));
            assert!(!is_due(&refusals, now + pause - 1), "{pause} s");
            assert!(is_due(&refusals, now + pause), "{pause} s");
            now += pause;
            // A smaller one says nothing of this size.
            refusals.tried("pod1", 4, at(now));
            assert!(is_due(&refusals, now), "{pause} s");
            refusals.tried("pod1", 16, at(now));
            assert!(!is_due(&refusals, now), "{pause} s");
        }
        // What was listed before the last refusal says nothing of releases since.
        refusals.listed("pod1", 16);
        refusals.refused("pod1", 8, "it refused", at(now));
        refusals.listed("pod1", 12);
        assert!(!is_due(&refusals, now));
        refusals.listed("pod1", 11);
        assert!(is_due(&refusals, now), "IPUs were released");
        refusals.refused("pod1", 8, "it refused", at(now));
        assert!(is_due(&refusals, now + 10), "the pauses begin again");
    }

    #[test]
    fn a_standing_refusal_is_an_attempt_of_each_request_that_seems_to_fit() {
        let mut refusals = Refusals::default();
        refusals.refused("pod1", 4, "no block", at(100));
        let tried = |second: i64, used: u32, ipus: u32| {
            let attempts = attempts(&refusals.standing(at(second)), &[view(used)], ipus);
            attempts
                .into_iter()
                .map(|one| one.reason)
                .collect::<Vec<_>>()
        };
        assert_eq!(tried(101, 8, 4), ["no block"]);
        assert_eq!(tried(101, 8, 8), ["no block"]);
        assert!(tried(101, 8, 2).is_empty(), "a smaller one");
        assert!(tried(101, 14, 4).is_empty(), "so many are not free");
        assert!(tried(110, 8, 4).is_empty(), "it is due");
    }
}
