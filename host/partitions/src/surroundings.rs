//! Pure: what the decisions on one IPUPartition need to know of the others and of its controller.

use ipu_api::ipupartition::{Attempt, AttemptOutcome, IPUPartition};
use ipu_api::partition_conditions;
use ipu_guest_host::model::ControllerView;
use jiff::{SignedDuration, Timestamp};
use vipu_client::cordon::{CordonState, CordonStates};

use super::queue;
use super::queue::QueueEntry;

/// How long an owner that was asked to leave a controller holds up the next one.
const PATIENCE: SignedDuration = SignedDuration::from_mins(5);

/// What surrounds one IPUPartition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Surroundings {
    /// How many partitions its owner has, or is getting; this one counts.
    pub held: u32,
    /// Since when the last of its owner's partitions that has no place has had none.
    pub lacking_since: Option<Timestamp>,
    /// Whether it is to leave its controller.
    pub leave: Leave,
}

/// Whether a partition is to leave its controller.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Leave {
    /// It may stay.
    #[default]
    No,
    /// It is to leave, and not yet, for this reason.
    Later(String),
    /// Now.
    Now,
}

/// What has to be read to tell what surrounds one IPUPartition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needed<'a> {
    /// Nothing: its controller stays, and it is of use by itself.
    Nothing,
    /// The partitions of its owner.
    Siblings,
    /// These, all that is on the controller of this name, which is being drained, and what is free elsewhere.
    Everything(&'a str),
}

/// What has to be read to tell what surrounds `me`.
pub fn needed<'a>(me: &'a IPUPartition, cordons: &CordonStates) -> Needed<'a> {
    match drained(me, cordons) {
        Some(name) => Needed::Everything(name),
        None if me.spec.options.gang_size.is_some() => Needed::Siblings,
        None => Needed::Nothing,
    }
}

/// What those who wait, in order, and those who are just asking for something leave of the open controllers.
/// `asking` are at least those IPUPartitions that are being asked for.
pub fn capacity_after_queue<'a>(
    entries: &[QueueEntry],
    asking: impl Iterator<Item = &'a IPUPartition>,
    open: Vec<ControllerView>,
) -> Vec<ControllerView> {
    queue::capacity_after_queue(entries, asking.flat_map(asked_for), open)
}

/// What surrounds `me`. Of all IPUPartitions, `others` are at least those of its owner, and those on its
/// controller where that is drained; `closed` are the controllers that take nothing new; `open` are the
/// others as they are now.
pub fn of<'a>(
    me: &IPUPartition,
    others: impl Iterator<Item = &'a IPUPartition> + Clone,
    cordons: &CordonStates,
    open: &[ControllerView],
    now: Timestamp,
) -> Surroundings {
    let lacking = siblings(me, others.clone()).filter(|one| !has_place(one));
    let since = |one: &IPUPartition| {
        one.status
            .as_ref()
            .and_then(partition_conditions::not_ready_since)
    };
    Surroundings {
        lacking_since: lacking.filter_map(since).max(),
        held: held(me, others.clone()),
        leave: leave(me, others, cordons, open, now),
    }
}

/// How many partitions the owner of `me` has, or is getting; `me` counts.
pub fn held<'a>(me: &IPUPartition, others: impl Iterator<Item = &'a IPUPartition>) -> u32 {
    let placed = siblings(me, others).filter(|one| has_place(one)).count();
    u32::try_from(placed + usize::from(has_place(me))).unwrap_or(u32::MAX)
}

/// Name of the controller that has this partition, where that is being drained.
fn drained<'a>(one: &'a IPUPartition, cordons: &CordonStates) -> Option<&'a str> {
    controller(one).filter(|name| is_draining(name, cordons))
}

/// Whether the controller of this name is being drained.
pub(super) fn is_draining(controller: &str, cordons: &CordonStates) -> bool {
    cordons.get(controller) == Some(&CordonState::Draining)
}

/// Where a partition is just being asked for, and how many IPUs.
pub fn asked_for(partition: &IPUPartition) -> impl Iterator<Item = (&str, u32)> {
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
fn siblings<'a>(
    me: &IPUPartition,
    others: impl Iterator<Item = &'a IPUPartition>,
) -> impl Iterator<Item = &'a IPUPartition> {
    others.filter(|one| one.spec.owner.uid == me.spec.owner.uid && one.spec.slot != me.spec.slot)
}

/// Whether it has a place, or is getting one. What is made and no longer used is on its way out: to count
/// it would let its siblings take room that is too small for all.
fn has_place(one: &IPUPartition) -> bool {
    let status = one.status.as_ref();
    let is_made = status.is_some_and(|status| status.partition_id.is_some());
    is_made || asked_for(one).next().is_some()
}

/// Owners leave a controller one after the other, oldest first, each once there is room for it
/// elsewhere. Those that must stay are left to end by themselves.
fn leave<'a>(
    me: &IPUPartition,
    others: impl Iterator<Item = &'a IPUPartition>,
    cordons: &CordonStates,
    open: &[ControllerView],
    now: Timestamp,
) -> Leave {
    let Some(name) = drained(me, cordons) else {
        return Leave::No;
    };
    if me.spec.options.pinned {
        let why = format!("{name} is being drained, and waits until this partition is released");
        return Leave::Later(why);
    }
    // Its Pods are on their way out already: to take that back would have ended them for nothing.
    if me
        .status
        .as_ref()
        .and_then(partition_conditions::draining_since)
        .is_some()
    {
        return Leave::Now;
    }
    let others: Vec<&IPUPartition> = others.collect();
    if !all_have_room(me, &others, name, open) {
        let why = format!(
            "{name} is being drained, and no other controller has free capacity for {} IPUs now, or \
             not for all partitions of its owner",
            me.spec.ipus
        );
        return Leave::Later(why);
    }
    let may_leave = |one: &&IPUPartition| {
        controller(one) == Some(name)
            && !one.spec.options.pinned
            && one.metadata.deletion_timestamp.is_none()
            && all_have_room(one, &others, name, open)
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
        Some(first) => Leave::Later(format!(
            "{name} is being drained; {}/{} leaves it first",
            first.spec.owner.namespace, first.spec.owner.name
        )),
        None => Leave::Now,
    }
}

/// Whether it was asked to leave long ago.
fn has_not_left(one: &IPUPartition, now: Timestamp) -> bool {
    let asked = one
        .status
        .as_ref()
        .and_then(partition_conditions::draining_since);
    asked.is_some_and(|asked| now.duration_since(asked) >= PATIENCE)
}

/// Whether all that the owner of `one` has on the controller of this name fits elsewhere: its Pods
/// end together.
fn all_have_room(
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
        .all(|one| queue::take(&mut open, one.spec.ipus, &one.spec.options.node_selector).is_some())
}

/// Name of the controller that has it.
pub(super) fn controller(one: &IPUPartition) -> Option<&str> {
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
    use serde_json::json;

    use super::*;
    use crate::status_update;

    const NOW: &str = "2026-01-01T12:00:00Z";

    /// A partition of 4 IPUs on a controller, made so many minutes ago.
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

    fn open(free: u32) -> Vec<ControllerView> {
        vec![ControllerView {
            name: "pod2".to_owned(),
            label_key: "ipunode".to_owned(),
            label_value: "pod2".to_owned(),
            has_nodes: true,
            unreachable: None,
            total_ipus: 16,
            used_ipus: 16 - free,
            largest_free: free,
            failures: 0,
        }]
    }

    fn seen(me: &IPUPartition, others: &[IPUPartition], free: u32) -> Surroundings {
        let cordons = CordonStates::from([("pod1".to_owned(), CordonState::Draining)]);
        of(
            me,
            others.iter(),
            &cordons,
            &open(free),
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
        assert_eq!(seen(&all[1], &all, 8).leave, Leave::Now);
        assert_eq!(seen(&all[2], &all, 8).leave, Leave::Now);
        let later = "pod1 is being drained; default/a leaves it first";
        assert_eq!(seen(&all[0], &all, 8).leave, Leave::Later(later.to_owned()));
        let elsewhere = one("a", 0, "pod2", 9);
        assert_eq!(seen(&elsewhere, &all, 8).leave, Leave::No);
    }

    #[test]
    fn none_leaves_without_room_and_those_that_stay_hold_up_nobody() {
        let mut all = [one("a", 0, "pod1", 9), one("b", 0, "pod1", 5)];
        let Leave::Later(why) = seen(&all[0], &all, 2).leave else {
            panic!("there is no room");
        };
        assert!(
            why.contains("no other controller has free capacity for 4 IPUs"),
            "{why}"
        );
        all[0].spec.options.pinned = true;
        assert!(matches!(seen(&all[0], &all, 8).leave, Leave::Later(_)));
        assert_eq!(seen(&all[1], &all, 8).leave, Leave::Now);
    }

    #[test]
    fn one_that_was_asked_long_ago_holds_up_nobody() {
        let fresh = [one("a", 0, "pod1", 60), one("b", 0, "pod1", 5)];
        for (since, expected) in [
            ("2026-01-01T11:58:00Z", false),
            ("2026-01-01T11:55:00Z", true),
        ] {
            let mut all = fresh.clone();
            let status = all[0].status.take().unwrap();
            let asked = status_update::draining_requested(
                &status,
                "now".to_owned(),
                since.parse().unwrap(),
            );
            all[0].status = Some(asked);
            assert_eq!(
                seen(&all[1], &all, 8).leave == Leave::Now,
                expected,
                "{since}"
            );
        }
    }

    #[test]
    fn what_the_owner_has_is_counted_once() {
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
