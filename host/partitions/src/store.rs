//! Pure: the cache of all IPUPartitions, each beside the fields that decisions read from all of
//! them.

mod other_releases;
pub(crate) mod queue_snapshot;
pub mod watch;

use std::ops::Bound;
use std::sync::Arc;

use ipu_api::interned::Interned;
use ipu_api::ipupartition::{IPUPartition, PartitionPhase};
use ipu_api::uid::Uid;
use ipu_api::{naming, partition_conditions};
use ipu_ledger::state_unknown;
use ipu_placement::allocations::{self, Allocation, Allocations};
use ipu_placement::drain::{Sibling, controller};
use ipu_placement::queue::{self, Member, QueueEntry};
use ipu_runtime::watch_store::{self, Store};
use jiff::Timestamp;
use kube::ResourceExt;
use kube::core::DeserializeGuard;
use kube::core::error_boundary::InvalidObject;
use kube::runtime::watcher::Event;

use self::other_releases::Other;

/// An object as the watch delivers it. An unreadable one does not stop the others.
pub type Guarded = DeserializeGuard<IPUPartition>;

/// All IPUPartitions, by name.
#[derive(Default)]
pub struct Cache {
    store: Store<Arc<str>, Known>,
    /// Names of controllers and of owners' namespaces, each once.
    words: Interned<str>,
    allocations: Allocations,
    changes: u64,
    released: u64,
}

/// The objects that an event concerns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// One object was created or changed.
    Of(Arc<str>),
    /// All objects were listed again.
    All,
}

#[derive(Debug)]
enum Known {
    /// In a box, because the nodes of the tree are half empty.
    Mine(Box<CachedPartition>),
    OfOther(Box<Other>),
}

#[derive(Debug)]
struct CachedPartition {
    brief: Brief,
    /// Its entry in the queue, if it waits.
    queue_entry: Option<Box<QueueEntry>>,
    object: Result<Arc<IPUPartition>, Box<InvalidObject>>,
}

/// The fields that decisions read from all IPUPartitions.
#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
pub struct Brief {
    /// Its UID.
    pub uid: Uid,
    /// Its phase. `None`: it is unreadable.
    pub phase: Option<PartitionPhase>,
    /// Name of its controller.
    pub controller: Option<Arc<str>>,
    /// Namespace of its owner.
    pub namespace: Option<Arc<str>>,
    /// Its allocations, as far as they are known.
    pub held: Box<[Allocation]>,
    /// The reason why its state on a controller is unknown.
    pub state_unknown: Option<&'static str>,
    /// Whether it belongs to a gang.
    pub is_in_gang: bool,
    /// Fields that the other partitions of its owner read.
    pub sibling: Sibling,
    /// The partitions of its attempts with an unknown outcome.
    pub requested: Box<[Allocation]>,
    /// The id of the partition that it uses.
    pub current: Option<Uid>,
    /// Whether Graphcore's operator created that partition.
    pub is_adopted: bool,
    /// Since when that partition is ready, if it is.
    pub ready_since: Option<Timestamp>,
    /// Whether its controller is at work on that partition.
    pub is_busy: bool,
    owner: Uid,
    created: Option<Timestamp>,
    is_deleted: bool,
}

impl Brief {
    /// IPUs that it holds on all controllers.
    pub fn held_ipus(&self) -> u64 {
        self.held.iter().map(|one| u64::from(one.ipus)).sum()
    }

    /// Whether the owner with this UID has it.
    pub fn is_of(&self, owner: Uid) -> bool {
        self.owner == owner
    }

    /// Whether it is being deleted.
    pub fn is_deleted(&self) -> bool {
        self.is_deleted
    }
}

impl Cache {
    /// Applies an event of the watch at `now`. Events before the end of the first list concern no
    /// object.
    pub fn apply_event(&mut self, event: Event<Guarded>, now: Timestamp) -> Option<Change> {
        let is_complete = matches!(event, Event::InitDone);
        let is_change = matches!(event, Event::Apply(_));
        let Self { store, words, .. } = self;
        let name = |object: &Guarded| Some(object.name_any().into());
        let changes = store.apply_event(event, name, |name, object, known| {
            let cached = cached(object, known.get(name), words, now);
            Some(Known::Mine(Box::new(cached)))
        });
        self.changes += u64::from(is_complete);
        let name = changes.first().map(|change| Arc::clone(&change.key));
        for change in changes {
            self.account(change);
        }
        match name {
            _ if is_complete => Some(Change::All),
            Some(name) if is_change => Some(Change::Of(name)),
            _ => None,
        }
    }

    /// Increases with each change of an object.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Increases with each release of an allocation.
    pub fn released(&self) -> u64 {
        self.released
    }

    /// The allocations of all objects, with those of other releases.
    pub fn allocations(&self) -> &Allocations {
        &self.allocations
    }

    /// Whether the object with this name is there, and has this UID.
    pub fn contains(&self, name: &str, uid: Uid) -> bool {
        let cached = self.store.objects().get(name).and_then(Known::mine);
        cached.is_some_and(|one| one.brief.uid == uid)
    }

    /// The object with this name.
    pub fn get(&self, name: &str) -> Option<Guarded> {
        Some(self.store.objects().get(name)?.mine()?.guarded())
    }

    /// The object with this name, if it can be read.
    pub fn readable(&self, name: &str) -> Option<Arc<IPUPartition>> {
        self.store.objects().get(name)?.mine()?.readable().cloned()
    }

    /// The first `count` desired objects after this name, by name. `None`: it cannot be read.
    pub fn page(
        &self,
        after: Option<&str>,
        count: usize,
        is_wanted: impl Fn(&Brief) -> bool,
    ) -> Vec<(Arc<str>, Option<Arc<IPUPartition>>)> {
        let after = after.map_or(Bound::Unbounded, Bound::Excluded);
        let page = mine(
            self.store
                .objects()
                .range::<str, _>((after, Bound::Unbounded)),
        );
        let page = page.filter(|(_, one)| is_wanted(&one.brief)).take(count);
        page.map(|(name, cached)| (Arc::clone(name), cached.readable().cloned()))
            .collect()
    }

    /// All names, in order.
    pub fn names(&self) -> Vec<Arc<str>> {
        self.names_of(|_| true)
    }

    /// The names of those that are wanted, in order.
    pub fn names_of(&self, is_wanted: impl Fn(&Brief) -> bool) -> Vec<Arc<str>> {
        let wanted = mine(self.store.objects().iter());
        let wanted = wanted.filter(|(_, one)| is_wanted(&one.brief));
        wanted.map(|(name, _)| name.clone()).collect()
    }

    /// Those that are wanted and can be read, by name.
    pub fn some(&self, is_wanted: impl Fn(&Brief) -> bool) -> Vec<Arc<IPUPartition>> {
        mine(self.store.objects().iter())
            .filter(|(_, cached)| is_wanted(&cached.brief))
            .filter_map(|(_, cached)| cached.readable().cloned())
            .collect()
    }

    /// The fields of all objects, each with the time since when it waits.
    pub fn briefs(&self) -> impl Iterator<Item = (&Brief, Option<Timestamp>)> {
        mine(self.store.objects().iter()).map(|(_, one)| {
            let queue_entry = one.queue_entry.as_ref();
            (&one.brief, queue_entry.map(|queue_entry| queue_entry.since))
        })
    }

    /// The allocations of all objects, without those of other releases: each with its controller,
    /// and its IPUs.
    pub fn held(&self) -> impl Iterator<Item = (&str, u32)> {
        let all = self.briefs().flat_map(|(brief, _)| &brief.held);
        all.map(|one| (&*one.controller, one.ipus))
    }

    /// IPUs of the smallest request that waits.
    pub fn smallest_waiting(&self) -> Option<u32> {
        let waiting = mine(self.store.objects().iter());
        let waiting = waiting.filter_map(|(_, one)| one.queue_entry.as_ref());
        waiting.map(|queue_entry| queue_entry.ipus).min()
    }

    /// The queue at `now`, in the order in which requests are served.
    pub fn queue(&self, now: Timestamp) -> Vec<QueueEntry> {
        let in_gangs = mine(self.store.objects().iter());
        let in_gangs = in_gangs.filter(|(_, one)| one.brief.is_in_gang);
        let members = in_gangs.map(|(name, one)| Member {
            owner: one.brief.owner,
            created: one.brief.created,
            name,
            is_requested: !one.brief.is_deleted,
        });
        let waiting = mine(self.store.objects().iter()).filter_map(|(_, one)| {
            let queue_entry = one.queue_entry.as_deref()?.clone();
            Some((one.brief.owner, queue_entry))
        });
        queue::sorted_entries(members, waiting, now)
    }

    fn account(&mut self, change: watch_store::Change<Arc<str>, Known>) {
        let watch_store::Change { key: name, before } = change;
        let known = [before.as_ref(), self.store.objects().get(&name)];
        let is_mine = known.iter().flatten().any(|known| known.mine().is_some());
        self.changes += u64::from(is_mine);
        let [before, now] = known.map(|known| known.map(Known::held).unwrap_or_default());
        if before != now {
            self.allocations.replace(&name, before, now);
            let is_released = before.iter().any(|one| !now.contains(one));
            self.released += u64::from(is_released);
        }
    }
}

impl CachedPartition {
    fn readable(&self) -> Option<&Arc<IPUPartition>> {
        self.object.as_ref().ok()
    }

    fn guarded(&self) -> Guarded {
        DeserializeGuard(match &self.object {
            Ok(partition) => Ok(IPUPartition::clone(partition)),
            Err(invalid) => Err(InvalidObject::clone(invalid)),
        })
    }
}

impl Known {
    fn mine(&self) -> Option<&CachedPartition> {
        match self {
            Self::Mine(one) => Some(one),
            Self::OfOther(_) => None,
        }
    }

    fn uid(&self) -> Uid {
        match self {
            Self::Mine(one) => one.brief.uid,
            Self::OfOther(other) => other.uid,
        }
    }

    fn held(&self) -> &[Allocation] {
        match self {
            Self::Mine(one) => &one.brief.held,
            Self::OfOther(other) => &other.held,
        }
    }
}

fn mine<'a>(
    objects: impl Iterator<Item = (&'a Arc<str>, &'a Known)>,
) -> impl Iterator<Item = (&'a Arc<str>, &'a CachedPartition)> {
    objects.filter_map(|(name, known)| Some((name, known.mine()?)))
}

/// The entry of an object. `known` had its name before.
fn cached(
    object: Guarded,
    known: Option<&Known>,
    words: &mut Interned<str>,
    now: Timestamp,
) -> CachedPartition {
    match object.0 {
        Ok(partition) => CachedPartition {
            brief: brief(&partition, words),
            queue_entry: partition
                .is_waiting()
                .then(|| Box::new(queue::entry(&partition, now))),
            object: Ok(Arc::new(partition)),
        },
        Err(invalid) => {
            let uid = Uid::of(invalid.metadata.uid.as_deref().unwrap_or_default());
            // Its allocations cannot be read any more, and are still held: not those of another
            // object of its name.
            let known = known.filter(|known| known.uid() == uid);
            let held = known.map(Known::held).unwrap_or_default();
            CachedPartition {
                brief: Brief {
                    uid,
                    held: held.into(),
                    ..Brief::default()
                },
                queue_entry: None,
                object: Err(Box::new(invalid)),
            }
        }
    }
}

fn brief(partition: &IPUPartition, words: &mut Interned<str>) -> Brief {
    let (spec, metadata) = (&partition.spec, &partition.metadata);
    let status = partition.status.as_ref();
    let current = status.and_then(|status| status.partition_id.as_deref());
    Brief {
        uid: Uid::of(metadata.uid.as_deref().unwrap_or_default()),
        phase: Some(status.map_or(PartitionPhase::Pending, |status| status.phase)),
        controller: controller(partition).map(|name| word(words, name)),
        namespace: Some(word(words, &spec.owner.namespace)),
        held: allocations::allocations(partition, |name| word(words, name)),
        state_unknown: status.and_then(state_unknown::of),
        is_in_gang: spec.options.gang_size.is_some(),
        sibling: Sibling::of(partition),
        requested: allocations::requested(partition, |name| word(words, name)),
        current: current.map(Uid::of),
        is_adopted: current
            .is_some_and(|id| id == naming::adoptable_partition(&spec.owner, spec.slot)),
        ready_since: status.and_then(partition_conditions::ready_since),
        is_busy: status.and_then(partition_conditions::busy_since).is_some(),
        owner: Uid::of(&spec.owner.uid),
        created: metadata.creation_timestamp.as_ref().map(|time| time.0),
        is_deleted: metadata.deletion_timestamp.is_some(),
    }
}

fn word(words: &mut Interned<str>, word: &str) -> Arc<str> {
    let known = words.known(word);
    known.unwrap_or_else(|| words.insert(word.into()))
}

#[cfg(test)]
mod tests;
