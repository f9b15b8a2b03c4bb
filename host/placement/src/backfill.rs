//! Pure: the capacity that each waiting request can use, and that is reserved for earlier ones.
//! They are served in the order of [`queue`](crate::queue): by the creation time of the
//! IPUPartition, then by name.
//!
//! Of two requests that fit, the earlier one is served first. Backfill serves a smaller, later
//! request before an earlier one that does not fit, until the earlier one has waited for the limit.
//! Then whole controllers are reserved for it: a small share of all, so that the others serve what
//! fits, and more the longer it waits. The partitions of a gang are requested when all missing ones
//! fit.

mod reservations;
mod wait;

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use ipu_api::guest::placement::ControllerView;
use ipu_api::ipupartition::WaitingReason;
use ipu_api::uid::Uid;
use jiff::{SignedDuration, Timestamp};

use crate::node_match::Requirements;
use crate::queue::{QueueEntry, QueuedRequest, suits};
use reservations::Reservations;
use wait::Wait;

/// Default of the backfill limit, as in the chart (`vipuProxy.backfillLimitSeconds`).
pub const BACKFILL_LIMIT: Duration = Duration::from_hours(24);

/// The capacity that a request can use, and what is reserved for others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capacity {
    /// The controllers, without the capacity that is reserved for others.
    pub views: Vec<ControllerView>,
    /// For each controller with reserved capacity, the request that has the reservation.
    pub reserved: BTreeMap<String, String>,
    /// Reason why the request waits although it fits: its gang does not.
    pub too_small: Option<String>,
}

/// Partitions of one size that are assigned to a controller, and not requested there yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assigned {
    /// Name of the controller.
    pub controller: String,
    /// IPUs of each of them.
    pub ipus: u32,
    /// Their number.
    pub count: u32,
}

/// The capacity for request `me`. `entries` is the queue, in order; `held` counts the partitions
/// that the owner has or is getting. `assigned` are the partitions of others that are assigned, and
/// not requested yet. `limit` is the waiting time after which capacity is reserved.
pub fn capacity_for(
    me: &QueueEntry,
    entries: &[QueueEntry],
    assigned: &[Assigned],
    held: u32,
    mut views: Vec<ControllerView>,
    limit: SignedDuration,
    now: Timestamp,
) -> Capacity {
    let mut reserved = BTreeMap::new();
    for Assigned {
        controller,
        ipus,
        count,
    } in assigned
    {
        // A request that does not fit anyway is shown the used capacity, without assignments.
        let fits = |view: &&mut ControllerView| me.suits(view) && view.largest_free >= me.ipus;
        let view = views.iter_mut().find(|view| view.name == *controller);
        if let Some(view) = view.filter(fits) {
            view.use_up(*ipus, *count);
        }
    }
    let earlier_entries = entries.iter();
    let earlier_entries = earlier_entries.take_while(|other| other.position < me.position);
    let earlier_entries =
        earlier_entries.filter(|earlier| earlier.owner != me.owner && earlier.waits_for_capacity());
    let wait = |earlier: &QueueEntry| Wait::new(earlier.since, now, limit);
    let is_expected = |earlier: &QueueEntry| earlier.is_expected;
    reserve_for(
        earlier_entries,
        is_expected,
        wait,
        &mut views,
        &mut reserved,
        |_, _| {},
    );
    let too_small = too_small(me, held, &views);
    Capacity {
        views,
        reserved,
        too_small,
    }
}

/// Reserves capacity for the requests of the queue, in order. `note` gets each for which capacity
/// was reserved, and what is left after it.
pub(crate) fn reserve_in_order(
    entries: &[QueueEntry],
    limit: SignedDuration,
    now: Timestamp,
    views: &mut [ControllerView],
    note: impl FnMut(&QueueEntry, &[ControllerView]),
) {
    let waiting = entries.iter().filter(|entry| entry.waits_for_capacity());
    let wait = |entry: &QueueEntry| Wait::new(entry.since, now, limit);
    let is_expected = |entry: &QueueEntry| entry.is_expected;
    let mut reserved = BTreeMap::new();
    reserve_for(waiting, is_expected, wait, views, &mut reserved, note);
}

impl Capacity {
    /// Removes the controllers whose nodes could not start the Pods of `me`, if another one serves
    /// the request now. If none does, they may have been repaired meanwhile, and an attempt is
    /// better than a longer wait.
    pub fn avoid(&mut self, me: &QueueEntry, controllers: &[String]) {
        let is_avoided = |view: &ControllerView| controllers.contains(&view.name);
        let serves = |view: &ControllerView| view.largest_free >= me.ipus && me.suits(view);
        let mut others = self.views.iter().filter(|view| !is_avoided(view));
        if others.any(serves) {
            self.views.retain(|view| !is_avoided(view));
        }
    }
}

/// Reserves capacity for earlier requests, in order: whole controllers for those that have waited
/// for the limit at least once, and what they will use for those that `will_use` it soon. `note`
/// gets each for which capacity was reserved, and what is left.
fn reserve_for<'a>(
    earlier_entries: impl Iterator<Item = &'a QueueEntry>,
    will_use: impl Fn(&QueueEntry) -> bool,
    wait: impl Fn(&QueueEntry) -> Wait,
    views: &mut [ControllerView],
    reserved: &mut BTreeMap<String, String>,
    mut note: impl FnMut(&QueueEntry, &[ControllerView]),
) {
    let mut controllers = Reservations::default();
    // Thousands may wait. What nothing is reserved for now, nothing is reserved for again until the
    // capacity changes, or for one that has waited for longer.
    let mut considered: HashMap<_, usize> = HashMap::new();
    let mut is_full = are_full(views);
    for earlier in earlier_entries {
        if is_full {
            break;
        }
        let (will_use, wait) = (will_use(earlier), wait(earlier));
        let kind = (
            (earlier.ipus, earlier.gang),
            (&earlier.requirements, &earlier.unsuited),
            (will_use, earlier.is_refused),
        );
        let stage = wait.stage();
        if considered.get(&kind).is_some_and(|seen| *seen >= stage) {
            continue;
        }
        let has_changed = if let Some(wait) = wait.after_a_day()
            && is_fragmented(earlier, views)
            && controllers.reserve(earlier, wait, views, reserved)
        {
            true
        } else if will_use && reserve(earlier, views, reserved) {
            true
        } else if wait.limits() > 0 && lacks_capacity(earlier, views) {
            controllers.reserve(earlier, wait, views, reserved)
        } else {
            false
        };
        if has_changed {
            considered.clear();
            is_full = are_full(views);
            note(earlier, views);
        } else {
            considered.insert(kind, stage);
        }
    }
}

fn are_full(views: &[ControllerView]) -> bool {
    views.iter().all(|view| view.largest_free == 0)
}

/// A request that is created at `now`, after all others of the queue, with a gang of this
/// number of partitions.
pub fn new_request(
    ipus: u32,
    gang: u32,
    node_selector: BTreeMap<String, String>,
    now: Timestamp,
) -> QueueEntry {
    let request = QueuedRequest {
        // No IPUPartition has this name, which sorts after each of them.
        name: char::MAX.to_string().into(),
        uid: Uid::default(),
        owner: Uid::default(),
        owner_name: String::new(),
        since: now,
        ipus,
        gang,
        was_placed: false,
        requirements: Requirements::labels(node_selector).into(),
        has_usual_options: true,
    };
    QueueEntry::new(request, Timestamp::MAX)
}

/// The capacity that is left after all requests of the queue that fit, after the IPUs of each
/// controller that are being requested (`asked`), and after the reservations for requests that are
/// earlier than `me`. If the partition of `me` is evicted, it may use only this: it would wait for
/// the rest, and its Pods would have ended for nothing.
pub fn capacity_after_queue<'a>(
    me: &QueueEntry,
    entries: &[QueueEntry],
    asked: impl Iterator<Item = (&'a str, u32)>,
    mut views: Vec<ControllerView>,
    limit: SignedDuration,
    now: Timestamp,
) -> Vec<ControllerView> {
    for (name, ipus) in asked {
        if let Some(view) = views.iter_mut().find(|view| view.name == name) {
            view.use_up(ipus, 1);
        }
    }
    let waiting = entries.iter().filter(|entry| entry.missing_members == 0);
    let wait = |entry: &QueueEntry| {
        let is_earlier = entry.position < me.position && entry.owner != me.owner;
        let counts = is_earlier && entry.waits_for_capacity();
        let since = if counts { entry.since } else { now };
        Wait::new(since, now, limit)
    };
    let mut reserved = BTreeMap::new();
    reserve_for(
        waiting,
        |_| true,
        wait,
        &mut views,
        &mut reserved,
        |_, _| {},
    );
    views
}

/// Returns why the gang of `me` can never fit: all controllers together are too small for it, even
/// when empty. `None` as long as one of them does not report its size.
pub fn never_fits<'a>(
    me: &QueueEntry,
    all: impl Iterator<Item = &'a ControllerView> + Clone,
) -> Option<String> {
    let reached: Vec<_> = all.clone().filter(|view| me.reaches(view)).collect();
    let is_unknown = |view: &&ControllerView| view.unreachable.is_some() || view.total_ipus == 0;
    if me.gang <= 1 || all.count() == 0 || reached.iter().any(is_unknown) {
        return None;
    }
    let places = |view: &ControllerView| view.total_ipus.checked_div(me.ipus).unwrap_or(0);
    let capacity = reached.iter().map(|view| places(view));
    let capacity = capacity.fold(0, u32::saturating_add);
    let each = reached.iter().map(|view| {
        format!(
            "{}: {} of {} IPUs",
            view.name,
            places(view),
            view.total_ipus
        )
    });
    (capacity < me.gang).then(|| {
        format!(
            "no V-IPU controllers can ever serve {} partitions of {} IPUs, which are useful only \
             together: empty, all of them have capacity for {capacity} ({}); request fewer or smaller \
             ones, or ask an admin to add V-IPU controllers",
            me.gang,
            me.ipus,
            each.collect::<Vec<_>>().join("; ")
        )
    })
}

/// The reasons of a guest, with the reservations that the guest does not know.
pub fn explained(mut reasons: Vec<WaitingReason>, capacity: &Capacity) -> Vec<WaitingReason> {
    for reason in &mut reasons {
        if let Some(whom) = capacity.reserved.get(&reason.controller) {
            reason.reason = format!("its free capacity is reserved for {whom}");
        }
    }
    reasons
}

/// Takes capacity for a partition on the first controller that fits, as the serial walk does.
/// `node_selector` is that of the owner's Pods. Returns whether there is one.
pub fn take(
    views: &mut [ControllerView],
    ipus: u32,
    node_selector: &BTreeMap<String, String>,
) -> bool {
    take_on(views, ipus, |view| suits(view, ipus, node_selector)).is_some()
}

/// Takes capacity on the first suitable controller that fits. Returns the name of the controller.
fn take_on(
    views: &mut [ControllerView],
    ipus: u32,
    is_suitable: impl Fn(&ControllerView) -> bool,
) -> Option<&str> {
    let fits = |view: &&mut ControllerView| view.largest_free >= ipus && is_suitable(view);
    let view = views.iter_mut().find(fits)?;
    view.use_up(ipus, 1);
    Some(&view.name)
}

/// Reserves the capacity that an earlier request will use. Returns whether it fits.
fn reserve(
    earlier: &QueueEntry,
    views: &mut [ControllerView],
    reserved: &mut BTreeMap<String, String>,
) -> bool {
    let Some(name) = take_on(views, earlier.ipus, |view| earlier.suits(view)) else {
        return false;
    };
    let whom = format!("{}, which has waited longer", holder(earlier));
    reserved.insert(name.to_owned(), whom);
    true
}

/// The request with a reservation, for users. Statuses contain this text, so it does not name the
/// position in the queue: whenever a request was served, the statuses of all later ones would be
/// written again.
fn holder(earlier: &QueueEntry) -> String {
    format!("{} ({} IPUs)", earlier.owner_name, earlier.ipus)
}

/// Whether a request does not fit because the free IPUs of controllers are not adjacent: they have
/// refused it, or their free blocks are known. New jobs may take the IPUs between them again and
/// again. An empty controller refuses it for another reason, and no reservation would help.
fn is_fragmented(earlier: &QueueEntry, views: &[ControllerView]) -> bool {
    let suited = || views.iter().filter(|view| earlier.suits(view));
    let is_scattered = || suited().any(|view| is_scattered(view, earlier.ipus));
    earlier.gang <= 1
        && (earlier.is_refused || is_scattered())
        && suited().all(|view| view.used_ipus > 0)
}

/// Whether enough IPUs of a controller are free for a partition, in blocks that are known to be too
/// small for it.
fn is_scattered(view: &ControllerView, ipus: u32) -> bool {
    let is_too_small = !view.free_blocks.is_empty() && view.largest_free < ipus;
    is_too_small && view.free_ipus() >= ipus
}

/// Whether an earlier request lacks capacity that can become free. A request that fits now waits
/// for something else, and a gang that is too large never fits. Scattered IPUs are no lack of them:
/// blocks often form by themselves, and whole controllers that are emptied for such requests cost
/// more than they bring (BENCHMARKS.md, placement).
fn lacks_capacity(earlier: &QueueEntry, views: &[ControllerView]) -> bool {
    let suited = || views.iter().filter(|view| earlier.suits(view));
    if earlier.gang > 1 {
        let places = suited().map(|view| view.total_ipus.checked_div(earlier.ipus).unwrap_or(0));
        return places.fold(0, u32::saturating_add) >= earlier.gang;
    }
    let is_enough = |view: &ControllerView| {
        view.largest_free >= earlier.ipus || is_scattered(view, earlier.ipus)
    };
    !suited().any(is_enough)
}

/// Returns why the missing partitions of the gang of `me` do not fit now.
fn too_small(me: &QueueEntry, held: u32, views: &[ControllerView]) -> Option<String> {
    if me.missing_members > 0 {
        return Some(format!(
            "{} partitions are useful only together, and {} of them are not requested",
            me.gang, me.missing_members
        ));
    }
    let missing = me.gang.saturating_sub(held);
    if missing <= 1 {
        return None;
    }
    let suited = views.iter().filter(|view| me.suits(view));
    let fits = suited.map(|view| view.places(me.ipus));
    let fits: u32 = fits.fold(0, u32::saturating_add);
    (fits < missing).then(|| {
        format!(
            "{missing} partitions of {} IPUs are useful only together, and there is free capacity \
             for {fits} of them now",
            me.ipus
        )
    })
}

#[cfg(test)]
mod tests;
