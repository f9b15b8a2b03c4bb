//! Pure: which whole controllers are reserved for requests that have waited for the limit, and how
//! many.
//!
//! A reserved controller serves nobody else until its request fits, and jobs may run for days. If
//! each waiting request kept adding controllers, a few large requests would drain all of them.
//! Therefore only a share is reserved at the same time, for the earliest requests.
//!
//! The earliest request is served in the end nevertheless. The controllers with the most free IPUs
//! are reserved, and the free IPUs of a reserved controller only grow, so the most that is free
//! grows until the request fits. A job on a reserved controller may never end. Therefore the share
//! grows by one controller after each week, up to half of the controllers: in the replay of real
//! jobs, growth after each day left 2 % more of the IPUs idle, and doubled the median wait. After
//! four weeks, the two halves take turns, and each turn is twice as long as the one before, so that
//! the turn of a controller whose jobs end is long enough at some time. The other half stays open:
//! a request that can never be served must not stop a cluster. For the same reason, if all
//! controllers that suit a request would be reserved, for example the only one, they are reserved
//! for half of the time only.
//!
//! The controllers that suit a request have a share of their own, of one at least: a request that
//! only one busy controller suits must not keep all others waiting. Such shares add up, and one
//! request for each controller would reserve all of them. Therefore requests that only some
//! controllers suit because of their nodes also have one share together, of all controllers of
//! their size, for the earliest of them. They do not use up the share of a request that all of
//! these controllers suit, which is served in the end whatever is requested of single controllers.
//!
//! A request may not fit although enough IPUs are free: they are not adjacent. In the replay of
//! real jobs, reservations for such requests cost more than they gained. Therefore their time
//! begins to count after a day. Nothing else would end their wait: on an empty controller, all IPUs
//! are adjacent.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use ipu_api::guest::placement::ControllerView;

use super::holder;
use super::wait::Wait;
use crate::queue::{QueueEntry, suits};

/// One in this number of controllers that suit a request is reserved, and at least one.
const SHARE: usize = 8;

/// The reservations of whole controllers, for one decision.
#[derive(Debug, Default)]
pub(super) struct Reservations {
    /// Number of controllers that are reserved for requests that the same controllers suit.
    taken: BTreeMap<Vec<usize>, usize>,
    /// The controllers that are reserved for requests that only some controllers of their size
    /// suit.
    taken_by_bound: BTreeSet<usize>,
}

impl Reservations {
    /// Reserves controllers for an earlier request that has waited for the limit: those with the
    /// most free capacity, which will serve it soonest. A gang may need several at the same time:
    /// the earliest request gets them whatever the share is. Returns whether there was one.
    pub(super) fn reserve(
        &mut self,
        earlier: &QueueEntry,
        wait: Wait,
        views: &mut [ControllerView],
        reserved: &mut BTreeMap<String, String>,
    ) -> bool {
        let suited = indices(views, |view| earlier.suits(view));
        let of_size = indices(views, |view| suits(view, earlier.ipus, &BTreeMap::new()));
        let is_bound = suited.len() < of_size.len();
        let taken = self.taken.get(&suited).copied();
        let mut most = share(wait, suited.len()).saturating_sub(taken.unwrap_or(0));
        let mut is_earliest = taken.is_none();
        if is_bound {
            let taken_by_bound = of_size
                .iter()
                .filter(|&index| self.taken_by_bound.contains(index))
                .count();
            let left = share(wait, of_size.len()).saturating_sub(taken_by_bound);
            most = most.min(left);
            is_earliest &= left > 0;
        }
        let chosen = chosen(earlier, wait, &suited, views, most, is_earliest);
        let is_others_turn = chosen.len() == suited.len() && !wait.may_have_all();
        *self.taken.entry(suited).or_default() += chosen.len();
        if is_others_turn {
            return false;
        }
        if is_bound {
            self.taken_by_bound.extend(&chosen);
        }
        for &index in &chosen {
            let view = &mut views[index];
            view.use_up_all();
            let whom = reserved.entry(view.name.clone());
            whom.or_insert_with(|| lasting(earlier));
        }
        !chosen.is_empty()
    }
}

/// The indices of the controllers for which this holds.
fn indices(views: &[ControllerView], holds: impl Fn(&ControllerView) -> bool) -> Vec<usize> {
    let numbered = views.iter().enumerate();
    let found = numbered.filter(|(_, view)| holds(view));
    found.map(|(index, _)| index).collect()
}

/// The controllers that are reserved for a request: at most `most`, and as many as a gang needs if
/// it is the earliest.
fn chosen(
    earlier: &QueueEntry,
    wait: Wait,
    suited: &[usize],
    views: &[ControllerView],
    most: usize,
    is_earliest: bool,
) -> Vec<usize> {
    let mut positions: Vec<usize> = (0..suited.len()).collect();
    positions.sort_by_key(|&position| {
        let free = views[suited[position]].free_ipus();
        (!has_turn(wait, position), Reverse(free))
    });
    let (mut chosen, mut partitions) = (Vec::new(), 0_u32);
    for position in positions.into_iter().take(wait.limits()) {
        let is_enough = !is_earliest || partitions >= earlier.gang;
        if chosen.len() >= most && is_enough {
            break;
        }
        let index = suited[position];
        let fits = views[index].total_ipus.checked_div(earlier.ipus);
        partitions = partitions.saturating_add(fits.unwrap_or(0));
        chosen.push(index);
    }
    chosen
}

/// Returns the number of controllers that are reserved for a request, of so many.
fn share(wait: Wait, suited: usize) -> usize {
    let share = (suited / SHARE).max(1) + wait.weeks();
    share.min(suited.div_ceil(2))
}

/// Whether the controller at this position of the list comes first. After four weeks, every other
/// controller does: those at even positions in the next four weeks, the others in the eight weeks
/// after them, and so on.
fn has_turn(wait: Wait, position: usize) -> bool {
    let turn = wait.turn();
    turn.is_none_or(|turn| position % 2 == usize::from(turn % 2 == 1))
}

/// The request with a reservation that lasts until it is served, for users.
fn lasting(earlier: &QueueEntry) -> String {
    format!(
        "{}, which has waited since {}",
        holder(earlier),
        earlier.since.strftime("%Y-%m-%dT%H:%M:%SZ")
    )
}
