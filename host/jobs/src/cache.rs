//! Pure: the watch cache of one kind: the objects of all jobs, by job, and the controller's own
//! writes that the watch has not reported yet.

use std::sync::Arc;
use std::time::Instant;

use ipu_api::labels;
use ipu_api::uid::Uid;
use ipu_runtime::watch_store::{Tracked, TrackedStore, of_owner, version};
use kube::runtime::watcher::Event;

use super::job_object::{JobObject, JobRef, JobRefs, job_uid};
use super::raw::RawJob;

/// All objects of one kind that belong to jobs.
pub struct Cache<K: JobObject> {
    store: TrackedStore<Key, Entry<K::Stored>>,
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

impl<S> Tracked<Key> for Entry<S> {
    fn identity(key: &Key, _: Option<&Self>) -> Option<(Uid, Uid)> {
        Some(*key)
    }

    fn version(&self) -> u64 {
        self.version
    }
}

impl<K: JobObject> Cache<K> {
    /// Creates an empty cache, which shares its references to jobs with others.
    pub fn new(jobs: Arc<JobRefs>) -> Self {
        Self {
            store: TrackedStore::default(),
            shared: K::Shared::default(),
            jobs,
        }
    }

    /// Applies a watch event. Returns the jobs to reconcile.
    pub fn apply_event(&mut self, event: Event<K>) -> Vec<Arc<JobRef>> {
        let Self {
            store,
            shared,
            jobs,
        } = self;
        let changes = store.apply_event(event, key, |key, object, known| {
            // An object that has lost its owner reference counts as deleted.
            let owner = object.job()?;
            let version = version(object.meta());
            let before = known.get(key).map(|entry| &entry.object);
            let known = of_owner(known, key.0).next();
            let job = known.map(|other| Arc::clone(&other.job));
            Some(Entry {
                job: job.unwrap_or_else(|| jobs.shared(owner)),
                version,
                object: object.store(shared, before)?,
            })
        });
        let jobs = changes.into_iter().filter_map(|change| {
            let before = change.before.map(|entry| entry.job);
            before.or_else(|| Some(Arc::clone(&store.objects().get(&change.key)?.job)))
        });
        jobs.collect()
    }

    /// Records a write, or a read of a newer version. The job's objects are stale until the watch
    /// reports it.
    pub fn expect_update(&mut self, object: &K, now: Instant) {
        if let (Some(_), Some(key)) = (object.job(), key(object)) {
            self.store.expect(&key, key, version(object.meta()), now);
        }
    }

    /// Records that an object was deleted without a grace period.
    pub fn expect_delete(&mut self, job: Uid, uid: &str, now: Instant) {
        let key = (job, Uid::of(uid));
        if self.store.objects().contains_key(&key) {
            self.store.expect(&key, key, u64::MAX, now);
        }
    }

    /// Returns the objects of a job, by its UID. `None` if the cache is stale.
    pub fn of(&self, job: Uid, now: Instant) -> Option<Vec<K::Stored>> {
        if !self.store.is_listed() || self.store.is_stale(job, now) {
            return None;
        }
        let objects = of_owner(self.store.objects(), job);
        Some(objects.map(|entry| entry.object.clone()).collect())
    }

    /// Whether the cache has an object of the job, or expects one.
    pub fn contains(&self, job: Uid) -> bool {
        of_owner(self.store.objects(), job).next().is_some() || self.store.expects(job)
    }
}

impl Cache<RawJob> {
    /// Returns a job, by its UID, or the error of decoding it. `None` if the cache is stale.
    pub fn job(&self, job: Uid, now: Instant) -> Option<serde_json::Result<Option<RawJob>>> {
        let stored = self.of(job, now)?;
        let job = stored.first().map(|json| serde_json::from_slice(json));
        Some(job.transpose())
    }
}

fn key<K: JobObject>(object: &K) -> Option<Key> {
    let metadata = object.meta();
    let uid = metadata.uid.as_deref().unwrap_or_default();
    // The garbage collector removes the owner reference of an object that it orphans, and not the
    // label.
    let former = || {
        let job = metadata.labels.as_ref()?.get(labels::JOB_UID_LABEL)?;
        Some(job_uid(metadata.namespace.as_deref()?, job))
    };
    let job = object.job().map(|job| job.uid).or_else(former)?;
    Some((job, Uid::of(uid)))
}

#[cfg(test)]
mod tests;
