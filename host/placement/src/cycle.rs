//! Pure: one pass over the partitions that need a V-IPU controller, with the capacity and the queue
//! at its beginning.
//!
//! IPUs that become free during a pass are left to the next one: otherwise a later request would
//! get what an earlier one, which was decided before it, waits for.

mod capacity_stages;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use ipu_api::guest::placement::ControllerView;
use ipu_api::ipupartition::IPUPartition;
use ipu_api::uid::Uid;
use jiff::{SignedDuration, Timestamp};

use self::capacity_stages::CapacityStages;
use super::queue::QueueEntry;
use crate::backfill::Assigned;
use crate::decision::PlacementDecision;
use crate::drain::{self, Sibling};
use crate::guest_call::{self, Candidates, Placement, QueueView};
use crate::hashed::Hashed;
use crate::node_match::Requirements;
use crate::requests::{Assignment, PlacementQueue};
use crate::unsuited::Unsuited;

/// Partitions that the owner of this one has or is getting, with those in `slots`: they have a
/// controller that their objects do not show yet.
pub fn held(partition: &IPUPartition, mut siblings: Vec<Sibling>, slots: &BTreeSet<u32>) -> u32 {
    for sibling in &mut siblings {
        sibling.is_placed |= slots.contains(&sibling.slot);
    }
    drain::of_owner(partition, &siblings).held
}

/// The capacity and the queue at the beginning of a pass, and the assignments until now.
#[derive(Debug)]
pub struct Pass {
    found: Candidates,
    entries: Vec<QueueEntry>,
    backfill_limit: Duration,
    /// By partition: the controller, and the IPUs.
    assigned: BTreeMap<Uid, (String, u32)>,
    /// The number of assigned partitions of each controller, by their IPUs.
    sizes: BTreeMap<String, BTreeMap<u32, u32>>,
    /// Controllers whose capacity is recent.
    confirmed: BTreeSet<String>,
    /// What each request finds, until the next assignment.
    stages: Option<CapacityStages>,
    /// The places of the requests in the queue, once they are needed.
    by_uid: Option<HashMap<Uid, usize>>,
}

/// How many partitions of 1, 2, 4 IPUs and so on fit on each open controller.
pub type Places = BTreeMap<String, Vec<u32>>;

impl Pass {
    /// A pass with these controllers and this queue. The assignments are older than the
    /// controllers' capacity.
    pub fn new(
        found: Candidates,
        entries: Vec<QueueEntry>,
        assignments: Vec<Assignment>,
        backfill_limit: Duration,
    ) -> Self {
        let mut pass = Self {
            found,
            entries,
            backfill_limit,
            assigned: BTreeMap::new(),
            sizes: BTreeMap::new(),
            confirmed: BTreeSet::new(),
            stages: None,
            by_uid: None,
        };
        for Assignment {
            uid,
            controller,
            ipus,
        } in assignments
        {
            pass.assign(uid, controller, ipus);
        }
        pass.prepare_queue();
        pass
    }

    /// Completes the queue once requests are decided again (see [`PlacementQueue::complete`]):
    /// later requests of the pass leave those what they need.
    pub fn complete(&mut self, requests: &PlacementQueue, now: Timestamp) {
        requests.complete(&mut self.entries, now);
        self.prepare_queue();
    }

    /// Whether the capacity of this controller is recent. That of the others is good enough to
    /// choose one, and perhaps not to request a partition there.
    pub fn is_confirmed(&self, controller: &str) -> bool {
        self.confirmed.contains(controller)
    }

    /// Takes the recent capacity of a controller. Returns whether it differs: then a request that
    /// was to get this controller is decided again.
    pub fn confirm(&mut self, view: ControllerView) -> bool {
        self.confirmed.insert(view.name.clone());
        let mut open = self.found.open.iter_mut();
        let Some(known) = open.find(|known| known.name == view.name) else {
            return false;
        };
        let differs = *known != view;
        if differs {
            *known = view;
            self.stages = None;
        }
        differs
    }

    /// Prepares the decision on this partition, the next one in the queue. `held` counts the
    /// partitions of its gang that the owner has or is getting.
    pub fn prepare(&self, partition: &IPUPartition, held: u32, now: Timestamp) -> Placement {
        // Its earlier assignment stays reserved until the pass ends.
        let own = self.assigned.get(&uid(partition));
        let assigned: Vec<Assigned> = self.assigned_except(own).collect();
        let queue = QueueView {
            entries: &self.entries,
            assigned: &assigned,
            held,
            backfill_limit: self.backfill_limit,
        };
        guest_call::prepare(partition, self.found.clone(), queue, now)
    }

    /// Later requests leave this one, which is decided after the pass, what it needs.
    pub fn expect(&mut self, partition: &IPUPartition) {
        let uid = uid(partition);
        let mut entries = self.entries.iter_mut();
        if let Some(entry) = entries.find(|entry| entry.uid == uid) {
            entry.is_expected = true;
            self.stages = None;
        }
    }

    /// Whether a controller may serve this waiting request now. Its guest may deny it.
    pub fn may_fit(&mut self, request: &QueueEntry, now: Timestamp) -> bool {
        if self.assigned.contains_key(&request.uid) {
            return true;
        }
        let by_uid = self.by_uid.get_or_insert_with(|| {
            let uids = self.entries.iter().map(|entry| entry.uid);
            uids.zip(0..).collect()
        });
        let known = by_uid
            .get(&request.uid)
            .and_then(|place| self.entries.get(*place));
        let stages = self.stages.get_or_insert_with(|| {
            let limit =
                SignedDuration::try_from(self.backfill_limit).unwrap_or(SignedDuration::MAX);
            let views = left(&self.found.open, &self.sizes);
            CapacityStages::new(views, &self.entries, limit, now)
        });
        stages.may_fit(known.unwrap_or(request), self.found.refusals())
    }

    /// Notes the decision on a partition.
    pub fn note(&mut self, partition: &IPUPartition, answer: &PlacementDecision) {
        let PlacementDecision::Try(controller, _) = answer else {
            return;
        };
        self.assign(uid(partition), controller.name.clone(), partition.spec.ipus);
        self.found.tried(&controller.name, partition);
        let uid = uid(partition);
        self.entries
            .retain(|entry| waits_on(entry) || entry.uid != uid);
        self.by_uid = None;
    }

    /// What fits on each open controller beside the assignments.
    pub fn places(&self) -> Places {
        let views = left(&self.found.open, &self.sizes);
        let places = views.into_iter().map(|view| {
            let exponents = 0..=view.total_ipus.checked_ilog2().unwrap_or(0);
            let places = exponents.map(|exponent| view.places(1 << exponent));
            (view.name.clone(), places.collect())
        });
        places.collect()
    }

    /// Whether more partitions of some size fit on an open controller than `before`. The free IPUs
    /// can form larger blocks although they are as many.
    pub fn has_grown(&self, before: &Places) -> bool {
        self.places().iter().any(|(name, places)| {
            let before = before.get(name).map(Vec::as_slice).unwrap_or_default();
            let known = |exponent: usize| before.get(exponent).copied().unwrap_or(0);
            let mut places = places.iter().enumerate();
            places.any(|(exponent, places)| *places > known(exponent))
        })
    }

    /// Whether a controller may be tried again with a size that it has refused, and a request waits
    /// for that. The first one in the queue is the one that is tried, and not the first one that
    /// asks.
    pub fn has_due_attempt(&self) -> bool {
        // Of hundreds of controllers, few have refused anything.
        let due: Vec<_> = self.found.with_due_attempts().collect();
        let mut entries = self.entries.iter();
        !due.is_empty() && entries.any(|entry| self.found.may_retry(entry, &due))
    }

    /// Sets what the queue does not know of its requests, and leaves out those with a controller.
    fn prepare_queue(&mut self) {
        set_unsuited(&mut self.entries, &self.found);
        let assigned = &self.assigned;
        self.entries
            .retain(|entry| waits_on(entry) || !assigned.contains_key(&entry.uid));
        (self.stages, self.by_uid) = (None, None);
    }

    fn assign(&mut self, uid: Uid, controller: String, ipus: u32) {
        self.stages = None;
        let sizes = self.sizes.entry(controller.clone()).or_default();
        *sizes.entry(ipus).or_default() += 1;
        let before = self.assigned.insert(uid, (controller, ipus));
        if let Some((controller, ipus)) = before
            && let Some(count) = self
                .sizes
                .get_mut(&controller)
                .and_then(|sizes| sizes.get_mut(&ipus))
        {
            *count -= 1;
        }
    }

    /// The assigned partitions but for this one, the largest of each controller first: a large one
    /// finds its block as long as none is split for a small one.
    fn assigned_except(&self, own: Option<&(String, u32)>) -> impl Iterator<Item = Assigned> {
        self.sizes.iter().flat_map(move |(controller, sizes)| {
            let largest_first = sizes.iter().rev();
            largest_first.map(move |(ipus, count)| {
                let is_own = own.is_some_and(|own| own.0 == *controller && own.1 == *ipus);
                Assigned {
                    controller: controller.clone(),
                    ipus: *ipus,
                    count: count.saturating_sub(u32::from(is_own)),
                }
            })
        })
    }
}

/// Sets the controllers without a node for each request. Most requests share their requirements.
fn set_unsuited(entries: &mut [QueueEntry], found: &Candidates) {
    let mut known: HashMap<Hashed<Requirements>, Unsuited> = HashMap::new();
    for entry in entries {
        entry.unsuited = if let Some(unsuited) = known.get(&entry.requirements) {
            unsuited.clone()
        } else {
            let unsuited = found.unsuited(entry);
            known.insert(entry.requirements.clone(), unsuited.clone());
            unsuited
        };
    }
}

/// The capacity of these controllers beside the assigned partitions, by controller and IPUs.
fn left(
    open: &[ControllerView],
    sizes: &BTreeMap<String, BTreeMap<u32, u32>>,
) -> Vec<ControllerView> {
    let mut views = open.to_vec();
    for view in &mut views {
        let largest_first = sizes.get(&view.name).into_iter().flatten().rev();
        for (ipus, count) in largest_first {
            view.use_up(*ipus, *count);
        }
    }
    views
}

fn uid(partition: &IPUPartition) -> Uid {
    Uid::of(partition.metadata.uid.as_deref().unwrap_or_default())
}

/// Whether a request counts as waiting although a controller is assigned to it: its controllers
/// have refused it lately, and may do so again. Otherwise others would get the capacity that is
/// reserved for it whenever it is tried.
fn waits_on(entry: &QueueEntry) -> bool {
    entry.is_refused
}

#[cfg(test)]
mod tests;
