//! Follows native Pods and the IPUPartitions that they may use.

use std::sync::Arc;

use futures::channel::mpsc::UnboundedSender;
use ipu_api::labels::{JOB_UID_LABEL, NATIVE_POD_LABEL};
use ipu_api::object_ref::ObjectRef;
use ipu_runtime::scope::watch::{self, everywhere, readable};
use ipu_runtime::trimmed::Guarded;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::watcher::Config;

use super::Context;

/// Number of watches.
pub(super) const WATCHES: usize = 2;

/// Follows both kinds until it is dropped. Pods to reconcile go to `trigger`, after the new state
/// is known.
pub(super) async fn follow(context: Arc<Context>, trigger: UnboundedSender<Arc<ObjectRef>>) {
    let (client, scope) = (&context.client, &context.settings.scope);
    let native = Config::default().labels(&format!("{NATIVE_POD_LABEL}=true"));
    let pods = readable(everywhere::<Guarded<Pod>>(client, scope, native));
    // Those of IPUJobs are the job reconciler's. The proxy reports an unreadable IPUPartition in
    // its events.
    let of_no_job = Config::default().labels(&format!("!{JOB_UID_LABEL}"));
    let partitions = watch::partitions(client, scope, of_no_job);
    let apply_pod_event = |event| context.observed.apply_pod_event(event);
    let apply_partition_event = |event| context.observed.apply_partition_event(event);
    let complete = || context.cache_sync.complete_one();
    tokio::join!(
        watch::follow(pods, apply_pod_event, complete, &trigger),
        watch::follow(partitions, apply_partition_event, complete, &trigger),
    );
}
