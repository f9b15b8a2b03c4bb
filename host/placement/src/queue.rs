//! Pure: the entries of the queue, and their order.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

use ipu_api::guest::placement::{ControllerView, SizeCount};
use ipu_api::ipupartition::{AttemptOutcome, IPUPartition, IPUPartitionStatus};
use ipu_api::partition_conditions;
use ipu_api::uid::Uid;
use jiff::{SignedDuration, Timestamp};

use crate::hashed::Hashed;
use crate::node_match::Requirements;
use crate::refusals;
use crate::unsuited::Unsuited;

/// Time for which a request is new. One that has not asked for a controller by then waits for
/// something else, and must not delay others.
const NEW_FOR: SignedDuration = SignedDuration::from_secs(15);

/// A position in the queue. Creation times have whole seconds, so names order requests of the same
/// second.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct QueuePosition {
    /// Creation time of the IPUPartition.
    pub created: Timestamp,
    /// Name of the IPUPartition.
    pub name: Arc<str>,
}

/// A request that waits for a controller, as one reader of the queue sees it. A copy costs little:
/// each pass and each query reads all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueEntry {
    /// The facts that its object shows.
    pub(crate) request: Arc<QueuedRequest>,
    /// Its position in the queue.
    pub position: QueuePosition,
    /// Number of members of its gang that are not requested, if it was placed before: it releases
    /// its partition without them, and takes no capacity until they are requested again.
    pub missing_members: u32,
    /// Controllers without a node that can run its owner's Pods now, while others have one.
    pub unsuited: Unsuited,
    /// Whether its decision is imminent. Capacity is held for it.
    pub is_expected: bool,
    /// Whether it waits for something other than capacity: nothing is reserved for it.
    pub is_stalled: bool,
    /// Whether a controller has refused it lately, although enough of its IPUs seemed to be free.
    pub is_refused: bool,
}

/// The facts about a request that its IPUPartition shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuedRequest {
    /// Name of its IPUPartition.
    pub name: Arc<str>,
    /// UID of its IPUPartition.
    pub uid: Uid,
    /// UID of its owner.
    pub owner: Uid,
    /// `namespace/name` of its owner.
    pub owner_name: String,
    /// Start of its wait.
    pub since: Timestamp,
    /// Requested IPUs.
    pub ipus: u32,
    /// Size of its gang; 1 without a gang.
    pub gang: u32,
    /// Whether it has had a partition before, or has requested one.
    pub was_placed: bool,
    /// What its owner's Pods require of a node.
    pub requirements: Hashed<Requirements>,
    /// Whether a refusal of its size holds for it too.
    pub has_usual_options: bool,
}

impl Deref for QueueEntry {
    type Target = QueuedRequest;

    fn deref(&self) -> &QueuedRequest {
        &self.request
    }
}

impl QueueEntry {
    /// The entry of a request that was created at this time.
    pub fn new(request: QueuedRequest, created: Timestamp) -> Self {
        Self {
            position: QueuePosition {
                created,
                name: Arc::clone(&request.name),
            },
            request: Arc::new(request),
            missing_members: 0,
            unsuited: Unsuited::default(),
            is_expected: false,
            is_stalled: false,
            is_refused: false,
        }
    }

    /// The same, of a request with other facts.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut QueuedRequest)) -> Self {
        change(Arc::make_mut(&mut self.request));
        self
    }
}

/// A partition of a gang, waiting or not. `O` identifies its owner.
#[derive(Clone, Copy, Debug)]
pub struct Member<'a, O> {
    /// Its owner.
    pub owner: O,
    /// Creation time of the IPUPartition, if known.
    pub created: Option<Timestamp>,
    /// Name of the IPUPartition.
    pub name: &'a str,
    /// Whether it is still requested.
    pub is_requested: bool,
}

/// The waiting requests of all IPUPartitions at `now`, in the order in which they are served.
pub fn entries<'a>(
    partitions: impl Iterator<Item = &'a IPUPartition> + Clone,
    now: Timestamp,
) -> Vec<QueueEntry> {
    let owner = |one: &'a IPUPartition| one.spec.owner.uid.as_str();
    let in_gangs = |one: &&IPUPartition| one.spec.options.gang_size.is_some();
    let members = partitions.clone().filter(in_gangs);
    let members = members.map(|one| member(owner(one), one));
    let waiting = partitions.filter(|one| one.is_waiting());
    sorted_entries(
        members,
        waiting.map(|one| (owner(one), entry(one, now))),
        now,
    )
}

/// The same from the `waiting` requests and the `members` of all gangs. A gang has one position,
/// that of its first member, waiting or not. Otherwise a request between two members would be
/// served before one and after the other, and each side would reserve capacity from the other.
pub fn sorted_entries<'a, O: Ord>(
    members: impl Iterator<Item = Member<'a, O>>,
    waiting: impl Iterator<Item = (O, QueueEntry)>,
    now: Timestamp,
) -> Vec<QueueEntry> {
    let gangs = gangs(members, now);
    let waiting = waiting.map(|(owner, mut entry)| {
        if let Some(gang) = gangs.get(&owner) {
            let (created, name) = gang.first;
            entry.position = QueuePosition {
                created,
                name: name.into(),
            };
            if entry.was_placed {
                entry.missing_members = entry.gang.saturating_sub(gang.requested);
            }
        }
        entry
    });
    let mut entries: Vec<QueueEntry> = waiting.collect();
    in_order(&mut entries);
    entries
}

/// The names of the `waiting` requests in the order in which they are served. `members` are the
/// partitions of all gangs.
pub fn order<'a, O: Ord>(
    members: impl Iterator<Item = Member<'a, O>>,
    waiting: impl Iterator<Item = Member<'a, O>>,
    now: Timestamp,
) -> Vec<&'a str> {
    let gangs = gangs(members, now);
    let mut waiting: Vec<_> = waiting
        .map(|one| {
            let own = (one.created.unwrap_or(now), one.name);
            let gang = gangs.get(&one.owner);
            (gang.map_or(own, |gang| gang.first), one.name)
        })
        .collect();
    waiting.sort_unstable();
    waiting.into_iter().map(|(_, name)| name).collect()
}

/// A gang, from all of its partitions.
struct GangMembers<'a> {
    /// Creation time and name of the first one.
    first: (Timestamp, &'a str),
    /// The number of those that are still requested.
    requested: u32,
}

fn gangs<'a, O: Ord>(
    members: impl Iterator<Item = Member<'a, O>>,
    now: Timestamp,
) -> BTreeMap<O, GangMembers<'a>> {
    let mut gangs: BTreeMap<O, GangMembers<'_>> = BTreeMap::new();
    for member in members {
        let own = (member.created.unwrap_or(now), member.name);
        let gang = gangs.entry(member.owner).or_insert(GangMembers {
            first: own,
            requested: 0,
        });
        gang.first = own.min(gang.first);
        gang.requested += u32::from(member.is_requested);
    }
    gangs
}

/// This partition as a member of its gang.
pub fn member<O>(owner: O, partition: &IPUPartition) -> Member<'_, O> {
    let metadata = &partition.metadata;
    Member {
        owner,
        created: metadata.creation_timestamp.as_ref().map(|time| time.0),
        name: metadata.name.as_deref().unwrap_or_default(),
        is_requested: metadata.deletion_timestamp.is_none(),
    }
}

/// The entry of a partition that needs a controller at `now`, with its position in this queue.
pub fn own_entry(partition: &IPUPartition, entries: &[QueueEntry], now: Timestamp) -> QueueEntry {
    let mut me = entry(partition, now);
    let is_sibling = |other: &&QueueEntry| other.owner == me.owner && other.gang > 1 && me.gang > 1;
    if let Some(itself) = entries.iter().find(|other| other.uid == me.uid) {
        me.position = itself.position.clone();
        me.missing_members = itself.missing_members;
    } else if let Some(sibling) = entries.iter().find(is_sibling) {
        me.position = sibling.position.clone();
    }
    me
}

/// The entry of a partition that needs a controller at `now`, without regard to others.
pub fn entry(partition: &IPUPartition, now: Timestamp) -> QueueEntry {
    let metadata = &partition.metadata;
    let spec = &partition.spec;
    let created = metadata.creation_timestamp.as_ref();
    let created = created.map_or(now, |created| created.0);
    let status = partition.status.as_ref();
    let request = QueuedRequest {
        name: metadata.name.as_deref().unwrap_or_default().into(),
        uid: Uid::of(metadata.uid.as_deref().unwrap_or_default()),
        owner: Uid::of(&spec.owner.uid),
        owner_name: format!("{}/{}", spec.owner.namespace, spec.owner.name),
        since: status
            .and_then(partition_conditions::not_ready_since)
            .unwrap_or(created),
        ipus: spec.ipus,
        gang: spec.options.gang_size.unwrap_or(1),
        was_placed: status.is_some_and(|status| status.generation > 0),
        requirements: Requirements {
            node_selector: spec.options.node_selector.clone(),
            scheduling: spec.options.scheduling.clone(),
        }
        .into(),
        has_usual_options: refusals::are_options_usual(&spec.options),
    };
    QueueEntry {
        is_refused: status.is_some_and(was_refused),
        ..QueueEntry::new(request, created)
    }
}

fn was_refused(status: &IPUPartitionStatus) -> bool {
    let mut attempts = status.attempts.iter();
    attempts.any(|attempt| attempt.outcome == AttemptOutcome::Refused)
}

/// The sizes of requests, the largest first. A size that is no power of two is left out: no
/// controller serves it.
pub fn sizes<'a>(entries: impl Iterator<Item = &'a QueueEntry>) -> Vec<SizeCount> {
    let mut counts: BTreeMap<u32, u32> = BTreeMap::new();
    for entry in entries.filter(|entry| entry.ipus.is_power_of_two()) {
        *counts.entry(entry.ipus).or_default() += 1;
    }
    let largest_first = counts.into_iter().rev();
    largest_first
        .map(|(ipus, count)| SizeCount { ipus, count })
        .collect()
}

/// Sorts entries into the order in which they are served.
pub fn in_order(entries: &mut [QueueEntry]) {
    entries.sort_by(|one, other| (&one.position, &one.name).cmp(&(&other.position, &other.name)));
}

impl QueueEntry {
    /// Whether it has begun to wait a moment ago, so that its reconcile may not have asked for a
    /// controller yet.
    pub fn is_new(&self, now: Timestamp) -> bool {
        now.duration_since(self.since).abs() < NEW_FOR
    }

    /// Whether it waits only for capacity.
    pub fn waits_for_capacity(&self) -> bool {
        !self.is_stalled && self.missing_members == 0
    }

    /// Whether this controller could ever serve it, with the nodes as they are.
    pub(crate) fn suits(&self, view: &ControllerView) -> bool {
        suits(view, self.ipus, &self.requirements.node_selector)
            && !self.unsuited.contains_key(&view.name)
    }

    /// Whether its owner's Pods may run on the nodes of this controller.
    pub fn reaches(&self, view: &ControllerView) -> bool {
        reaches(view, &self.requirements.node_selector)
    }
}

pub(crate) fn suits(
    view: &ControllerView,
    ipus: u32,
    node_selector: &BTreeMap<String, String>,
) -> bool {
    reaches(view, node_selector)
        && view.unreachable.is_none()
        && view.has_nodes
        && view.total_ipus >= ipus
}

fn reaches(view: &ControllerView, node_selector: &BTreeMap<String, String>) -> bool {
    let required = node_selector.get(&view.label_key);
    required.is_none_or(|value| *value == view.label_value)
}
