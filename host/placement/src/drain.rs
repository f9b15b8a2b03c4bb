//! Pure: decides whether an IPUPartition leaves a drained controller, and counts the partitions of
//! its owner.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use ipu_api::guest::placement::ControllerView;
use ipu_api::ipupartition::{Attempt, AttemptOutcome, IPUPartition};
use ipu_api::partition_conditions;
use ipu_api::vipu_controller::{CordonState, CordonStates};
use jiff::{SignedDuration, Timestamp};

use super::queue::{self, QueueEntry};
use crate::backfill;

/// Delay of the next owner after one that was requested to leave a controller.
const PATIENCE: SignedDuration = SignedDuration::from_mins(5);

/// The other partitions of the owner, and the eviction of this one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct EvictionState {
    /// Partitions that the owner has or is getting, with this one.
    pub held: u32,
    /// Time at which the owner's last unplaced partition began to wait.
    pub lacking_since: Option<Timestamp>,
    /// Whether it leaves its controller.
    pub eviction: Eviction,
}

/// Fields of a partition of the same owner that the evaluation reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sibling {
    /// Its slot.
    pub slot: u32,
    /// Whether it has a partition, or is getting one. A created partition that the slot does not
    /// use is being removed: if it counted, its siblings would take capacity that is too small for
    /// all.
    pub is_placed: bool,
    /// Since when it waits, if it does.
    pub waits_since: Option<Timestamp>,
}

impl Sibling {
    /// Reads an IPUPartition.
    pub fn of(one: &IPUPartition) -> Self {
        let status = one.status.as_ref();
        let is_made = status.is_some_and(|status| status.partition_id.is_some());
        Self {
            slot: one.spec.slot,
            is_placed: is_made || open_requests(one).next().is_some(),
            waits_since: status.and_then(partition_conditions::not_ready_since),
        }
    }
}

/// Whether a partition leaves its controller.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Eviction {
    /// It stays.
    #[default]
    No,
    /// It leaves later, for this reason.
    Later(String),
    /// It leaves now.
    Now,
}

/// The data that the evaluation of one IPUPartition needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequiredData<'a> {
    /// None: its controller is not drained, and it belongs to no gang.
    Nothing,
    /// The partitions of its owner.
    Siblings,
    /// These, all partitions on this drained controller, and the free capacity of the others.
    Everything(&'a str),
}

/// The data that the evaluation of `me` needs.
pub fn required_data<'a>(me: &'a IPUPartition, cordons: &CordonStates) -> RequiredData<'a> {
    match drained(me, cordons) {
        Some(name) => RequiredData::Everything(name),
        None if me.spec.options.gang_size.is_some() => RequiredData::Siblings,
        None => RequiredData::Nothing,
    }
}

/// The capacity of the open controllers for `me`, after the queue and the open requests `asked`,
/// each a controller and IPUs. `backfill_limit` is the waiting time after which capacity is
/// reserved.
pub fn capacity_after_queue<'a>(
    me: &IPUPartition,
    entries: &[QueueEntry],
    asked: impl Iterator<Item = (&'a str, u32)>,
    open: Vec<ControllerView>,
    backfill_limit: Duration,
    now: Timestamp,
) -> Vec<ControllerView> {
    let me = queue::own_entry(me, entries, now);
    let limit = SignedDuration::try_from(backfill_limit).unwrap_or(SignedDuration::MAX);
    backfill::capacity_after_queue(&me, entries, asked, open, limit, now)
}

/// Evaluates `me`. `others` contains at least the IPUPartitions of its owner and, if its controller
/// is drained, those on it; `open` are the controllers that are not cordoned.
pub fn of<'a>(
    me: &IPUPartition,
    others: impl Iterator<Item = &'a IPUPartition> + Clone,
    cordons: &CordonStates,
    open: &[ControllerView],
    now: Timestamp,
) -> EvictionState {
    let siblings: Vec<_> = siblings(me, others.clone()).map(Sibling::of).collect();
    EvictionState {
        eviction: evict(me, others, cordons, open, now),
        ..of_owner(me, &siblings)
    }
}

/// Evaluates `me` on a controller that is not drained, with the partitions of its owner.
pub fn of_owner(me: &IPUPartition, all: &[Sibling]) -> EvictionState {
    let me = Sibling::of(me);
    let others = all.iter().filter(|one| one.slot != me.slot);
    let (placed, lacking): (Vec<&Sibling>, Vec<&Sibling>) = others.partition(|one| one.is_placed);
    let held = placed.len() + usize::from(me.is_placed);
    EvictionState {
        held: u32::try_from(held).unwrap_or(u32::MAX),
        lacking_since: lacking.iter().filter_map(|one| one.waits_since).max(),
        eviction: Eviction::No,
    }
}

/// The controller of this partition, if it is being drained.
fn drained<'a>(one: &'a IPUPartition, cordons: &CordonStates) -> Option<&'a str> {
    controller(one).filter(|name| is_draining(name, cordons))
}

/// Whether this controller is being drained.
pub fn is_draining(controller: &str, cordons: &CordonStates) -> bool {
    cordons.get(controller) == Some(&CordonState::Draining)
}

/// Controllers and IPUs of attempts with an unknown outcome.
pub fn open_requests(partition: &IPUPartition) -> impl Iterator<Item = (&str, u32)> {
    let asked = attempts(partition, AttemptOutcome::Unknown);
    asked.map(|attempt| (attempt.controller.name.as_str(), partition.spec.ipus))
}

/// Its attempts with this outcome.
pub fn attempts(
    partition: &IPUPartition,
    outcome: AttemptOutcome,
) -> impl Iterator<Item = &Attempt> {
    let attempts = partition.status.iter().flat_map(|status| &status.attempts);
    attempts.filter(move |attempt| attempt.outcome == outcome)
}

/// The other partitions of the owner of `me`.
pub fn siblings<'a>(
    me: &IPUPartition,
    others: impl Iterator<Item = &'a IPUPartition>,
) -> impl Iterator<Item = &'a IPUPartition> {
    others.filter(|one| one.spec.owner.uid == me.spec.owner.uid && one.spec.slot != me.spec.slot)
}

/// Owners leave a controller one after the other, oldest first, each when other controllers have
/// capacity for it. Pinned partitions stay until they are released.
fn evict<'a>(
    me: &IPUPartition,
    others: impl Iterator<Item = &'a IPUPartition>,
    cordons: &CordonStates,
    open: &[ControllerView],
    now: Timestamp,
) -> Eviction {
    let Some(name) = drained(me, cordons) else {
        return Eviction::No;
    };
    if me.spec.options.pinned {
        return Eviction::Later(partition_conditions::drain_waits(name));
    }
    // Its Pods are already ending. Withdrawing the request would have ended them for nothing.
    if me
        .status
        .as_ref()
        .and_then(partition_conditions::draining_since)
        .is_some()
    {
        return Eviction::Now;
    }
    let there: Vec<&IPUPartition> = others.filter(|one| controller(one) == Some(name)).collect();
    let mut fits = Fits::on(open, &there);
    if !fits.all(me) {
        let why = format!(
            "{name} is being drained, and no other controller has free capacity for {} IPUs now that \
             earlier requests do not need, or not for all partitions of its owner",
            me.spec.ipus
        );
        return Eviction::Later(why);
    }
    let mine = &me.spec.owner.uid;
    let mut earlier: Vec<&IPUPartition> = there
        .iter()
        .copied()
        .filter(|one| one.spec.owner.uid != *mine && position(one) < position(me))
        .filter(|partition| can_leave(partition) && !is_overdue(partition, now))
        .collect();
    earlier.sort_by_key(|one| position(one));
    match earlier.into_iter().find(|one| fits.all(one)) {
        Some(first) => Eviction::Later(format!(
            "{name} is being drained; {}/{} leaves it first",
            first.spec.owner.namespace, first.spec.owner.name
        )),
        None => Eviction::Now,
    }
}

/// The names of the partitions on a drained controller that may be the next to leave it: the `most`
/// earliest that were not requested to.
pub fn next_to_leave(there: &[Arc<IPUPartition>], most: usize) -> Vec<&str> {
    let is_asked = |one: &IPUPartition| {
        let status = one.status.as_ref();
        status.is_some_and(|status| partition_conditions::draining_since(status).is_some())
    };
    let mut next: Vec<&IPUPartition> = there
        .iter()
        .map(Arc::as_ref)
        .filter(|one| can_leave(one) && !is_asked(one))
        .collect();
    next.sort_by_key(|one| position(one));
    next.truncate(most);
    next.into_iter()
        .filter_map(|one| one.metadata.name.as_deref())
        .collect()
}

fn can_leave(one: &IPUPartition) -> bool {
    !one.spec.options.pinned && one.metadata.deletion_timestamp.is_none()
}

/// Whether the request to leave is older than [`PATIENCE`].
fn is_overdue(one: &IPUPartition, now: Timestamp) -> bool {
    let asked = one
        .status
        .as_ref()
        .and_then(partition_conditions::draining_since);
    asked.is_some_and(|asked| now.duration_since(asked) >= PATIENCE)
}

/// Sizes of partitions that end together, each with the node selector of its Pods.
type Sizes<'a> = Vec<(u32, &'a BTreeMap<String, String>)>;

/// Whether partitions fit on the open controllers. Hundreds of partitions mostly have a few sizes,
/// each of which is tried once.
struct Fits<'a> {
    open: &'a [ControllerView],
    /// The partitions on the drained controller, by the UID of their owner.
    owned: HashMap<&'a str, Vec<&'a IPUPartition>>,
    known: HashMap<Sizes<'a>, bool>,
}

impl<'a> Fits<'a> {
    /// `there` are the partitions on the drained controller.
    fn on(open: &'a [ControllerView], there: &[&'a IPUPartition]) -> Self {
        let mut owned: HashMap<&str, Vec<&IPUPartition>> = HashMap::new();
        for one in there {
            owned.entry(&one.spec.owner.uid).or_default().push(one);
        }
        Self {
            open,
            owned,
            known: HashMap::new(),
        }
    }

    /// Whether all partitions that the owner of `one` has on the controller fit elsewhere: its Pods
    /// end together.
    fn all(&mut self, one: &'a IPUPartition) -> bool {
        let owned = self.owned.get(one.spec.owner.uid.as_str());
        let siblings = siblings(one, owned.into_iter().flatten().copied());
        let sizes: Sizes<'a> = std::iter::once(one)
            .chain(siblings)
            .map(|one| (one.spec.ipus, &one.spec.options.node_selector))
            .collect();
        if let Some(known) = self.known.get(&sizes) {
            return *known;
        }
        let mut open = self.open.to_vec();
        let mut each = sizes.iter();
        let do_all = each.all(|(ipus, selector)| backfill::take(&mut open, *ipus, selector));
        self.known.insert(sizes, do_all);
        do_all
    }
}

/// Name of its controller.
pub fn controller(one: &IPUPartition) -> Option<&str> {
    let controller = one.status.as_ref()?.controller.as_ref()?;
    Some(controller.name.as_str())
}

fn position(one: &IPUPartition) -> (Option<Timestamp>, Option<&str>) {
    let metadata = &one.metadata;
    let created = metadata.creation_timestamp.as_ref();
    (created.map(|time| time.0), metadata.name.as_deref())
}

#[cfg(test)]
mod tests;
