//! Watches IPUJobs, their Pods and their IPUPartitions, and triggers reconciles of the jobs.

use std::sync::Arc;

use futures::channel::mpsc::UnboundedSender;
use futures::{FutureExt, Stream};
use ipu_api::ipupartition::IPUPartition;
use ipu_api::labels;
use ipu_runtime::scope;
use ipu_runtime::trimmed::{Guarded, Trimmed, untrimmed};
use k8s_openapi::api::core::v1::Pod;
use kube::Resource;
use kube::runtime::watcher::{self, Event};

use super::cache_sync::CacheSync;
use super::context::Context;
use super::job_object::JobRef;
use super::raw::RawJob;

/// Watches all three kinds until it is dropped. Sends the jobs to reconcile to `triggers`, after
/// the caches have changed.
pub(super) async fn follow(context: Arc<Context>, triggers: UnboundedSender<Arc<JobRef>>) {
    let (client, scope) = (&context.client, &context.settings.scope);
    let (views, cache_sync) = (&context.views, &context.cache_sync);
    let owned = watcher::Config::default().labels(labels::JOB_UID_LABEL);
    let pods = scope::watch::everywhere::<Guarded<Pod>>(client, scope, owned.clone());
    let pods = scope::watch::readable(pods);
    // The proxy reports an unreadable object in the object's events. The cache keeps its last
    // state.
    let partitions = scope::watch::partitions(client, scope, owned);
    // A listed job is reconciled, so its objects are listed first.
    let jobs = async {
        cache_sync.wait_synced::<Pod>().await;
        cache_sync.wait_synced::<IPUPartition>().await;
        scope::watch::everywhere::<Trimmed<RawJob>>(client, scope, watcher::Config::default())
    };
    let apply_job_event = |event| apply_job_event(&context, untrimmed(event));
    let apply_pod_event = |event: Event<Pod>| {
        views
            .uncreated
            .apply_event(&event, |job| views.jobs.contains(job));
        views.pods.apply_event(event)
    };
    let apply_partition_event = |event| views.partitions.apply_event(event);
    let jobs = jobs.flatten_stream();
    tokio::join!(
        follow_kind(cache_sync, pods, apply_pod_event, &triggers),
        follow_kind(cache_sync, partitions, apply_partition_event, &triggers),
        follow_kind(cache_sync, jobs, apply_job_event, &triggers),
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
pub(super) async fn follow_kind<W: Resource<DynamicType = ()>>(
    cache_sync: &CacheSync,
    events: impl Stream<Item = watcher::Result<Event<W>>>,
    apply: impl FnMut(Event<W>) -> Vec<Arc<JobRef>>,
    triggers: &UnboundedSender<Arc<JobRef>>,
) {
    let synced = || cache_sync.mark_synced(&W::kind(&()));
    scope::watch::follow(events, apply, synced, triggers).await;
}
