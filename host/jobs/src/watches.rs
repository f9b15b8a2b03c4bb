//! Follows all jobs with their Pods and partitions, and says which jobs have to be looked at.

use std::collections::{BTreeSet, HashMap};
use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use futures::channel::mpsc::UnboundedSender;
use futures::{FutureExt, Stream, StreamExt};
use ipu_api::ipupartition::IPUPartition;
use ipu_api::names;
use ipu_api::uid::Uid;
use ipu_runtime::panics;
use ipu_runtime::scope::{self, Scope};
use ipu_runtime::trimmed::{self, Trimmed, readable, untrimmed};
use k8s_openapi::api::core::v1::Pod;
use kube::api::Api;
use kube::core::DeserializeGuard;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Resource, ResourceExt};
use parking_lot::{Mutex, MutexGuard};

use super::context::Context;
use super::index::Index;
use super::kept::{JobRef, OfJob};
use super::lists::Lists;
use super::raw::RawJob;

/// What is known of all jobs' objects of one kind. It is shared between the watch that tells of
/// them and the reconciles that write them.
pub struct View<K>(Mutex<Index<K>>);

/// What is known of jobs and of everything that belongs to them.
#[derive(Default)]
pub struct Views {
    /// The jobs themselves.
    pub jobs: View<RawJob>,
    /// Their Pods.
    pub pods: View<Pod>,
    /// Their partitions.
    pub partitions: View<IPUPartition>,
    /// Their Pods that are not there.
    pub unmade: Unmade,
}

/// By job: names of Pods that were to be made and were not, as far as answers and the watch tell. Where
/// nothing is known of a Pod that is not there, it may have been made, and have used its partition.
#[derive(Debug, Default)]
pub struct Unmade(Mutex<HashMap<Uid, BTreeSet<String>>>);

impl Unmade {
    /// Notes that a Pod is to be made, which has not been there since its partition was reset.
    pub fn insert(&self, job: Uid, pod: &str) {
        self.all().entry(job).or_default().insert(pod.to_owned());
    }

    /// Notes that a Pod is or was there.
    pub fn remove(&self, job: Uid, pod: &str) {
        let mut all = self.all();
        if let Some(pods) = all.get_mut(&job) {
            pods.remove(pod);
            if pods.is_empty() {
                all.remove(&job);
            }
        }
    }

    /// A watch tells of a Pod: it is or was there, also where the answer to its request was lost.
    pub fn hear(&self, event: &Event<Pod>) {
        let (Event::Apply(pod) | Event::InitApply(pod) | Event::Delete(pod)) = event else {
            return;
        };
        if let (Some(job), Some(name)) = (pod.job(), &pod.metadata.name) {
            self.remove(job.uid, name);
        }
    }

    /// The Pods of one job.
    pub fn of(&self, job: Uid) -> BTreeSet<String> {
        self.all().get(&job).cloned().unwrap_or_default()
    }

    /// Forgets a job that is gone.
    pub fn forget(&self, job: Uid) {
        self.all().remove(&job);
    }

    fn all(&self) -> MutexGuard<'_, HashMap<Uid, BTreeSet<String>>> {
        // Every change of it is whole before the next one begins.
        self.0.lock()
    }
}

impl<K> Default for View<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: OfJob> View<K> {
    /// The objects of a job, by its UID. None where the watch has yet to tell of what was written.
    pub fn of(&self, job: Uid) -> Option<Vec<K>> {
        let mut index = self.index();
        let found = index.of(job, Instant::now());
        if let Some((job, error)) = index.take_unread() {
            let error: &dyn std::error::Error = &error;
            tracing::error!(error, %job, "an object of the job cannot be read again");
        }
        found
    }

    /// Notes what was written, so that nothing is decided before the watch has told of it.
    pub fn wrote(&self, object: &K) {
        self.index().wrote(object, Instant::now());
    }

    /// Notes that an object of a job was removed at once.
    pub fn removed(&self, job: &str, uid: &str) {
        self.index().removed(job, uid, Instant::now());
    }

    /// Takes in what a watch tells. Answers the jobs that have to be looked at.
    pub fn hear(&self, event: Event<K>) -> Vec<Arc<JobRef>> {
        self.index().hear(event)
    }

    /// Whether anything of a job is known.
    pub fn knows(&self, job: Uid) -> bool {
        self.index().knows(job)
    }

    fn index(&self) -> MutexGuard<'_, Index<K>> {
        // Every change of it is whole before the next one begins.
        self.0.lock()
    }
}

/// Follows all three kinds until it is dropped. Jobs that have to be looked at go to `touched`, after the
/// views have changed.
pub(super) async fn follow(context: Arc<Context>, touched: UnboundedSender<Arc<JobRef>>) {
    let (client, scope) = (&context.client, &context.settings.scope);
    let (views, lists) = (&context.views, &context.lists);
    let ours = watcher::Config::default().labels(names::JOB_UID_LABEL);
    let pods = scope::watch::everywhere::<trimmed::Guarded<Pod>>(client, scope, ours.clone());
    let partitions = Api::<trimmed::Guarded<IPUPartition>>::all(client.clone());
    let partitions = watcher(partitions, ours).default_backoff();
    // A job that is known is looked at: what belongs to it has to be known before.
    let jobs = async {
        lists.once_complete::<Pod>().await;
        lists.once_complete::<IPUPartition>().await;
        scope::watch::everywhere::<Trimmed<RawJob>>(client, scope, watcher::Config::default())
    };
    let hear_jobs = |event| hear_jobs(&context, untrimmed(event));
    let hear_pods = |event| match readable(untrimmed(event)) {
        Some(event) => {
            views.unmade.hear(&event);
            views.pods.hear(event)
        }
        None => Vec::new(),
    };
    // Of one that cannot be read the proxy tells, in the object's own events; what was known stays.
    let hear_partitions = |event| match of_scope(untrimmed(event), scope) {
        Some(event) => views.partitions.hear(event),
        None => Vec::new(),
    };
    tokio::join!(
        follow_kind(lists, "Pod", pods, hear_pods, &touched),
        follow_kind(lists, "IPUPartition", partitions, hear_partitions, &touched),
        follow_kind(lists, "IPUJob", jobs.flatten_stream(), hear_jobs, &touched),
    );
}

/// Takes in what the watch of all jobs tells. Answers the jobs that have to be looked at.
pub(super) fn hear_jobs(context: &Context, event: Event<RawJob>) -> Vec<Arc<JobRef>> {
    context.counts.hear(&event);
    let ends = matches!(event, Event::Delete(_) | Event::InitDone);
    let touched = context.views.jobs.hear(event);
    if ends {
        for job in &touched {
            context.forget(job.uid);
        }
    }
    touched
}

/// Follows one watch until it is dropped. Jobs that `hear` answers go to `touched`.
pub(super) async fn follow_kind<W: Resource, J: IntoIterator<Item = Arc<JobRef>>>(
    lists: &Lists,
    kind: &str,
    events: impl Stream<Item = watcher::Result<Event<W>>>,
    mut hear: impl FnMut(Event<W>) -> J,
    touched: &UnboundedSender<Arc<JobRef>>,
) {
    let (mut events, mut is_first_list) = (pin!(events), true);
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => {
                let (object, is_complete) = (named(&event), matches!(event, Event::InitDone));
                let heard = panics::caught_now(|| hear(event));
                if is_complete && std::mem::take(&mut is_first_list) {
                    lists.complete(kind);
                }
                let Ok(jobs) = heard else {
                    tracing::error!(
                        kind,
                        object,
                        "an object that the watch reported is left out"
                    );
                    continue;
                };
                for job in jobs {
                    // Nobody listens any more where the controller ends.
                    let _ = touched.unbounded_send(job);
                }
            }
            Err(error) => {
                let error: &dyn std::error::Error = &error;
                tracing::warn!(error, kind, "a watch was interrupted, and begins again");
            }
        }
    }
}

fn named<W: Resource>(event: &Event<W>) -> Option<String> {
    let (Event::Apply(object) | Event::InitApply(object) | Event::Delete(object)) = event else {
        return None;
    };
    let namespace = object.namespace().unwrap_or_default();
    Some(format!("{namespace}/{}", object.name_any()))
}

/// IPUPartitions are of no namespace: those of jobs that another release serves are seen as well. One that
/// cannot be read is left as it was.
fn of_scope(
    event: Event<DeserializeGuard<IPUPartition>>,
    scope: &Scope,
) -> Option<Event<IPUPartition>> {
    let mine = |object: DeserializeGuard<IPUPartition>| {
        let partition = object.0.ok()?;
        let is_mine = scope.contains(&partition.spec.owner.namespace);
        is_mine.then_some(partition)
    };
    Some(match event {
        Event::Apply(object) => Event::Apply(mine(object)?),
        Event::InitApply(object) => Event::InitApply(mine(object)?),
        Event::Delete(object) => Event::Delete(mine(object)?),
        Event::Init => Event::Init,
        Event::InitDone => Event::InitDone,
    })
}
