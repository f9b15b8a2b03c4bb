//! Pure: all IPUPartitions as a watch last told of them. Each is packed, and what is asked of all of them
//! again and again stands beside.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Bound;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use kube::core::DeserializeGuard;
use kube::core::error_boundary::InvalidObject;
use kube::runtime::watcher::Event;

use super::capacity::{self, Allocation, Allocations};
use super::line::{self, Member, Waiter};
use super::reconcile::Guarded;
use super::state_unknown;
use super::surroundings::{asked_for, controller};
use crate::api::ipupartition::{IPUPartition, PartitionPhase};
use crate::packed::{Packed, Packing};
use crate::uid::Uid;

/// All IPUPartitions, by name.
#[derive(Default)]
pub struct Cache {
    /// Names that the list under way has told of so far.
    listing: Option<HashSet<Arc<str>>>,
    /// The nodes of the tree are half empty: what is large stands outside.
    objects: BTreeMap<Arc<str>, Box<Kept>>,
    /// What those of other releases hold, where they hold anything.
    others: HashMap<Arc<str>, Box<[Allocation]>>,
    /// Names of controllers and of owners' namespaces, each once.
    words: BTreeSet<Arc<str>>,
    allocations: Allocations,
    packing: Packing,
    changes: u64,
    given_back: u64,
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
    /// What it holds on any controllers, as far as is known.
    pub held: Box<[Allocation]>,
    /// Why a controller cannot be asked what it has of it, where one cannot.
    pub state_unknown: Option<&'static str>,
    /// Whether it is of use only with others of its owner.
    pub is_in_gang: bool,
    /// Whether a controller was asked for it, and has not been seen to answer.
    pub is_being_asked_for: bool,
    owner: Uid,
    created: Option<Timestamp>,
    is_deleted: bool,
}

impl Brief {
    /// IPUs that it holds on any controllers.
    pub fn held_ipus(&self) -> u64 {
        self.held.iter().map(|one| u64::from(one.ipus)).sum()
    }

    /// Whether the owner of this UID has it.
    pub fn is_of(&self, owner: Uid) -> bool {
        self.owner == owner
    }

    fn unreadable() -> Self {
        Self {
            phase: None,
            controller: None,
            namespace: None,
            held: Box::default(),
            state_unknown: None,
            is_in_gang: false,
            is_being_asked_for: false,
            owner: Uid::default(),
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
                let gone = self.objects.extract_if(.., |name, _| !named.contains(name));
                let gone = gone.map(|(name, gone)| (name, gone.brief.held));
                let others = self.others.extract_if(|name, _| !named.contains(name));
                for (name, held) in gone.chain(others).collect::<Vec<_>>() {
                    self.allocate(&name, &held, &[]);
                }
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
            Event::Delete(object) => {
                let name: Arc<str> = object.name_any().into();
                let held = self.held_by(&name);
                self.forget(&name);
                self.allocate(&name, &held, &[]);
            }
        }
        None
    }

    /// Takes in an object of another release: no more of it is kept than what it holds, which is given to
    /// nobody else all the same.
    pub fn hear_of_other(&mut self, partition: &IPUPartition) {
        let name: Arc<str> = partition.name_any().into();
        let before = self.held_by(&name);
        let held = capacity::allocations(partition, |name| self.word(name));
        self.forget(&name);
        if let Some(listing) = &mut self.listing {
            listing.insert(Arc::clone(&name));
        }
        if !held.is_empty() {
            self.others.insert(Arc::clone(&name), held.clone());
        }
        self.allocate(&name, &before, &held);
    }

    /// Grows with each change of any object.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Grows each time that an object holds something no longer which it held on a controller.
    pub fn given_back(&self) -> u64 {
        self.given_back
    }

    /// What all of them hold on the controllers, and those of other releases.
    pub fn allocations(&self) -> &Allocations {
        &self.allocations
    }

    /// The object of this name.
    pub fn get(&mut self, name: &str) -> Option<Guarded> {
        let kept = self.objects.get(name)?;
        Some(unpacked(&mut self.packing, name, &kept.whole))
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
        page.map(|(name, kept)| unpacked(&mut self.packing, name, &kept.whole))
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
        let wanted = self.objects.iter();
        let wanted = wanted.filter(|(_, kept)| is_wanted(&kept.brief));
        wanted
            .filter_map(|(name, kept)| unpacked(&mut self.packing, name, &kept.whole).0.ok())
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
            // What it held cannot be told any more, and is still held.
            Err(invalid) => Kept {
                brief: Brief {
                    held: self.held_by(&name),
                    ..Brief::unreadable()
                },
                waiter: None,
                whole: Whole::Unreadable(Box::new(invalid)),
            },
        };
        let held = kept.brief.held.clone();
        let before = self.held_by(&name);
        self.others.remove(&name);
        self.objects.insert(Arc::clone(&name), Box::new(kept));
        self.allocate(&name, &before, &held);
        name
    }

    fn held_by(&self, name: &str) -> Box<[Allocation]> {
        let mine = self.objects.get(name).map(|kept| &kept.brief.held);
        let held = mine.or_else(|| self.others.get(name));
        held.cloned().unwrap_or_default()
    }

    fn forget(&mut self, name: &str) {
        let was_there = self.objects.remove(name).is_some();
        self.changes += u64::from(was_there);
        self.others.remove(name);
    }

    fn allocate(&mut self, name: &Arc<str>, before: &[Allocation], now: &[Allocation]) {
        if before != now {
            self.allocations.replace(name, before, now);
            let is_given_back = before.iter().any(|one| !now.contains(one));
            self.given_back += u64::from(is_given_back);
        }
    }

    fn brief(&mut self, partition: &IPUPartition) -> Brief {
        let (spec, metadata) = (&partition.spec, &partition.metadata);
        let status = partition.status.as_ref();
        Brief {
            phase: Some(status.map_or(PartitionPhase::Pending, |status| status.phase)),
            controller: controller(partition).map(|name| self.word(name)),
            namespace: Some(self.word(&spec.owner.namespace)),
            held: capacity::allocations(partition, |name| self.word(name)),
            state_unknown: status.and_then(state_unknown::of),
            is_in_gang: spec.options.gang_size.is_some(),
            is_being_asked_for: asked_for(partition).next().is_some(),
            owner: Uid::of(&spec.owner.uid),
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

fn unpacked(packing: &mut Packing, name: &str, whole: &Whole) -> Guarded {
    DeserializeGuard(match whole {
        Whole::Readable(packed) => packing.unpack(packed).map_err(|error| InvalidObject {
            error: error.to_string(),
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                ..ObjectMeta::default()
            },
        }),
        Whole::Unreadable(invalid) => Err((**invalid).clone()),
    })
}

#[cfg(test)]
mod tests;
