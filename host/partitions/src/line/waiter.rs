//! Pure: who waits for a V-IPU controller, in which order, and for what.

use std::collections::BTreeMap;
use std::time::Duration;

use ipu_api::ipupartition::IPUPartition;
use ipu_api::partition_conditions;
use jiff::Timestamp;

use ipu_guest_host::model::ControllerView;

/// How long the younger let an elder go first after room was made. One that was not asked by then is
/// held up by something else, and must not hold up others.
const PRECEDENCE: Duration = Duration::from_secs(15);

/// How long after it was asked last somebody counts as waiting for room, and for nothing else. It is
/// asked every ten seconds or so.
pub const ASKS: Duration = Duration::from_mins(1);

/// A place in the line: when something was asked for. Times have whole seconds, so that names settle
/// the rest.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// When the IPUPartition was created.
    pub created: Timestamp,
    /// Name of the IPUPartition.
    pub name: String,
}

/// A partition that waits for a controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiter {
    /// Name of its IPUPartition.
    pub name: String,
    /// UID of its IPUPartition.
    pub uid: String,
    /// UID of its owner.
    pub owner: String,
    /// `namespace/name` of its owner.
    pub owner_name: String,
    /// Its place in the line.
    pub place: Place,
    /// Since when it waits.
    pub since: Timestamp,
    /// IPUs that it wants.
    pub ipus: u32,
    /// How many partitions of its owner are of use only together.
    pub gang: u32,
    /// Whether it has had a partition before, or has asked for one.
    pub had_one: bool,
    /// How many of its gang are not asked for, where it had one: it gives back what is of no use without
    /// them, and takes nothing before they are asked for again.
    pub unasked: u32,
    /// Node labels that its owner's Pods ask for.
    pub node_selector: BTreeMap<String, String>,
    /// Whether it is about to be asked where it fits, since room was made: the younger let it go first.
    pub is_next: bool,
    /// Whether it was not asked for long, since something else than room holds it up: nothing is kept
    /// for it.
    pub is_held_up: bool,
}

/// What counts of a partition, whether it waits or not, for those that are of use only with it. Its owner
/// is known by `O`.
#[derive(Clone, Copy, Debug)]
pub struct Member<'a, O> {
    /// Whose it is.
    pub owner: O,
    /// When the IPUPartition was created, where that is known.
    pub created: Option<Timestamp>,
    /// Name of the IPUPartition.
    pub name: &'a str,
    /// Whether it is still wanted.
    pub is_asked_for: bool,
}

/// Those of all IPUPartitions that wait at `now`, in the order in which they are served.
pub fn line<'a>(
    partitions: impl Iterator<Item = &'a IPUPartition> + Clone,
    now: Timestamp,
) -> Vec<Waiter> {
    let owner = |one: &'a IPUPartition| one.spec.owner.uid.as_str();
    let in_gangs = |one: &&IPUPartition| one.spec.options.gang_size.is_some();
    let members = partitions.clone().filter(in_gangs);
    let members = members.map(|one| member(owner(one), one));
    let waiting = partitions.filter(|one| one.is_waiting());
    of(
        members,
        waiting.map(|one| (owner(one), waiter(one, now))),
        now,
    )
}

/// The same of `waiting`, where all `members` of gangs are known. Partitions that are of use only together
/// have one place, that of the first of them, whether it waits or not: else what comes between them would
/// be served before some of them and after the others, and each side would keep room from the other.
pub fn of<'a, O: Ord>(
    members: impl Iterator<Item = Member<'a, O>>,
    waiting: impl Iterator<Item = (O, Waiter)>,
    now: Timestamp,
) -> Vec<Waiter> {
    let mut gangs: BTreeMap<O, ((Timestamp, &str), u32)> = BTreeMap::new();
    for member in members {
        let place = (member.created.unwrap_or(now), member.name);
        let (first, asked) = gangs.entry(member.owner).or_insert((place, 0));
        *first = place.min(*first);
        *asked += u32::from(member.is_asked_for);
    }
    let waiting = waiting.map(|(owner, mut waiter)| {
        if let Some(((created, name), asked)) = gangs.get(&owner) {
            let (created, name) = (*created, (*name).to_owned());
            waiter.place = Place { created, name };
            if waiter.had_one {
                waiter.unasked = waiter.gang.saturating_sub(*asked);
            }
        }
        waiter
    });
    let mut line: Vec<Waiter> = waiting.collect();
    in_order(&mut line);
    line
}

/// What counts of this partition for those that are of use only with it.
pub fn member<O>(owner: O, partition: &IPUPartition) -> Member<'_, O> {
    let metadata = &partition.metadata;
    Member {
        owner,
        created: metadata.creation_timestamp.as_ref().map(|time| time.0),
        name: metadata.name.as_deref().unwrap_or_default(),
        is_asked_for: metadata.deletion_timestamp.is_none(),
    }
}

/// What counts of the partition that looks for a controller at `now`, as it stands in this line.
pub fn me(partition: &IPUPartition, line: &[Waiter], now: Timestamp) -> Waiter {
    let mut me = waiter(partition, now);
    let is_sibling = |other: &&Waiter| other.owner == me.owner && other.gang > 1 && me.gang > 1;
    if let Some(itself) = line.iter().find(|other| other.uid == me.uid) {
        me.place = itself.place.clone();
        me.unasked = itself.unasked;
    } else if let Some(sibling) = line.iter().find(is_sibling) {
        me.place = sibling.place.clone();
    }
    me
}

/// What counts of a partition by itself that looks for a controller at `now`: nothing is known of others.
pub fn waiter(partition: &IPUPartition, now: Timestamp) -> Waiter {
    let metadata = &partition.metadata;
    let spec = &partition.spec;
    let place = place(partition, now);
    let status = partition.status.as_ref();
    Waiter {
        name: metadata.name.clone().unwrap_or_default(),
        uid: metadata.uid.clone().unwrap_or_default(),
        owner: spec.owner.uid.clone(),
        owner_name: format!("{}/{}", spec.owner.namespace, spec.owner.name),
        since: status
            .and_then(partition_conditions::not_ready_since)
            .unwrap_or(place.created),
        place,
        ipus: spec.ipus,
        gang: spec.options.gang_size.unwrap_or(1),
        had_one: status.is_some_and(|status| status.generation > 0),
        unasked: 0,
        node_selector: spec.options.node_selector.clone(),
        is_next: false,
        is_held_up: false,
    }
}

/// Puts those who wait into the order in which they are served.
pub fn in_order(waiters: &mut [Waiter]) {
    waiters.sort_by(|one, other| (&one.place, &one.name).cmp(&(&other.place, &other.name)));
}

impl Waiter {
    /// Settles whether it goes first and whether it is held up, where it was asked `asked` ago, if
    /// ever, and room was made `room_made` ago.
    pub fn stand(&mut self, asked: Option<Duration>, room_made: Duration) {
        let was_asked = asked.is_some_and(|asked| asked < room_made);
        self.is_next = !was_asked && room_made < PRECEDENCE;
        self.is_held_up = !self.is_next && asked.is_none_or(|asked| asked >= ASKS);
    }

    /// Whether room is all that it waits for.
    pub fn takes_room(&self) -> bool {
        !self.is_held_up && self.unasked == 0
    }

    /// Whether it could ever be made there.
    pub(super) fn suits(&self, view: &ControllerView) -> bool {
        suits(view, self.ipus, &self.node_selector)
    }

    /// Whether its owner's Pods may go to the nodes there.
    pub(super) fn reaches(&self, view: &ControllerView) -> bool {
        reaches(view, &self.node_selector)
    }
}

fn place(partition: &IPUPartition, now: Timestamp) -> Place {
    let metadata = &partition.metadata;
    let created = metadata.creation_timestamp.as_ref();
    Place {
        created: created.map_or(now, |time| time.0),
        name: metadata.name.clone().unwrap_or_default(),
    }
}

pub(super) fn suits(
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
    let asked = node_selector.get(&view.label_key);
    asked.is_none_or(|value| *value == view.label_value)
}
