//! Pure: what the watches have told of all jobs' objects, found by job, and whether that includes what
//! the controller itself has written since.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ipu_api::uid::Uid;
use ipu_runtime::packed::{Packed, Packing};
use ipu_runtime::watch_store::{Expectations, Store};
use kube::runtime::watcher::Event;

use super::kept::{self, JobRef, OfJob};

/// How long a write is waited for. A watch that is interrupted begins again within half a minute of the
/// API server's return, and then tells of everything; this is for what it never tells of.
const LATE: Duration = Duration::from_mins(2);

/// All objects of one kind that belong to jobs.
pub struct Index<K> {
    store: Store<Key, Kept>,
    expectations: Expectations,
    packing: Packing,
    unread: Option<(Arc<JobRef>, serde_json::Error)>,
    kind: PhantomData<fn() -> K>,
}

/// The UIDs of a job and of its object.
type Key = (Uid, Uid);

#[derive(Debug)]
struct Kept {
    /// All objects of a job share it.
    job: Arc<JobRef>,
    /// One that is no number is waited for by nobody.
    version: u64,
    packed: Packed,
}

impl<K> Default for Index<K> {
    fn default() -> Self {
        Self {
            store: Store::default(),
            expectations: Expectations::new(LATE),
            packing: Packing::default(),
            unread: None,
            kind: PhantomData,
        }
    }
}

impl<K: OfJob> Index<K> {
    /// Takes in what a watch tells. Answers the jobs that have to be looked at.
    pub fn hear(&mut self, event: Event<K>) -> Vec<Arc<JobRef>> {
        let Self {
            store,
            expectations,
            packing,
            ..
        } = self;
        let (is_end, is_complete) = (
            matches!(event, Event::Delete(_)),
            matches!(event, Event::InitDone),
        );
        let changes = store.hear(event, key, |&(job, uid), object, known| {
            let version = kept::version(object.meta());
            expectations.told(job, uid, version);
            let known = of_job(known, job).next();
            let job = known.map(|(_, other)| Arc::clone(&other.job));
            Some(Kept {
                job: job.or_else(|| object.job().map(Arc::new))?,
                version,
                packed: packing.pack(&object.cut()),
            })
        });
        for (job, uid) in changes.iter().map(|change| change.key) {
            if is_end {
                expectations.ended(job, uid);
            } else if is_complete {
                // It is gone, whatever was written to it.
                expectations.told(job, uid, u64::MAX);
            }
        }
        if is_complete {
            let is_there = |job, uid| store.objects().get(&(job, uid)).is_some();
            expectations.listed(store.lists(), is_there);
        }
        let jobs = changes.into_iter().filter_map(|change| {
            let before = change.before.map(|kept| kept.job);
            before.or_else(|| Some(Arc::clone(&store.objects().get(&change.key)?.job)))
        });
        jobs.collect()
    }

    /// Notes what was written, or found written: decisions wait until the watch tells of it.
    pub fn wrote(&mut self, object: &K, now: Instant) {
        if let Some(key) = key(object) {
            self.expect(key, kept::version(object.meta()), now);
        }
    }

    /// Notes that an object was removed at once.
    pub fn removed(&mut self, job: &str, uid: &str, now: Instant) {
        let key = (Uid::of(job), Uid::of(uid));
        if self.store.objects().get(&key).is_some() {
            self.expect(key, u64::MAX, now);
        }
    }

    /// The objects of a job, by its UID, in the order of their names. None where the watch is behind.
    pub fn of(&mut self, job: Uid, now: Instant) -> Option<Vec<K>> {
        if !self.store.is_listed() || self.expectations.left(job, now).is_some() {
            return None;
        }
        let unpacked = of_job(self.store.objects(), job).map(|(_, kept)| {
            let unpacked = self.packing.unpack(&kept.packed);
            unpacked.map_err(|error| (Arc::clone(&kept.job), error))
        });
        let unpacked = unpacked.collect::<Result<Vec<K>, _>>();
        let unpacked = unpacked.map_err(|unread| self.unread = Some(unread));
        let mut objects = unpacked.ok()?;
        // The order of their keys says nothing.
        objects.sort_by(|one, other| one.meta().name.cmp(&other.meta().name));
        Some(objects)
    }

    /// The job that could not be looked at last because one of its objects cannot be read again.
    pub fn take_unread(&mut self) -> Option<(Arc<JobRef>, serde_json::Error)> {
        self.unread.take()
    }

    /// Whether anything of a job is known.
    pub fn knows(&self, job: Uid) -> bool {
        of_job(self.store.objects(), job).next().is_some() || self.expectations.knows(job)
    }

    fn expect(&mut self, (job, uid): Key, version: u64, now: Instant) {
        let kept = self.store.objects().get(&(job, uid));
        if kept.is_none_or(|kept| kept.version < version) {
            let lists = self.store.lists();
            self.expectations.expect(job, (uid, version), lists, now);
        }
    }
}

fn key<K: OfJob>(object: &K) -> Option<Key> {
    let uid = object.meta().uid.as_deref().unwrap_or_default();
    Some((object.job()?.uid, Uid::of(uid)))
}

fn of_job(objects: &BTreeMap<Key, Kept>, job: Uid) -> impl Iterator<Item = (&Key, &Kept)> {
    let from = objects.range((job, Uid::default())..);
    from.take_while(move |((of, _), _)| *of == job)
}

#[cfg(test)]
mod tests;
