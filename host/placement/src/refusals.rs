//! Pure: the sizes that V-IPU controllers have refused for lack of IPUs, although enough of them
//! are free.
//!
//! Placement requests such a size from no controller that has refused it, for any waiting request,
//! until IPUs are released there, a partition of that size is created, or a pause has passed: the
//! refusal may have had another cause. Then the first request of the queue is tried alone. So no
//! later request goes before an earlier one of which alone a refusal is known, and requests of a
//! size that does not fit do not try one after the other.

use std::collections::{BTreeMap, HashMap};

use ipu_api::guest::placement::{ControllerView, PlaceAttempt, PlaceOutcome};
use ipu_api::ipupartition::{PartitionOptions, WaitingReason};
use jiff::{SignedDuration, Timestamp};

/// Time after which a refusal is forgotten.
const LIFETIME: SignedDuration = SignedDuration::from_mins(10);

/// Time from the first refusal to the next attempt.
const FIRST_PAUSE: SignedDuration = SignedDuration::from_secs(10);

/// The longest time between two attempts.
const LONGEST_PAUSE: SignedDuration = SignedDuration::from_mins(1);

/// Reason of a refusal for the requests of others. That of the controller may name another owner's
/// partition.
const FOR_OTHERS: &str = "it has refused a partition of this size (ResourceExhausted)";

/// The refusals of all controllers, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refusals {
    controllers: HashMap<String, RefusedSizes>,
}

/// The sizes that one controller has refused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct RefusedSizes {
    sizes: BTreeMap<u32, Refusal>,
    /// IPUs in partitions in the last list of the controller since the last refusal. `None`: not
    /// known yet.
    listed: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Refusal {
    /// UID of the partition that was refused last.
    partition: String,
    /// The reason of the controller, the last time.
    reason: String,
    /// Time of the last refusal, or of an attempt since then.
    at: Timestamp,
    /// Time from then to the next attempt.
    pause: SignedDuration,
    /// Whether a request was sent since the last refusal.
    is_tried: bool,
}

/// The refused sizes of each controller at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StandingRefusals(BTreeMap<String, BTreeMap<u32, StandingRefusal>>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct StandingRefusal {
    /// Whether the size may be tried again.
    is_due: bool,
    /// UID of the partition that was refused last.
    partition: String,
    /// The reason of the controller, for that partition alone.
    reason: String,
}

/// A controller that has refused a size although enough of its IPUs are free.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Its name.
    pub controller: String,
    /// The largest partition that its free IPUs would hold.
    pub largest_free: u32,
    /// Its reason, and the likely cause, for users.
    pub reason: String,
}

impl Refusals {
    /// Notes that this controller has refused the partition with this UID and size for this reason.
    pub fn refused(
        &mut self,
        controller: &str,
        partition: &str,
        ipus: u32,
        reason: &str,
        now: Timestamp,
    ) {
        let known = self.controllers.entry(controller.to_owned()).or_default();
        known.listed = None;
        let pause = match known.sizes.get(&ipus) {
            None => FIRST_PAUSE,
            // Of several requests that were under way together, each is refused.
            Some(before) if !before.is_tried => before.pause,
            Some(before) => (before.pause * 2).min(LONGEST_PAUSE),
        };
        let refusal = Refusal {
            partition: partition.to_owned(),
            reason: reason.to_owned(),
            at: now,
            pause,
            is_tried: false,
        };
        known.sizes.insert(ipus, refusal);
    }

    /// Notes that this controller has created a partition of this size. Returns whether it had
    /// refused it.
    pub fn created(&mut self, controller: &str, ipus: u32) -> bool {
        let Some(known) = self.controllers.get_mut(controller) else {
            return false;
        };
        let before = known.sizes.len();
        known.sizes.retain(|size, _| *size > ipus);
        known.sizes.len() < before
    }

    /// Notes that this controller releases IPUs.
    pub fn released(&mut self, controller: &str) {
        self.controllers.remove(controller);
    }

    /// Notes that this controller lists partitions with this number of IPUs. With fewer than
    /// before, IPUs were released.
    pub fn listed(&mut self, controller: &str, ipus: u32) {
        let Some(known) = self.controllers.get_mut(controller) else {
            return;
        };
        if known.listed.is_some_and(|before| ipus < before) {
            self.released(controller);
        } else {
            known.listed = Some(ipus);
        }
    }

    /// Notes that a request of this size is sent to this controller. No other one of its size
    /// follows before its result.
    pub fn tried(&mut self, controller: &str, ipus: u32, now: Timestamp) {
        let known = self.controllers.get_mut(controller);
        let largest = known.and_then(|known| known.sizes.range_mut(..=ipus).next_back());
        if let Some((_, refusal)) = largest {
            (refusal.at, refusal.is_tried) = (now, true);
        }
    }

    /// The refusals as placement sees them at `now`.
    pub fn standing(&self, now: Timestamp) -> StandingRefusals {
        let standing = self.controllers.iter().map(|(controller, known)| {
            let sizes = known.sizes.iter();
            let sizes = sizes.filter(|(_, refusal)| refusal.age(now) < LIFETIME);
            let sizes = sizes.map(|(size, refusal)| (*size, refusal.standing(now)));
            (controller.clone(), sizes.collect())
        });
        StandingRefusals(standing.collect())
    }

    /// Limits the largest partition of each controller to sizes that it has not refused. Returns
    /// the controllers that have refused a partition smaller than their free IPUs.
    pub fn limit(&mut self, views: &mut [ControllerView], now: Timestamp) -> Vec<Refused> {
        for known in self.controllers.values_mut() {
            known.sizes.retain(|_, refusal| refusal.age(now) < LIFETIME);
        }
        self.controllers.retain(|_, known| !known.sizes.is_empty());
        let mut refused = Vec::new();
        for view in views.iter_mut().filter(|view| view.unreachable.is_none()) {
            let known = self.controllers.get(&view.name);
            let Some((ipus, refusal)) = known.and_then(|known| known.sizes.first_key_value())
            else {
                continue;
            };
            if view.largest_free >= *ipus {
                refused.push(Refused {
                    controller: view.name.clone(),
                    largest_free: view.largest_free,
                    reason: format!("was tried: {}; {}", refusal.reason, likely_cause(view)),
                });
                view.largest_free = ipus / 2;
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

    fn standing(&self, now: Timestamp) -> StandingRefusal {
        StandingRefusal {
            is_due: self.age(now) >= self.pause,
            partition: self.partition.clone(),
            reason: self.reason.clone(),
        }
    }
}

impl StandingRefusals {
    /// Whether this controller has refused so many IPUs or fewer, and may be tried again with that.
    pub(crate) fn are_due(&self, controller: &str, ipus: u32) -> bool {
        let mut sizes = self.of(controller, ipus).peekable();
        sizes.peek().is_some() && sizes.all(|refusal| refusal.is_due)
    }

    /// Whether a size that this controller has refused may be tried again.
    pub(crate) fn is_any_due(&self, controller: &str) -> bool {
        let sizes = self.0.get(controller);
        sizes.is_some_and(|sizes| sizes.values().any(|refusal| refusal.is_due))
    }

    /// Whether this controller has refused so many IPUs or fewer, and may not be tried again yet.
    pub(crate) fn stand(&self, controller: &str, ipus: u32) -> bool {
        self.of(controller, ipus).any(|refusal| !refusal.is_due)
    }

    /// A request of so many IPUs will be sent to this controller.
    pub fn tried(&mut self, controller: &str, ipus: u32) {
        let sizes = self.0.get_mut(controller);
        let largest = sizes.and_then(|sizes| sizes.range_mut(..=ipus).next_back());
        if let Some((_, refusal)) = largest {
            refusal.is_due = false;
        }
    }

    /// The refusals as attempts of the partition with this UID and size, for its guest: those of
    /// controllers on which it seems to fit. `own` are its own refused attempts. Its last refusal
    /// may be known here before its status has it.
    pub fn attempts(
        &self,
        views: &[ControllerView],
        partition: &str,
        ipus: u32,
        own: &[PlaceAttempt],
    ) -> Vec<PlaceAttempt> {
        let fitting = views.iter().filter(|view| view.largest_free >= ipus);
        let refusing = fitting.filter(|view| self.stand(&view.name, ipus));
        let attempts = refusing.map(|view| {
            let known = own.iter().find(|attempt| attempt.controller == view.name);
            known.cloned().unwrap_or_else(|| PlaceAttempt {
                controller: view.name.clone(),
                outcome: PlaceOutcome::Refused,
                reason: self.reason(&view.name, partition, ipus).to_owned(),
            })
        });
        attempts.collect()
    }

    /// The reason of the controller if it was given to this partition.
    fn reason(&self, controller: &str, partition: &str, ipus: u32) -> &str {
        let mut known = self.of(controller, ipus);
        let own = known.find(|refusal| refusal.partition == partition);
        own.map_or(FOR_OTHERS, |refusal| &refusal.reason)
    }

    fn of(&self, controller: &str, ipus: u32) -> impl Iterator<Item = &StandingRefusal> {
        let sizes = self.0.get(controller).into_iter();
        sizes.flat_map(move |sizes| sizes.range(..=ipus).map(|(_, refusal)| refusal))
    }
}

/// Whether a refusal of a partition with these options holds for others of its size: none of them
/// limits which IPUs can form it.
pub fn are_options_usual(options: &PartitionOptions) -> bool {
    !options.reconfigurable && !options.relocatable
}

/// Returns the probable cause of a refusal of a partition that the controller's free IPUs would
/// hold.
pub(crate) fn likely_cause(view: &ControllerView) -> String {
    let (free, total) = (view.free_ipus(), view.total_ipus);
    format!("{free} of its {total} IPUs are free, perhaps not together")
}

/// The reasons of a guest about a partition of this size, with the refusals that the guest does not
/// know.
pub fn explained(
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
mod tests;
