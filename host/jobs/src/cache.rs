//! Pure: the watch cache of one kind: the objects of all jobs, by job, and the controller's own writes that the watch
//! has not reported yet.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ipu_api::labels;
use ipu_api::uid::Uid;
use ipu_runtime::watch_store::{Expectations, Store, version};
use kube::runtime::watcher::Event;

use super::job_object::{JobObject, JobRef, JobRefs, job_uid};
use super::raw::RawJob;

/// Maximum time until the watch reports a write. An interrupted watch restarts within half a minute after the API server
/// is available again, and lists everything; this limit is for writes that it never reports.
const WRITE_TIMEOUT: Duration = Duration::from_mins(2);

/// All objects of one kind that belong to jobs.
pub struct Cache<K: JobObject> {
    store: Store<Key, Entry<K::Stored>>,
    expectations: Expectations,
    shared: K::Shared,
    jobs: Arc<JobRefs>,
}

/// A job ([`job_uid`]), and the UID of its object.
type Key = (Uid, Uid);

struct Entry<S> {
    /// Shared by all objects of the job.
    job: Arc<JobRef>,
    /// A version that is not a number is 0, and no write waits for it.
    version: u64,
    object: S,
}

impl<K: JobObject> Cache<K> {
    /// Creates an empty cache, which shares its references to jobs with others.
    pub fn new(jobs: Arc<JobRefs>) -> Self {
        Self {
            store: Store::default(),
            expectations: Expectations::new(WRITE_TIMEOUT),
            shared: K::Shared::default(),
            jobs,
        }
    }

    /// Applies a watch event. Returns the jobs to reconcile.
    pub fn apply_event(&mut self, event: Event<K>) -> Vec<Arc<JobRef>> {
        let Self {
            store,
            expectations,
            shared,
            jobs,
        } = self;
        let (is_delete, is_complete) = (
            matches!(event, Event::Delete(_)),
            matches!(event, Event::InitDone),
        );
        let changes = store.apply_event(event, key, |&(job, uid), object, known| {
            let (owner, version) = (object.job(), version(object.meta()));
            // An object that has lost its owner reference counts as deleted.
            let observed = owner.as_ref().map_or(u64::MAX, |_| version);
            expectations.observe(job, uid, observed);
            let owner = owner?;
            let known = of_job(known, job).next();
            let job = known.map(|(_, other)| Arc::clone(&other.job));
            Some(Entry {
                job: job.unwrap_or_else(|| jobs.shared(owner)),
                version,
                object: object.store(shared)?,
            })
        });
        for (job, uid) in changes.iter().map(|change| change.key) {
            if is_delete {
                expectations.observe_delete(job, uid);
            } else if is_complete {
                // The list does not contain it, so it was deleted.
                expectations.observe(job, uid, u64::MAX);
            }
        }
        if is_complete {
            let exists = |job, uid| store.objects().get(&(job, uid)).is_some();
            expectations.observe_list(store.lists(), exists);
        }
        let jobs = changes.into_iter().filter_map(|change| {
            let before = change.before.map(|entry| entry.job);
            before.or_else(|| Some(Arc::clone(&store.objects().get(&change.key)?.job)))
        });
        jobs.collect()
    }

    /// Records a write, or a read of a newer version. The job's objects are stale until the watch reports it.
    pub fn expect_update(&mut self, object: &K, now: Instant) {
        if let (Some(_), Some(key)) = (object.job(), key(object)) {
            self.expect(key, version(object.meta()), now);
        }
    }

    /// Records that an object was deleted without a grace period.
    pub fn expect_delete(&mut self, job: Uid, uid: &str, now: Instant) {
        let key = (job, Uid::of(uid));
        if self.store.objects().get(&key).is_some() {
            self.expect(key, u64::MAX, now);
        }
    }

    /// Returns the objects of a job, by its UID. `None` if the cache is stale.
    pub fn of(&self, job: Uid, now: Instant) -> Option<Vec<K::Stored>> {
        if !self.store.is_listed() || self.expectations.remaining(job, now).is_some() {
            return None;
        }
        let objects = of_job(self.store.objects(), job);
        Some(objects.map(|(_, entry)| entry.object.clone()).collect())
    }

    /// Whether the cache has an object of the job, or expects one.
    pub fn contains(&self, job: Uid) -> bool {
        of_job(self.store.objects(), job).next().is_some() || self.expectations.contains(job)
    }

    fn expect(&mut self, (job, uid): Key, version: u64, now: Instant) {
        let entry = self.store.objects().get(&(job, uid));
        if entry.is_none_or(|entry| entry.version < version) {
            let lists = self.store.lists();
            self.expectations.expect(job, (uid, version), lists, now);
        }
    }
}

impl Cache<RawJob> {
    /// Returns a job, by its UID, or the error of decoding it. `None` if the cache is stale.
    pub fn job(&mut self, job: Uid, now: Instant) -> Option<serde_json::Result<Option<RawJob>>> {
        let stored = self.of(job, now)?;
        let job = stored.first().map(|job| self.shared.decompress(job));
        Some(job.transpose())
    }
}

fn key<K: JobObject>(object: &K) -> Option<Key> {
    let metadata = object.meta();
    let uid = metadata.uid.as_deref().unwrap_or_default();
    // The garbage collector removes the owner reference of an object that it orphans, and not the label.
    let former = || {
        let job = metadata.labels.as_ref()?.get(labels::JOB_UID_LABEL)?;
        Some(job_uid(metadata.namespace.as_deref()?, job))
    };
    let job = object.job().map(|job| job.uid).or_else(former)?;
    Some((job, Uid::of(uid)))
}

fn of_job<S>(
    objects: &BTreeMap<Key, Entry<S>>,
    job: Uid,
) -> impl Iterator<Item = (&Key, &Entry<S>)> {
    let from = objects.range((job, Uid::default())..);
    from.take_while(move |((of, _), _)| *of == job)
}

#[cfg(test)]
mod tests;
