//! Follows native Pods and the IPUPartitions that they may use.

use std::sync::Arc;

use futures::channel::mpsc::UnboundedSender;
use ipu_api::ipupartition::IPUPartition;
use ipu_api::labels::{JOB_UID_LABEL, NATIVE_POD_LABEL};
use ipu_api::object_ref::ObjectRef;
use ipu_runtime::scope;
use ipu_runtime::trimmed::{Guarded, readable};
use k8s_openapi::api::core::v1::Pod;
use kube::api::Api;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, watcher};

use super::Context;

/// Number of watches.
pub(super) const WATCHES: usize = 2;

/// Follows both kinds until it is dropped. Pods to reconcile go to `trigger`, after the new state is known.
pub(super) async fn follow(context: Arc<Context>, trigger: UnboundedSender<Arc<ObjectRef>>) {
    let (client, scope) = (&context.client, &context.settings.scope);
    let native = watcher::Config::default().labels(&format!("{NATIVE_POD_LABEL}=true"));
    let pods = scope::watch::everywhere::<Guarded<Pod>>(client, scope, native);
    // Those of IPUJobs are the job reconciler's.
    let of_no_job = watcher::Config::default().labels(&format!("!{JOB_UID_LABEL}"));
    let partitions = Api::<Guarded<IPUPartition>>::all(client.clone());
    let partitions = watcher(partitions, of_no_job).default_backoff();
    let apply_pod_event = |event| match readable(event) {
        Some(event) => context.observed.apply_pod_event(event),
        None => Vec::new(),
    };
    // The proxy reports an unreadable IPUPartition in its events.
    let apply_partition_event = |event| match scope::watch::partitions_in_scope(event, scope) {
        Some(event) => context.observed.apply_partition_event(event),
        None => Vec::new(),
    };
    let complete = || context.cache_sync.complete_one();
    tokio::join!(
        scope::watch::follow("Pod", pods, apply_pod_event, complete, &trigger),
        scope::watch::follow(
            "IPUPartition",
            partitions,
            apply_partition_event,
            complete,
            &trigger
        ),
    );
}
