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
use super::surroundings::{asked_for, controller, held_ipus};
use crate::api::ipupartition::{IPUPartition, PartitionPhase};
use crate::names;
use crate::packed::{Packed, Packing};
use crate::uid::Uid;

/// All IPUPartitions, by name.
#[derive(Default)]
pub struct Cache {
    /// Names that the list under way has told of so far.
    listing: Option<HashSet<Arc<str>>>,
    /// The nodes of the tree are half empty: what is large stands outside.
    objects: BTreeMap<Arc<str>, Box<Kept>>,
    /// Names of controllers and of owners' namespaces, each once.
    words: BTreeSet<Arc<str>>,
    packing: Packing,
    changes: u64,
}

/// What is to be looked at after an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// One object was made or changed.
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
    /// Namespace of its owner.
    pub namespace: Option<Arc<str>>,
    /// IPUs that it holds on any controllers, as far as is known.
    pub held_ipus: u64,
    /// Whether it is of use only with others of its owner.
    pub is_in_gang: bool,
    /// Whether a controller was asked for it, and has not been seen to answer.
    pub is_being_asked_for: bool,
    owner: Uid,
    /// The id that Graphcore's operator would have given it.
    inherited: Uid,
    created: Option<Timestamp>,
    is_deleted: bool,
}

impl Brief {
    /// Whether the owner of this UID has it.
    pub fn is_of(&self, owner: Uid) -> bool {
        self.owner == owner
    }

    /// Whether Graphcore's operator would have called it so.
    pub fn would_inherit(&self, id: Uid) -> bool {
        self.inherited == id
    }

    fn unreadable() -> Self {
        Self {
            phase: None,
            controller: None,
            namespace: None,
            held_ipus: 0,
            is_in_gang: false,
            is_being_asked_for: false,
            owner: Uid::default(),
            inherited: Uid::default(),
            created: None,
            is_deleted: false,
        }
    }
}

impl Cache {
    /// Takes in what a watch tells at `now`. Until the first list is complete, what it has told of is all
    /// that is known, and nothing is to be looked at.
    pub fn hear(&mut self, event: Event<Guarded>, now: Timestamp) -> Option<Change> {
        match event {
            Event::Init => self.listing = Some(HashSet::new()),
            Event::InitApply(object) => {
                let name = self.keep(object, now);
                self.listing.get_or_insert_default().insert(name);
            }
            Event::InitDone => {
                let named = self.listing.take().unwrap_or_default();
                self.objects.retain(|name, _| named.contains(name));
                self.changes += 1;
                return Some(Change::All);
            }
            Event::Apply(object) => {
                let name = self.keep(object, now);
                if let Some(listing) = &mut self.listing {
                    listing.insert(name.clone());
                }
                return Some(Change::Of(name));
            }
            // Objects of other releases are told of in this way as well: they were never there.
            Event::Delete(object) => {
                let gone = self.objects.remove(object.name_any().as_str());
                self.changes += u64::from(gone.is_some());
            }
        }
        None
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

    /// The first `count` objects that are wanted and whose names come after this one, by name.
    pub fn page(
        &mut self,
        after: Option<&str>,
        count: usize,
        is_wanted: impl Fn(&Brief) -> bool,
    ) -> Vec<Guarded> {
        let after = after.map_or(Bound::Unbounded, Bound::Excluded);
        let page = self.objects.range::<str, _>((after, Bound::Unbounded));
        let page = page.filter(|(_, kept)| is_wanted(&kept.brief)).take(count);
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
        self.objects.values().map(|kept| {
            let waiter = kept.waiter.as_ref();
            (&kept.brief, waiter.map(|waiter| waiter.since))
        })
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
        self.objects.insert(Arc::clone(&name), Box::new(kept));
        name
    }

    fn brief(&mut self, partition: &IPUPartition) -> Brief {
        let (spec, metadata) = (&partition.spec, &partition.metadata);
        let status = partition.status.as_ref();
        let inherited = names::inherited_partition(&spec.owner, spec.slot);
        Brief {
            phase: Some(status.map_or(PartitionPhase::Pending, |status| status.phase)),
            controller: controller(partition).map(|name| self.word(name)),
            namespace: Some(self.word(&spec.owner.namespace)),
            held_ipus: held_ipus(partition),
            is_in_gang: spec.options.gang_size.is_some(),
            is_being_asked_for: asked_for(partition).next().is_some(),
            owner: Uid::of(&spec.owner.uid),
            inherited: Uid::of(&inherited),
            created: metadata.creation_timestamp.as_ref().map(|time| time.0),
            is_deleted: metadata.deletion_timestamp.is_some(),
        }
    }

    fn word(&mut self, word: &str) -> Arc<str> {
        if let Some(known) = self.words.get(word) {
            return Arc::clone(known);
        }
        // Those that nobody names any more: controllers leave the list, and namespaces go.
        self.words.retain(|one| Arc::strong_count(one) > 1);
        let word: Arc<str> = word.into();
        self.words.insert(Arc::clone(&word));
        word
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
