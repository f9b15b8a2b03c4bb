//! Pure: all IPUPartitions as a watch last told of them. Each is packed, and what is asked of all of them
//! again and again stands beside.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::Bound;
use std::sync::Arc;

use jiff::Timestamp;
use kube::ResourceExt;
use kube::core::DeserializeGuard;
use kube::core::error_boundary::InvalidObject;
use kube::runtime::watcher::Event;

use super::line::{self, Member, Waiter};
use super::reconcile::Guarded;
use super::surroundings::{asked_for, controller};
use crate::api::ipupartition::{IPUPartition, PartitionPhase};
use crate::names;
use crate::packed::{Packed, Packing};
use crate::uid::Uid;

/// All IPUPartitions, by name.
#[derive(Default)]
pub struct Cache {
    is_listed: bool,
    /// Names that the list under way has told of so far.
    listing: Option<HashSet<Arc<str>>>,
    objects: BTreeMap<Arc<str>, Kept>,
    /// Names of controllers, each once.
    controllers: BTreeSet<Arc<str>>,
    packing: Packing,
    changes: u64,
}

/// What an event has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing that is to be looked at yet: a list is under way.
    None,
    /// One object was made, changed or deleted.
    Of(Arc<str>),
    /// All were listed anew.
    All,
}

#[derive(Debug)]
struct Kept {
    brief: Brief,
    /// Where it waits: what counts of it in the line.
    waiter: Option<Box<Waiter>>,
    whole: Whole,
}

#[derive(Debug)]
enum Whole {
    Readable(Packed),
    Unreadable(Box<InvalidObject>),
}

/// What is asked of all IPUPartitions at once.
#[derive(Clone, Debug)]
pub struct Brief {
    /// Its phase; none: it cannot be read.
    pub phase: Option<PartitionPhase>,
    /// Name of the controller that has it.
    pub controller: Option<Arc<str>>,
    /// Whether it is of use only with others of its owner.
    pub is_in_gang: bool,
    /// Whether a controller was asked for it, and has not been seen to answer.
    pub is_being_asked_for: bool,
    owner: Option<Uid>,
    /// The id that Graphcore's operator would have given it.
    inherited: Option<Uid>,
    created: Option<Timestamp>,
    is_deleted: bool,
}

impl Brief {
    /// Whether the owner of this UID has it.
    pub fn is_of(&self, owner: Uid) -> bool {
        self.owner == Some(owner)
    }

    /// Whether Graphcore's operator would have called it so.
    pub fn would_inherit(&self, id: Uid) -> bool {
        self.inherited == Some(id)
    }

    fn unreadable() -> Self {
        Self {
            phase: None,
            controller: None,
            is_in_gang: false,
            is_being_asked_for: false,
            owner: None,
            inherited: None,
            created: None,
            is_deleted: false,
        }
    }
}

impl Cache {
    /// Takes in what a watch tells at `now`. Until the first list is complete, what it has told of is all
    /// that is known.
    pub fn hear(&mut self, event: Event<Guarded>, now: Timestamp) -> Change {
        match event {
            Event::Init => self.listing = Some(HashSet::new()),
            Event::InitApply(object) => {
                let name = self.keep(object, now);
                self.listing.get_or_insert_default().insert(name);
            }
            Event::InitDone => {
                let named = self.listing.take().unwrap_or_default();
                self.objects.retain(|name, _| named.contains(name));
                self.is_listed = true;
                self.changes += 1;
                return Change::All;
            }
            Event::Apply(object) => {
                let name = self.keep(object, now);
                if let Some(listing) = &mut self.listing {
                    listing.insert(name.clone());
                }
                return Change::Of(name);
            }
            Event::Delete(object) => {
                self.changes += 1;
                let name = object.name_any();
                let gone = self.objects.remove_entry(name.as_str());
                return Change::Of(gone.map_or_else(|| name.into(), |(name, _)| name));
            }
        }
        Change::None
    }

    /// Whether a list was complete.
    pub fn is_listed(&self) -> bool {
        self.is_listed
    }

    /// Grows with each change of any object.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// The object of this name.
    pub fn get(&mut self, name: &str) -> Option<Guarded> {
        let kept = self.objects.get(name)?;
        Some(unpacked(&mut self.packing, &kept.whole))
    }

    /// The first `count` objects whose names come after this one, by name.
    pub fn page(&mut self, after: Option<&str>, count: usize) -> Vec<Guarded> {
        let after = after.map_or(Bound::Unbounded, Bound::Excluded);
        let page = self.objects.range::<str, _>((after, Bound::Unbounded));
        let page = page.take(count);
        page.map(|(_, kept)| unpacked(&mut self.packing, &kept.whole))
            .collect()
    }

    /// All names, in order.
    pub fn names(&self) -> Vec<Arc<str>> {
        self.objects.keys().cloned().collect()
    }

    /// The names of those that are wanted, in order.
    pub fn names_of(&self, is_wanted: impl Fn(&Brief) -> bool) -> Vec<Arc<str>> {
        let wanted = self.objects.iter();
        let wanted = wanted.filter(|(_, kept)| is_wanted(&kept.brief));
        wanted.map(|(name, _)| name.clone()).collect()
    }

    /// Those that are wanted and can be read, by name.
    pub fn some(&mut self, is_wanted: impl Fn(&Brief) -> bool) -> Vec<IPUPartition> {
        let wanted = self.objects.values();
        let wanted = wanted.filter(|kept| is_wanted(&kept.brief));
        wanted
            .filter_map(|kept| unpacked(&mut self.packing, &kept.whole).0.ok())
            .collect()
    }

    /// What is asked of all at once, and since when each waits that does.
    pub fn briefs(&self) -> impl Iterator<Item = (&Brief, Option<Timestamp>)> {
        let since = |kept: &Kept| kept.waiter.as_ref().map(|waiter| waiter.since);
        self.objects
            .values()
            .map(move |kept| (&kept.brief, since(kept)))
    }

    /// Those who wait at `now`, in the order in which they are served.
    pub fn line(&self, now: Timestamp) -> Vec<Waiter> {
        let in_gangs = self.objects.iter();
        let in_gangs = in_gangs.filter(|(_, kept)| kept.brief.is_in_gang);
        let members = in_gangs.map(|(name, kept)| Member {
            owner: kept.brief.owner,
            created: kept.brief.created,
            name,
            is_asked_for: !kept.brief.is_deleted,
        });
        let waiting = self.objects.values().filter_map(|kept| {
            let waiter = kept.waiter.as_deref()?.clone();
            Some((kept.brief.owner, waiter))
        });
        line::of(members, waiting, now)
    }

    fn keep(&mut self, object: Guarded, now: Timestamp) -> Arc<str> {
        self.changes += 1;
        let name = object.name_any();
        let known = self.objects.get_key_value(name.as_str());
        let name = known.map_or_else(|| name.into(), |(name, _)| Arc::clone(name));
        let kept = match object.0 {
            Ok(partition) => Kept {
                brief: self.brief(&partition),
                waiter: line::waits(&partition).then(|| Box::new(line::waiter(&partition, now))),
                whole: Whole::Readable(self.packing.pack(&partition)),
            },
            Err(invalid) => Kept {
                brief: Brief::unreadable(),
                waiter: None,
                whole: Whole::Unreadable(Box::new(invalid)),
            },
        };
        self.objects.insert(Arc::clone(&name), kept);
        name
    }

    fn brief(&mut self, partition: &IPUPartition) -> Brief {
        let (spec, metadata) = (&partition.spec, &partition.metadata);
        let status = partition.status.as_ref();
        let inherited = names::inherited_partition(&spec.owner, spec.slot);
        Brief {
            phase: Some(status.map_or(PartitionPhase::Pending, |status| status.phase)),
            controller: controller(partition).map(|name| self.controller(name)),
            is_in_gang: spec.options.gang_size.is_some(),
            is_being_asked_for: asked_for(partition).next().is_some(),
            owner: Some(Uid::of(&spec.owner.uid)),
            inherited: Some(Uid::of(&inherited)),
            created: metadata.creation_timestamp.as_ref().map(|time| time.0),
            is_deleted: metadata.deletion_timestamp.is_some(),
        }
    }

    fn controller(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.controllers.get(name) {
            return Arc::clone(known);
        }
        // Those that left the list long ago are no longer named by anybody.
        self.controllers.retain(|one| Arc::strong_count(one) > 1);
        let name: Arc<str> = name.into();
        self.controllers.insert(Arc::clone(&name));
        name
    }
}

fn unpacked(packing: &mut Packing, whole: &Whole) -> Guarded {
    DeserializeGuard(match whole {
        Whole::Readable(packed) => Ok(packing.unpack(packed)),
        Whole::Unreadable(invalid) => Err((**invalid).clone()),
    })
}

#[cfg(test)]
mod tests;
