//! Pure: whether a waiting request may fit now, for all requests of a pass at once.
//!
//! A decision reads all controllers and calls a guest. After a release of IPUs, thousands of
//! requests may wait, and few of them fit: only those are decided again. Where this is unsure, they
//! may fit, and the decision finds out.

use std::collections::{HashMap, HashSet};

use ipu_api::guest::placement::ControllerView;
use ipu_api::uid::Uid;
use jiff::{SignedDuration, Timestamp};

use crate::backfill;
use crate::hashed::Hashed;
use crate::node_match::Requirements;
use crate::queue::{QueueEntry, QueuePosition};
use crate::refusals::StandingRefusals;
use crate::unsuited::Unsuited;

/// What each request of a queue finds beside the assignments, and beside the reservations for
/// earlier ones.
#[derive(Debug)]
pub(super) struct CapacityStages {
    controllers: Vec<ControllerView>,
    /// The capacity after more and more reservations, in the order of the queue.
    stages: Vec<Stage>,
    /// Owners of requests with a reservation. Nothing is reserved from their own requests.
    reserving: HashSet<Uid>,
    /// The results, by stage and kind of request.
    known: HashMap<(usize, Kind), bool>,
}

#[derive(Debug)]
struct Stage {
    /// Position of the request with the last reservation; requests after it have this capacity.
    /// `None`: of all requests.
    after: Option<QueuePosition>,
    /// The largest partition that fits, by controller.
    largest: Vec<u32>,
}

/// The fields of a request on which it depends whether it fits, apart from its position.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Kind {
    ipus: u32,
    requirements: Hashed<Requirements>,
    unsuited: Unsuited,
    has_usual_options: bool,
}

impl CapacityStages {
    /// The capacity for the requests in `entries`, the queue, on these controllers without what is
    /// assigned. Capacity is reserved for those that have waited for `limit` at `now`.
    pub(super) fn new(
        controllers: Vec<ControllerView>,
        entries: &[QueueEntry],
        limit: SignedDuration,
        now: Timestamp,
    ) -> Self {
        let mut stages = vec![Stage {
            after: None,
            largest: largest(&controllers),
        }];
        let mut reserving = HashSet::new();
        let mut left = controllers.clone();
        backfill::reserve_in_order(entries, limit, now, &mut left, |earlier, left| {
            reserving.insert(earlier.owner);
            stages.push(Stage {
                after: Some(earlier.position.clone()),
                largest: largest(left),
            });
        });
        Self {
            controllers,
            stages,
            reserving,
            known: HashMap::new(),
        }
    }

    /// Whether a controller may serve this request now. A controller that has refused its size
    /// serves it when that may be tried again.
    pub(super) fn may_fit(&mut self, entry: &QueueEntry, refusals: &StandingRefusals) -> bool {
        let stage = if self.reserving.contains(&entry.owner) {
            0
        } else {
            let is_earlier = |stage: &Stage| {
                let after = stage.after.as_ref();
                after.is_none_or(|after| *after < entry.position)
            };
            self.stages.partition_point(is_earlier).saturating_sub(1)
        };
        let key = (stage, Kind::of(entry));
        if let Some(known) = self.known.get(&key) {
            return *known;
        }
        let each = self.controllers.iter().zip(&self.stages[stage].largest);
        let is_there = each
            .filter(|(view, largest)| **largest >= entry.ipus && entry.suits(view))
            .any(|(view, _)| !entry.has_usual_options || !refusals.stand(&view.name, entry.ipus));
        self.known.insert(key, is_there);
        is_there
    }
}

impl Kind {
    fn of(entry: &QueueEntry) -> Self {
        Self {
            ipus: entry.ipus,
            requirements: entry.requirements.clone(),
            unsuited: entry.unsuited.clone(),
            has_usual_options: entry.has_usual_options,
        }
    }
}

fn largest(views: &[ControllerView]) -> Vec<u32> {
    views.iter().map(|view| view.largest_free).collect()
}

#[cfg(test)]
mod tests;
