//! Follows native Pods and the IPUPartitions that they may use.

use std::pin::pin;
use std::sync::Arc;

use futures::channel::mpsc::UnboundedSender;
use futures::{Stream, StreamExt};
use ipu_api::ipupartition::IPUPartition;
use ipu_api::names::{JOB_UID_LABEL, NATIVE_POD_LABEL};
use ipu_runtime::panics;
use ipu_runtime::scope::{self, Scope};
use ipu_runtime::trimmed::{Guarded, readable, untrimmed};
use ipu_text::explain;
use k8s_openapi::api::core::v1::Pod;
use kube::Resource;
use kube::api::Api;
use kube::core::DeserializeGuard;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use tokio::sync::SetOnce;

use super::Context;
use super::pod::PodRef;

/// Which first lists are complete. No Pod is reconciled before both are.
#[derive(Debug, Default)]
pub(super) struct Lists {
    pods: SetOnce<()>,
    partitions: SetOnce<()>,
}

impl Lists {
    /// Waits until both are complete.
    pub(super) async fn complete(&self) {
        self.pods.wait().await;
        self.partitions.wait().await;
    }
}

/// Follows both kinds until it is dropped. Pods to reconcile go to `trigger`, after the new state is known.
pub(super) async fn follow(context: Arc<Context>, trigger: UnboundedSender<Arc<PodRef>>) {
    let (client, scope) = (&context.client, &context.settings.scope);
    let native = watcher::Config::default().labels(&format!("{NATIVE_POD_LABEL}=true"));
    let pods = scope::watch::everywhere::<Guarded<Pod>>(client, scope, native);
    // Those of IPUJobs are the job reconciler's.
    let of_no_job = watcher::Config::default().labels(&format!("!{JOB_UID_LABEL}"));
    let partitions = Api::<Guarded<IPUPartition>>::all(client.clone());
    let partitions = watcher(partitions, of_no_job).default_backoff();
    let hear_pod = |event| match readable(untrimmed(event)) {
        Some(event) => context.observed.hear_pod(event),
        None => Vec::new(),
    };
    // The proxy tells of those that cannot be read, in their events.
    let hear_partition = |event| match of_scope(untrimmed(event), scope) {
        Some(event) => context.observed.hear_partition(event),
        None => Vec::new(),
    };
    let lists = &context.lists;
    tokio::join!(
        follow_kind("Pod", pods, hear_pod, &lists.pods, &trigger),
        follow_kind(
            "IPUPartition",
            partitions,
            hear_partition,
            &lists.partitions,
            &trigger
        ),
    );
}

/// Follows one watch.
async fn follow_kind<W: Resource>(
    kind: &'static str,
    events: impl Stream<Item = watcher::Result<Event<W>>>,
    mut hear: impl FnMut(Event<W>) -> Vec<Arc<PodRef>>,
    listed: &SetOnce<()>,
    trigger: &UnboundedSender<Arc<PodRef>>,
) {
    let mut events = pin!(events);
    while let Some(event) = events.next().await {
        let event = match event {
            Ok(event) => event,
            Err(error) => {
                tracing::warn!(
                    kind,
                    "a watch was interrupted, and begins again: {}",
                    explain(&error)
                );
                continue;
            }
        };
        let is_complete = matches!(event, Event::InitDone);
        let heard = panics::caught_now(|| hear(event));
        if heard.is_err() {
            tracing::error!(kind, "an object that the watch reported is left out");
        }
        for pod in heard.unwrap_or_default() {
            // There is no receiver any more while the reconciler ends.
            let _ = trigger.unbounded_send(pod);
        }
        if is_complete {
            // A later list changes nothing.
            let _ = listed.set(());
        }
    }
}

/// IPUPartitions are cluster-scoped: those for owners of other releases are in the watch as well.
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
