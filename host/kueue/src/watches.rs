//! Follows jobs, partitions, and the objects of Kueue.

use std::sync::Arc;

use futures::channel::mpsc::UnboundedSender;
use ipu_api::ipupartition::IPUPartition;
use ipu_api::labels::{JOB_UID_LABEL, WORKLOAD_UID_LABEL};
use ipu_api::queueing::QUEUE_LABEL;
use ipu_jobs::raw::RawJob;
use ipu_runtime::scope;
use ipu_runtime::trimmed::{Guarded, readable};
use kube::api::Api;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};

use super::Context;
use super::objects::{AdmissionCheck, ResourceFlavor, Workload};
use super::observed::Key;

/// Number of watches.
pub(super) const WATCHES: usize = 6;

/// Follows all kinds until it is dropped. What to reconcile goes to `trigger`, after the new state is known.
pub(super) async fn follow(context: Arc<Context>, trigger: UnboundedSender<Key>) {
    let (client, scope) = (&context.client, &context.settings.jobs.scope);
    let observed = &context.observed;
    let queued = watcher::Config::default().labels(QUEUE_LABEL);
    let jobs = scope::watch::everywhere::<Guarded<RawJob>>(client, scope, queued);
    let all = watcher::Config::default;
    let workloads = scope::watch::everywhere::<Guarded<Workload>>(client, scope, all());
    let of_jobs = all().labels(JOB_UID_LABEL);
    let partitions = Api::<Guarded<IPUPartition>>::all(client.clone());
    let partitions = watcher(partitions, of_jobs).default_backoff();
    let of_workloads = all().labels(WORKLOAD_UID_LABEL);
    let reserved = Api::<Guarded<IPUPartition>>::all(client.clone());
    let reserved = watcher(reserved, of_workloads).default_backoff();
    let flavors = Api::<Guarded<ResourceFlavor>>::all(client.clone());
    let flavors = watcher(flavors, all()).default_backoff();
    let checks = Api::<Guarded<AdmissionCheck>>::all(client.clone());
    let checks = watcher(checks, all()).default_backoff();
    let settings = &context.settings.jobs.pods;
    let job_event = |event| read(event, |event| observed.apply_job_event(event, settings));
    let workload_event = |event| read(event, |event| observed.apply_workload_event(event));
    let partition_event = |event| match scope::watch::partitions_in_scope(event, scope) {
        Some(event) => observed.apply_partition_event(event),
        None => Vec::new(),
    };
    let reserved_event = |event| match scope::watch::partitions_in_scope(event, scope) {
        Some(event) => observed.apply_reserved_event(event),
        None => Vec::new(),
    };
    let flavor_event = |event| read(event, |event| observed.apply_flavor_event(event));
    let check_event = |event| read(event, |event| observed.apply_check_event(event));
    let complete = || context.cache_sync.complete_one();
    tokio::join!(
        scope::watch::follow("IPUJob", jobs, job_event, complete, &trigger),
        scope::watch::follow("Workload", workloads, workload_event, complete, &trigger),
        scope::watch::follow(
            "IPUPartition",
            partitions,
            partition_event,
            complete,
            &trigger
        ),
        scope::watch::follow("IPUPartition", reserved, reserved_event, complete, &trigger),
        scope::watch::follow("ResourceFlavor", flavors, flavor_event, complete, &trigger),
        scope::watch::follow("AdmissionCheck", checks, check_event, complete, &trigger),
    );
}

fn read<K: kube::Resource<DynamicType = ()>>(
    event: Event<Guarded<K>>,
    apply: impl FnOnce(Event<K>) -> Vec<Key>,
) -> Vec<Key> {
    readable(event).map_or_else(Vec::new, apply)
}
