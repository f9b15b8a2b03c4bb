//! Pure: decides whether an IPUPartition leaves a drained controller, and counts the partitions of its owner.

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
    /// Whether it has a partition, or is getting one. A created partition that the slot does not use is being removed:
    /// if it counted, its siblings would take capacity that is too small for all.
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

/// The capacity of the open controllers for `me`, after the queue and the open requests `asked`, each a controller and
/// IPUs. `backfill_limit` is the waiting time after which capacity is reserved.
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

/// Evaluates `me`. `others` contains at least the IPUPartitions of its owner and, if its controller is drained, those
/// on it; `open` are the controllers that are not cordoned.
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

/// Owners leave a controller one after the other, oldest first, each when other controllers have capacity for it.
/// Pinned partitions stay until they are released.
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
    let others: Vec<&IPUPartition> = others.collect();
    if !all_fit(me, &others, name, open) {
        let why = format!(
            "{name} is being drained, and no other controller has free capacity for {} IPUs now that \
             earlier requests do not need, or not for all partitions of its owner",
            me.spec.ipus
        );
        return Eviction::Later(why);
    }
    let may_leave = |one: &&IPUPartition| {
        controller(one) == Some(name)
            && !one.spec.options.pinned
            && one.metadata.deletion_timestamp.is_none()
            && all_fit(one, &others, name, open)
            && !has_not_left(one, now)
    };
    let mine = &me.spec.owner.uid;
    let others_first = others
        .iter()
        .copied()
        .filter(|one| one.spec.owner.uid != *mine);
    let before = others_first
        .filter(may_leave)
        .filter(|one| position(one) < position(me))
        .min_by_key(|one| position(one));
    match before {
        Some(first) => Eviction::Later(format!(
            "{name} is being drained; {}/{} leaves it first",
            first.spec.owner.namespace, first.spec.owner.name
        )),
        None => Eviction::Now,
    }
}

/// Whether it was requested to leave long ago.
fn has_not_left(one: &IPUPartition, now: Timestamp) -> bool {
    let asked = one
        .status
        .as_ref()
        .and_then(partition_conditions::draining_since);
    asked.is_some_and(|asked| now.duration_since(asked) >= PATIENCE)
}

/// Whether all partitions that the owner of `one` has on this controller fit elsewhere: its Pods end together.
fn all_fit(
    one: &IPUPartition,
    others: &[&IPUPartition],
    name: &str,
    open: &[ControllerView],
) -> bool {
    let siblings = siblings(one, others.iter().copied());
    let siblings = siblings.filter(|other| controller(other) == Some(name));
    let mut open = open.to_vec();
    std::iter::once(one)
        .chain(siblings)
        .all(|one| backfill::take(&mut open, one.spec.ipus, &one.spec.options.node_selector))
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
mod tests {
    use ipu_api::partition_conditions::DRAINING;
    use serde_json::json;

    use super::*;
    use crate::samples::view;

    const NOW: &str = "2026-01-01T12:00:00Z";

    /// A partition of 4 IPUs on a controller, created so many minutes ago.
    fn one(owner: &str, slot: u32, on: &str, minutes: i64) -> IPUPartition {
        let now: Timestamp = NOW.parse().unwrap();
        let created = now - SignedDuration::from_mins(minutes);
        serde_json::from_value(json!({
            "apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUPartition",
            "metadata": {"name": format!("{owner}-{slot}"), "creationTimestamp": created},
            "spec": {
                "owner": {
                    "apiVersion": "v1", "kind": "K", "namespace": "default",
                    "name": owner, "uid": owner,
                },
                "slot": slot, "ipus": 4, "gcds": 1,
            },
            "status": {
                "phase": "Ready", "partitionId": format!("p-{owner}-{slot}"),
                "controller": {
                    "name": on, "host": on, "port": 1, "labelKey": "ipunode", "labelValue": on,
                },
            },
        }))
        .unwrap()
    }

    fn seen(me: &IPUPartition, others: &[IPUPartition], free: u32) -> EvictionState {
        let cordons = CordonStates::from([("pod1".to_owned(), CordonState::Draining)]);
        of(
            me,
            others.iter(),
            &cordons,
            &[view("pod2", 16, 16 - free)],
            NOW.parse().unwrap(),
        )
    }

    #[test]
    fn owners_leave_one_after_the_other_oldest_first() {
        let all = [
            one("b", 0, "pod1", 5),
            one("a", 0, "pod1", 9),
            one("a", 1, "pod1", 9),
        ];
        assert_eq!(seen(&all[1], &all, 8).eviction, Eviction::Now);
        assert_eq!(seen(&all[2], &all, 8).eviction, Eviction::Now);
        let later = "pod1 is being drained; default/a leaves it first";
        assert_eq!(
            seen(&all[0], &all, 8).eviction,
            Eviction::Later(later.to_owned())
        );
        let elsewhere = one("a", 0, "pod2", 9);
        assert_eq!(seen(&elsewhere, &all, 8).eviction, Eviction::No);
    }

    #[test]
    fn none_leaves_without_capacity_and_pinned_partitions_delay_no_other() {
        let mut all = [one("a", 0, "pod1", 9), one("b", 0, "pod1", 5)];
        let Eviction::Later(why) = seen(&all[0], &all, 2).eviction else {
            panic!("there is no capacity");
        };
        assert!(
            why.contains("no other controller has free capacity for 4 IPUs"),
            "{why}"
        );
        all[0].spec.options.pinned = true;
        let Eviction::Later(why) = seen(&all[0], &all, 8).eviction else {
            panic!("it is pinned");
        };
        let mut reported = all[0].status.clone().unwrap();
        reported.message = Some(why);
        assert!(partition_conditions::holds_drain(&reported), "{reported:?}");
        assert_eq!(seen(&all[1], &all, 8).eviction, Eviction::Now);
    }

    #[test]
    fn none_leaves_for_capacity_that_is_reserved_for_an_earlier_request() {
        let (me, now) = (one("a", 0, "pod1", 9), NOW.parse().unwrap());
        let cordons = CordonStates::from([("pod1".to_owned(), CordonState::Draining)]);
        for (minutes, expected) in [(30, false), (6, true)] {
            let mut large = one("large", 0, "pod1", minutes);
            large.metadata.uid = Some("large".to_owned());
            (large.spec.ipus, large.status) = (16, None);
            let entries = queue::entries(std::iter::once(&large), now);
            let (asked, limit) = (std::iter::empty(), Duration::from_mins(5));
            let open = vec![view("pod2", 16, 8)];
            let left = capacity_after_queue(&me, &entries, asked, open, limit, now);
            let found = of(&me, std::iter::once(&me), &cordons, &left, now);
            let leaves = found.eviction == Eviction::Now;
            assert_eq!(leaves, expected, "{:?}", found.eviction);
        }
    }

    #[test]
    fn one_that_was_requested_long_ago_delays_no_other() {
        let fresh = [one("a", 0, "pod1", 60), one("b", 0, "pod1", 5)];
        for (since, expected) in [
            ("2026-01-01T11:58:00Z", false),
            ("2026-01-01T11:55:00Z", true),
        ] {
            let mut all = fresh.clone();
            let status = all[0].status.as_mut().unwrap();
            let (reason, message) = ("ControllerDrained", "now".to_owned());
            partition_conditions::set(status, DRAINING, reason, message, since.parse().unwrap());
            assert_eq!(
                seen(&all[1], &all, 8).eviction == Eviction::Now,
                expected,
                "{since}"
            );
        }
    }

    #[test]
    fn partitions_of_the_owner_count_once() {
        let mut all = [
            one("a", 0, "pod1", 9),
            one("a", 1, "pod2", 9),
            one("b", 0, "pod2", 9),
        ];
        assert_eq!(seen(&all[0], &all, 8).held, 2);
        let held = all[1].status.take().unwrap();
        assert_eq!(seen(&all[0], &all, 8).held, 1);
        let released = json!({"attempts": [
            {"controller": held.controller, "id": "p-a-1", "outcome": "created"},
        ]});
        all[1].status = Some(serde_json::from_value(released).unwrap());
        assert_eq!(seen(&all[0], &all, 8).held, 1);
        assert_eq!(seen(&all[1].clone(), &all, 8).held, 1);
    }
}
