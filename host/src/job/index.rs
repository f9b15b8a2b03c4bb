//! Pure: what the watches have told of all jobs' objects, found by job, and whether that includes what
//! the controller itself has written since.
//!
//! What others write may always arrive late: names that can be given once, and preconditions, make
//! decisions on an old view harmless. What the controller itself has written must be in the view
//! before it decides again, or it would do the same thing twice. `now` is the time since some moment, by a
//! clock that nobody sets.

use std::collections::{HashMap, HashSet, VecDeque};
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::watcher::Event;

use super::kept::{self, JobRef, OfJob};
use crate::packed::{Packed, Packing};
use crate::uid::Uid;

/// How long a write is waited for. A watch that is interrupted begins again within half a minute of the
/// API server's return, and then tells of everything; this is for what it never tells of.
const LATE: Duration = Duration::from_mins(2);

/// How many ends are remembered: more than requests can be under way.
const GONE: usize = 1024;

/// All objects of one kind that belong to jobs.
pub struct Index<K> {
    /// Whether the first list is complete.
    listed: bool,
    /// UIDs that the list under way has named so far.
    listing: Option<HashSet<Uid>>,
    /// How many lists have begun.
    lists: u64,
    jobs: HashMap<Uid, Objects>,
    /// UIDs of the objects that went last: the watch may tell of an end before the answer to the
    /// request arrives.
    gone: VecDeque<Uid>,
    packing: Packing,
    unread: Option<(Arc<JobRef>, serde_json::Error)>,
    kind: PhantomData<fn() -> K>,
}

#[derive(Debug)]
struct Objects {
    job: Arc<JobRef>,
    kept: Vec<Kept>,
    awaited: Vec<Awaited>,
}

#[derive(Debug)]
struct Kept {
    uid: Uid,
    version: u64,
    packed: Packed,
}

/// A write that the watch has not told of yet.
#[derive(Debug)]
struct Awaited {
    uid: Uid,
    /// The version that was written; `u64::MAX`: only its end will do.
    version: u64,
    since: Duration,
    /// How many lists had begun.
    lists: u64,
}

impl<K> Default for Index<K> {
    fn default() -> Self {
        Self {
            listed: false,
            listing: None,
            lists: 0,
            jobs: HashMap::new(),
            gone: VecDeque::new(),
            packing: Packing::default(),
            unread: None,
            kind: PhantomData,
        }
    }
}

impl<K: OfJob> Index<K> {
    /// Takes in what a watch tells. Answers the jobs that have to be looked at.
    pub fn hear(&mut self, event: Event<K>) -> Vec<Arc<JobRef>> {
        match event {
            Event::Init => {
                self.listing = Some(HashSet::new());
                self.lists += 1;
            }
            Event::InitDone => return self.complete(),
            Event::Apply(object) | Event::InitApply(object) => return self.keep(object),
            Event::Delete(object) => return self.forget(&object),
        }
        Vec::new()
    }

    /// Notes what was written, or found written: decisions wait until the watch tells of it.
    pub fn wrote(&mut self, object: &K, now: Duration) {
        let Some(job) = object.job() else { return };
        let (uid, version) = identity(object.meta());
        self.wait_for(&job.into(), uid, version, now);
    }

    /// Notes that an object was removed at once.
    pub fn removed(&mut self, job: &str, uid: &str, now: Duration) {
        let (job, uid) = (Uid::of(job), Uid::of(uid));
        let Some(objects) = self.jobs.get(&job) else {
            return;
        };
        let job = Arc::clone(&objects.job);
        if objects.kept.iter().any(|kept| kept.uid == uid) {
            self.wait_for(&job, uid, u64::MAX, now);
        }
    }

    /// The objects of a job, by its UID. None where the watch is behind.
    pub fn of(&mut self, job: Uid, now: Duration) -> Option<Vec<K>> {
        if !self.listed {
            return None;
        }
        let Some(objects) = self.jobs.get(&job) else {
            return Some(Vec::new());
        };
        let is_late = |awaited: &Awaited| now.saturating_sub(awaited.since) >= LATE;
        if !objects.awaited.iter().all(is_late) {
            return None;
        }
        let kept = objects.kept.iter();
        let unpacked = kept.map(|kept| self.packing.unpack(&kept.packed));
        let unpacked = unpacked.collect::<Result<_, _>>();
        unpacked
            .map_err(|error| self.unread = Some((objects.job.clone(), error)))
            .ok()
    }

    /// The job that could not be looked at last because one of its objects cannot be read again.
    pub fn take_unread(&mut self) -> Option<(Arc<JobRef>, serde_json::Error)> {
        self.unread.take()
    }

    /// Whether anything of a job is known.
    pub fn knows(&self, job: Uid) -> bool {
        self.jobs.contains_key(&job)
    }

    fn wait_for(&mut self, job: &Arc<JobRef>, uid: Uid, version: u64, now: Duration) {
        if self.gone.contains(&uid) {
            return;
        }
        let lists = self.lists;
        let objects = self.objects(job);
        let mut kept = objects.kept.iter();
        if kept.any(|kept| kept.uid == uid && kept.version >= version) {
            return;
        }
        objects.awaited.push(Awaited {
            uid,
            version,
            since: now,
            lists,
        });
    }

    fn keep(&mut self, object: K) -> Vec<Arc<JobRef>> {
        let Some(job) = object.job() else {
            return Vec::new();
        };
        let (uid, version) = identity(object.meta());
        if let Some(listing) = &mut self.listing {
            listing.insert(uid);
        }
        let kept = Kept {
            uid,
            version,
            packed: self.packing.pack(&object.cut()),
        };
        let objects = self.objects(&job.into());
        objects
            .awaited
            .retain(|awaited| awaited.uid != kept.uid || awaited.version > version);
        // Most jobs rest most of the time, and there are thousands of them.
        objects.awaited.shrink_to_fit();
        match objects.kept.iter_mut().find(|old| old.uid == kept.uid) {
            Some(old) => *old = kept,
            None => objects.kept.push(kept),
        }
        vec![Arc::clone(&objects.job)]
    }

    fn forget(&mut self, object: &K) -> Vec<Arc<JobRef>> {
        let Some(job) = object.job() else {
            return Vec::new();
        };
        let (uid, _) = identity(object.meta());
        if self.gone.len() == GONE {
            self.gone.pop_front();
        }
        self.gone.push_back(uid);
        if let Some(objects) = self.jobs.get_mut(&job.uid) {
            objects.kept.retain(|kept| kept.uid != uid);
            objects.awaited.retain(|awaited| awaited.uid != uid);
            if objects.kept.is_empty() && objects.awaited.is_empty() {
                self.jobs.remove(&job.uid);
            }
        }
        vec![job.into()]
    }

    /// What the complete list did not name is gone, whenever that happened, but for what may be younger: what
    /// was made since the list began.
    fn complete(&mut self) -> Vec<Arc<JobRef>> {
        self.listed = true;
        let named = self.listing.take().unwrap_or_default();
        let (mut touched, lists) = (Vec::new(), self.lists);
        self.jobs.retain(|_, objects| {
            let Objects { job, kept, awaited } = objects;
            awaited.retain(|one| {
                let is_new = || kept.iter().all(|kept| kept.uid != one.uid);
                named.contains(&one.uid) || one.lists == lists && is_new()
            });
            let before = kept.len();
            kept.retain(|kept| named.contains(&kept.uid));
            if kept.len() < before {
                touched.push(Arc::clone(job));
            }
            !kept.is_empty() || !awaited.is_empty()
        });
        touched
    }

    fn objects(&mut self, job: &Arc<JobRef>) -> &mut Objects {
        self.jobs.entry(job.uid).or_insert_with(|| Objects {
            job: Arc::clone(job),
            kept: Vec::new(),
            awaited: Vec::new(),
        })
    }
}

/// UID and version. A version that is no number is waited for by nobody.
fn identity(metadata: &ObjectMeta) -> (Uid, u64) {
    let uid = Uid::of(metadata.uid.as_deref().unwrap_or_default());
    (uid, kept::version(metadata))
}

#[cfg(test)]
mod tests;
