//! Follows the Pods and partitions of all jobs, and says which jobs have to be looked at.

use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::channel::mpsc::UnboundedSender;
use futures::{Stream, StreamExt};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::Api;
use kube::core::DeserializeGuard;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};

use super::context::Context;
use super::index::Index;
use super::kept::{JobRef, OfJob};
use super::raw::RawJob;
use crate::api::ipupartition::IPUPartition;
use crate::names;
use crate::scope::{self, Scope};

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
}

impl<K> Default for View<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: OfJob> View<K> {
    /// The objects of a job, by its UID. None where the watch has yet to tell of what was written.
    pub fn of(&self, job: &str) -> Option<Vec<K>> {
        self.index().of(job, Timestamp::now())
    }

    /// Notes what was written, so that nothing is decided before the watch has told of it.
    pub fn wrote(&self, object: &K) {
        self.index().wrote(object, Timestamp::now());
    }

    /// Notes that an object of a job was removed at once.
    pub fn removed(&self, job: &str, uid: &str) {
        self.index().removed(job, uid, Timestamp::now());
    }

    /// Takes in what a watch tells. Answers the jobs that have to be looked at.
    pub fn hear(&self, event: Event<K>) -> Vec<JobRef> {
        self.index().hear(event)
    }

    fn index(&self) -> MutexGuard<'_, Index<K>> {
        // Every change of it is whole before the next one begins.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Follows both kinds until it is dropped. Jobs that have to be looked at go to `touched`, after the
/// views have changed.
pub(super) async fn follow(context: Arc<Context>, touched: UnboundedSender<JobRef>) {
    let (client, scope) = (&context.client, &context.settings.scope);
    let views = &context.views;
    let ours = watcher::Config::default().labels(names::JOB_UID_LABEL);
    let pods = scope::watch::watch::<Pod>(client, scope, ours.clone());
    let partitions = Api::<DeserializeGuard<IPUPartition>>::all(client.clone());
    let partitions = watcher(partitions, ours).default_backoff();
    let hear_pods = |event| views.pods.hear(event);
    // Of one that cannot be read the proxy tells, in the object's own events; what was known stays.
    let hear_partitions = |event| match of_scope(event, scope) {
        Some(event) => views.partitions.hear(event),
        None => Vec::new(),
    };
    tokio::join!(
        follow_kind("Pod", pods, hear_pods, &touched),
        follow_kind("IPUPartition", partitions, hear_partitions, &touched),
    );
}

/// Follows one watch until it is dropped. Jobs that `hear` answers go to `touched`.
pub(super) async fn follow_kind<W, J: IntoIterator<Item = JobRef>>(
    kind: &str,
    events: impl Stream<Item = watcher::Result<Event<W>>>,
    mut hear: impl FnMut(Event<W>) -> J,
    touched: &UnboundedSender<JobRef>,
) {
    let mut events = pin!(events);
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => {
                for job in hear(event) {
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
