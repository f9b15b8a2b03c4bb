//! Watches IPUJobs, their Pods and their IPUPartitions, and triggers reconciles of the jobs.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Instant;

use futures::channel::mpsc::UnboundedSender;
use futures::{FutureExt, Stream};
use ipu_api::ipupartition::IPUPartition;
use ipu_api::labels;
use ipu_api::uid::Uid;
use ipu_runtime::scope;
use ipu_runtime::trimmed::{self, Trimmed, readable, untrimmed};
use k8s_openapi::api::core::v1::Pod;
use kube::Resource;
use kube::api::Api;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use parking_lot::{Mutex, MutexGuard};

use super::cache::Cache;
use super::cache_sync::CacheSync;
use super::context::Context;
use super::job_object::{JobObject, JobRef, JobRefs};
use super::raw::RawJob;

/// The cache of one kind, shared by its watch and by the reconciles that write the objects.
pub struct View<K: JobObject>(Mutex<Cache<K>>);

/// The caches of jobs and of their objects.
pub struct Views {
    /// The jobs themselves.
    pub jobs: View<RawJob>,
    /// Their Pods.
    pub pods: View<Pod>,
    /// Their partitions.
    pub partitions: View<IPUPartition>,
    /// Their Pods that were certainly not created.
    pub uncreated: UncreatedPods,
    /// The references to jobs in all caches.
    pub references: Arc<JobRefs>,
}

impl Default for Views {
    fn default() -> Self {
        let references = Arc::default();
        Self {
            jobs: View::new(&references),
            pods: View::new(&references),
            partitions: View::new(&references),
            uncreated: UncreatedPods::default(),
            references,
        }
    }
}

/// By job: names of Pods that the operator tried to create and that were not created, according to replies and the watch.
/// Any other Pod that does not exist may have existed, and may have used its partition.
#[derive(Debug, Default)]
pub struct UncreatedPods(Mutex<HashMap<Uid, BTreeSet<String>>>);

impl UncreatedPods {
    /// Records a Pod before its creation. It has not existed since the last reset of its partition.
    pub fn insert(&self, job: Uid, pod: &str) {
        self.all().entry(job).or_default().insert(pod.to_owned());
    }

    /// Records that a Pod exists or existed.
    pub fn remove(&self, job: Uid, pod: &str) {
        let mut all = self.all();
        if let Some(pods) = all.get_mut(&job) {
            pods.remove(pod);
            if pods.is_empty() {
                all.remove(&job);
            }
        }
    }

    /// Applies a watch event: the Pod exists or existed, even if the reply to its creation was lost.
    pub fn apply_event(&self, event: &Event<Pod>) {
        let (Event::Apply(pod) | Event::InitApply(pod) | Event::Delete(pod)) = event else {
            return;
        };
        if let (Some(job), Some(name)) = (pod.job(), &pod.metadata.name) {
            self.remove(job.uid, name);
        }
    }

    /// Returns the names of one job's Pods.
    pub fn of(&self, job: Uid) -> BTreeSet<String> {
        self.all().get(&job).cloned().unwrap_or_default()
    }

    /// Forgets a deleted job.
    pub fn forget(&self, job: Uid) {
        self.all().remove(&job);
    }

    fn all(&self) -> MutexGuard<'_, HashMap<Uid, BTreeSet<String>>> {
        self.0.lock()
    }
}

impl<K: JobObject> View<K> {
    fn new(references: &Arc<JobRefs>) -> Self {
        Self(Mutex::new(Cache::new(Arc::clone(references))))
    }

    /// Returns the objects of a job, by its UID. `None` if the cache is stale.
    pub fn of(&self, job: Uid) -> Option<Vec<K::Stored>> {
        self.cache().of(job, Instant::now())
    }

    /// Records a write: the job's objects are stale until the watch reports it.
    pub fn expect_update(&self, object: &K) {
        self.cache().expect_update(object, Instant::now());
    }

    /// Records that an object of a job was deleted without a grace period.
    pub fn expect_delete(&self, job: &str, uid: &str) {
        self.cache().expect_delete(job, uid, Instant::now());
    }

    /// Applies a watch event. Returns the jobs to reconcile.
    pub fn apply_event(&self, event: Event<K>) -> Vec<Arc<JobRef>> {
        self.cache().apply_event(event)
    }

    /// Whether the cache has an object of the job, or expects one.
    pub fn contains(&self, job: Uid) -> bool {
        self.cache().contains(job)
    }

    fn cache(&self) -> MutexGuard<'_, Cache<K>> {
        self.0.lock()
    }
}

impl View<RawJob> {
    /// Returns a job, by its UID, or the error of decoding it. `None` if the cache is stale.
    pub fn job(&self, job: Uid) -> Option<serde_json::Result<Option<RawJob>>> {
        self.cache().job(job, Instant::now())
    }
}

/// Watches all three kinds until it is dropped. Sends the jobs to reconcile to `triggers`, after the caches have changed.
pub(super) async fn follow(context: Arc<Context>, triggers: UnboundedSender<Arc<JobRef>>) {
    let (client, scope) = (&context.client, &context.settings.scope);
    let (views, cache_sync) = (&context.views, &context.cache_sync);
    let owned = watcher::Config::default().labels(labels::JOB_UID_LABEL);
    let pods = scope::watch::everywhere::<trimmed::Guarded<Pod>>(client, scope, owned.clone());
    let partitions = Api::<trimmed::Guarded<IPUPartition>>::all(client.clone());
    let partitions = watcher(partitions, owned).default_backoff();
    // A listed job is reconciled, so its objects are listed first.
    let jobs = async {
        cache_sync.wait_synced::<Pod>().await;
        cache_sync.wait_synced::<IPUPartition>().await;
        scope::watch::everywhere::<Trimmed<RawJob>>(client, scope, watcher::Config::default())
    };
    let apply_job_event = |event| apply_job_event(&context, untrimmed(event));
    let apply_pod_event = |event| match readable(event) {
        Some(event) => {
            views.uncreated.apply_event(&event);
            views.pods.apply_event(event)
        }
        None => Vec::new(),
    };
    // The proxy reports an unreadable object in the object's events. The cache keeps its last state.
    let apply_partition_event = |event| match scope::watch::partitions_in_scope(event, scope) {
        Some(event) => views.partitions.apply_event(event),
        None => Vec::new(),
    };
    tokio::join!(
        follow_kind(cache_sync, "Pod", pods, apply_pod_event, &triggers),
        follow_kind(
            cache_sync,
            "IPUPartition",
            partitions,
            apply_partition_event,
            &triggers
        ),
        follow_kind(
            cache_sync,
            "IPUJob",
            jobs.flatten_stream(),
            apply_job_event,
            &triggers
        ),
    );
}

/// Applies an event of the watch of all jobs. Returns the jobs to reconcile.
pub(super) fn apply_job_event(context: &Context, event: Event<RawJob>) -> Vec<Arc<JobRef>> {
    context.counts.apply_event(&event);
    let may_delete = matches!(event, Event::Delete(_) | Event::InitDone);
    let jobs = context.views.jobs.apply_event(event);
    if may_delete {
        for job in &jobs {
            context.forget(job.uid);
        }
    }
    jobs
}

/// Follows one watch until it is dropped. Sends the jobs that `apply` returns to `triggers`.
pub(super) async fn follow_kind<W: Resource, J: IntoIterator<Item = Arc<JobRef>>>(
    cache_sync: &CacheSync,
    kind: &str,
    events: impl Stream<Item = watcher::Result<Event<W>>>,
    apply: impl FnMut(Event<W>) -> J,
    triggers: &UnboundedSender<Arc<JobRef>>,
) {
    let synced = || cache_sync.mark_synced(kind);
    scope::watch::follow(kind, events, apply, synced, triggers).await;
}
