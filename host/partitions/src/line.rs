//! Pure: in which order those who wait are served, and which room is kept for whom.
//!
//! Whoever has waited longer is served first where both fit. A smaller one may pass where the elder
//! does not fit, until the elder has waited its limit: then whole controllers are kept for it, one
//! more after each further limit, so that it is served in the end whatever comes and goes. Partitions
//! that are of use only together are asked for once there is room for all that are missing.

mod waiter;

use std::collections::BTreeMap;

use ipu_api::ipupartition::WaitingReason;
use jiff::{SignedDuration, Timestamp};
use vipu_client::model::largest_partition;

use ipu_guest_host::model::ControllerView;
use waiter::suits;

pub use waiter::{ASKS, Member, Place, Waiter, in_order, line, me, member, of, waiter};

/// The room that one of those who wait is shown, and what was kept from it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// The controllers as it is shown them.
    pub views: Vec<ControllerView>,
    /// By controller: for whom its room is kept.
    pub kept: BTreeMap<String, String>,
    /// Whether some of it is about to be taken by those for whom it is kept.
    pub is_promised: bool,
    /// Why it has to wait although there is room, where its siblings do not fit as well.
    pub too_small: Option<String>,
}

/// The room for `me`, where `line` waits, in order, and `held` partitions of my owner are there or
/// being made. `taken` is what others were told to take of each controller (in IPUs) and is not made
/// yet; `limit` is how long somebody is passed by smaller ones.
pub fn room(
    me: &Waiter,
    line: &[Waiter],
    taken: &[(String, u32)],
    held: u32,
    mut views: Vec<ControllerView>,
    limit: SignedDuration,
    now: Timestamp,
) -> Room {
    let mut kept = BTreeMap::new();
    let mut is_promised = false;
    for (name, ipus) in taken {
        // Where I do not fit anyway I am told what is used, not what is about to be.
        let fits = |view: &&mut ControllerView| me.suits(view) && view.largest_free >= me.ipus;
        let view = views.iter_mut().find(|view| view.name == *name);
        if let Some(view) = view.filter(fits) {
            is_promised = true;
            use_up(view, *ipus);
        }
    }
    let elders = line.iter().take_while(|other| other.place < me.place);
    let elders = elders.filter(|elder| elder.owner != me.owner && elder.takes_room());
    for elder in elders {
        if views.iter().all(|view| view.largest_free == 0) {
            break;
        }
        let limits = limits(elder, limit, now);
        if elder.is_next && promise(elder, &mut views, &mut kept) {
            is_promised = true;
        } else if limits > 0 && lacks_room(elder, &views) {
            keep(elder, limits, &mut views, &mut kept);
        }
    }
    let too_small = too_small(me, held, &views);
    Room {
        views,
        kept,
        is_promised,
        too_small,
    }
}

/// The room that is left once all of `line` that fit are served, and what is just being asked for of
/// each controller (`asked`, in IPUs) is made: only so much may be taken by somebody who has a place.
pub fn spared<'a>(
    line: &[Waiter],
    asked: impl Iterator<Item = (&'a str, u32)>,
    mut views: Vec<ControllerView>,
) -> Vec<ControllerView> {
    for (name, ipus) in asked {
        if let Some(view) = views.iter_mut().find(|view| view.name == name) {
            use_up(view, ipus);
        }
    }
    for waiter in line.iter().filter(|waiter| waiter.unasked == 0) {
        take(&mut views, waiter.ipus, &waiter.node_selector);
    }
    views
}

/// Why the partitions that `me` is of use with only together can never be had, where all controllers
/// together are too small for them, whatever else is on them. As long as one of them does not tell
/// what it has, nobody knows.
pub fn never_fits<'a>(
    me: &Waiter,
    all: impl Iterator<Item = &'a ControllerView> + Clone,
) -> Option<String> {
    let reached: Vec<_> = all.clone().filter(|view| me.reaches(view)).collect();
    let is_unknown = |view: &&ControllerView| view.unreachable.is_some() || view.total_ipus == 0;
    if me.gang <= 1 || all.count() == 0 || reached.iter().any(is_unknown) {
        return None;
    }
    let places = |view: &ControllerView| view.total_ipus.checked_div(me.ipus).unwrap_or(0);
    let room = reached.iter().map(|view| places(view));
    let room = room.fold(0, u32::saturating_add);
    let each = reached.iter().map(|view| {
        format!(
            "{}: {} of {} IPUs",
            view.name,
            places(view),
            view.total_ipus
        )
    });
    (room < me.gang).then(|| {
        format!(
            "no V-IPU controllers can ever serve {} partitions of {} IPUs, which are of use only \
             together: empty, all of them have capacity for {room} ({}); request fewer or smaller \
             ones, or have more controllers listed",
            me.gang,
            me.ipus,
            each.collect::<Vec<_>>().join("; ")
        )
    })
}

/// What the reasons of a policy mean once it is told what was kept.
pub fn explained(mut reasons: Vec<WaitingReason>, room: &Room) -> Vec<WaitingReason> {
    for reason in &mut reasons {
        if let Some(whom) = room.kept.get(&reason.controller) {
            reason.reason = format!("its free capacity is reserved for {whom}");
        }
    }
    reasons
}

/// Takes the room for a partition whose owner's Pods ask for these nodes, on the first controller that
/// has it, as in the serial walk. Answers its name, where there is one.
pub fn take<'a>(
    views: &'a mut [ControllerView],
    ipus: u32,
    node_selector: &BTreeMap<String, String>,
) -> Option<&'a str> {
    let fits =
        |view: &&mut ControllerView| view.largest_free >= ipus && suits(view, ipus, node_selector);
    let view = views.iter_mut().find(fits)?;
    use_up(view, ipus);
    Some(&view.name)
}

/// Sets aside what `elder` is about to take. Answers whether there is such room.
fn promise(
    elder: &Waiter,
    views: &mut [ControllerView],
    kept: &mut BTreeMap<String, String>,
) -> bool {
    let Some(name) = take(views, elder.ipus, &elder.node_selector) else {
        return false;
    };
    let whom = format!("{}, which has waited longer", elder.owner_name);
    kept.insert(name.to_owned(), whom);
    true
}

/// How often `elder` has waited its limit.
fn limits(elder: &Waiter, limit: SignedDuration, now: Timestamp) -> usize {
    let waited = now.duration_since(elder.since).as_secs().max(0);
    usize::try_from(waited / limit.as_secs().max(1)).unwrap_or(usize::MAX)
}

/// Whether room is what an elder waits for, and room can come: one that fits now and is not made is
/// held up by something else, and all of a gang that is too large never fits.
fn lacks_room(elder: &Waiter, views: &[ControllerView]) -> bool {
    let suited = || views.iter().filter(|view| elder.suits(view));
    if elder.gang > 1 {
        let places = suited().map(|view| view.total_ipus.checked_div(elder.ipus).unwrap_or(0));
        return places.fold(0, u32::saturating_add) >= elder.gang;
    }
    !suited().any(|view| view.largest_free >= elder.ipus)
}

/// Keeps whole controllers for `elder`: those that have the most free, since they will serve it
/// soonest.
fn keep(
    elder: &Waiter,
    count: usize,
    views: &mut [ControllerView],
    kept: &mut BTreeMap<String, String>,
) {
    let mut suited: Vec<&mut ControllerView> =
        views.iter_mut().filter(|view| elder.suits(view)).collect();
    suited.sort_by_key(|view| std::cmp::Reverse(view.free_ipus()));
    for view in suited.into_iter().take(count) {
        use_up(view, u32::MAX);
        kept.entry(view.name.clone()).or_insert_with(|| {
            format!(
                "{} ({} IPUs), which waits since {}",
                elder.owner_name,
                elder.ipus,
                elder.since.strftime("%Y-%m-%dT%H:%M:%SZ")
            )
        });
    }
}

fn use_up(view: &mut ControllerView, ipus: u32) {
    view.used_ipus = view.used_ipus.saturating_add(ipus).min(view.total_ipus);
    view.largest_free = view.largest_free.min(largest_partition(view.free_ipus()));
}

/// Why the partitions that `me` is of use with only together have no room, where they have none.
fn too_small(me: &Waiter, held: u32, views: &[ControllerView]) -> Option<String> {
    if me.unasked > 0 {
        return Some(format!(
            "{} partitions are of use only together, and {} of them are not requested",
            me.gang, me.unasked
        ));
    }
    let missing = me.gang.saturating_sub(held);
    if missing <= 1 {
        return None;
    }
    let suited = views.iter().filter(|view| me.suits(view));
    let fits = suited.map(|view| view.free_ipus().checked_div(me.ipus).unwrap_or(0));
    let fits: u32 = fits.fold(0, u32::saturating_add);
    (fits < missing).then(|| {
        format!(
            "{missing} partitions of {} IPUs are of use only together, and there is free capacity \
             for {fits} of them now",
            me.ipus
        )
    })
}

#[cfg(test)]
mod tests;
