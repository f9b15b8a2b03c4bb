//! Follows jobs, partitions, and the objects of Kueue.

use std::sync::Arc;

use futures::channel::mpsc::UnboundedSender;
use ipu_api::labels::{JOB_UID_LABEL, WORKLOAD_UID_LABEL};
use ipu_api::queueing::QUEUE_LABEL;
use ipu_jobs::raw::RawJob;
use ipu_runtime::scope::watch::{self, cluster_wide, everywhere, readable};
use ipu_runtime::trimmed::Guarded;
use kube::runtime::watcher::Config;

use super::Context;
use super::objects::{AdmissionCheck, ResourceFlavor, Workload};
use super::observed::Key;

/// Number of watches.
pub(super) const WATCHES: usize = 6;

/// Follows all kinds until it is dropped. What to reconcile goes to `trigger`, after the new state
/// is known.
pub(super) async fn follow(context: Arc<Context>, trigger: UnboundedSender<Key>) {
    let (client, scope) = (&context.client, &context.settings.jobs.scope);
    let observed = &context.observed;
    let all = Config::default;
    let queued = all().labels(QUEUE_LABEL);
    let jobs = readable(everywhere::<Guarded<RawJob>>(client, scope, queued));
    let workloads = readable(everywhere::<Guarded<Workload>>(client, scope, all()));
    let partitions = watch::partitions(client, scope, all().labels(JOB_UID_LABEL));
    let reserved = watch::partitions(client, scope, all().labels(WORKLOAD_UID_LABEL));
    let flavors = readable(cluster_wide::<Guarded<ResourceFlavor>>(client, all()));
    let checks = readable(cluster_wide::<Guarded<AdmissionCheck>>(client, all()));
    let settings = &context.settings.jobs.pods;
    let job_event = |event| observed.apply_job_event(event, settings);
    let workload_event = |event| observed.apply_workload_event(event);
    let partition_event = |event| observed.apply_partition_event(event);
    let reserved_event = |event| observed.apply_reserved_event(event);
    let flavor_event = |event| observed.apply_flavor_event(event);
    let check_event = |event| observed.apply_check_event(event);
    let complete = || context.cache_sync.complete_one();
    tokio::join!(
        watch::follow(jobs, job_event, complete, &trigger),
        watch::follow(workloads, workload_event, complete, &trigger),
        watch::follow(partitions, partition_event, complete, &trigger),
        watch::follow(reserved, reserved_event, complete, &trigger),
        watch::follow(flavors, flavor_event, complete, &trigger),
        watch::follow(checks, check_event, complete, &trigger),
    );
}
