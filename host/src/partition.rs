//! Reconciles IPUPartition objects: the request, the write-ahead record and the thing to watch in one.

mod context;
mod events;
mod execute;
pub mod fleet;
pub mod knowledge;
mod leftovers;
mod look;
pub mod node_labels;
pub mod orphans;
mod pace;
pub mod placing;
mod reconcile;
pub mod record;
mod release;
pub mod step;
pub mod sweep;
pub mod tracker;
mod unreadable;
mod wanted;

use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt, stream};
use kube::api::Api;
use kube::runtime::controller::{self, Controller};
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher;
use tokio_util::sync::CancellationToken;

pub use context::Context;
pub use reconcile::Guarded;

use crate::api::ipupartition::{IPUPartition, IPUPartitionStatus};

/// IPUPartitions that are worked on at the same time. One that forms holds its place for minutes.
const CONCURRENCY: u16 = 64;

/// How long things given back are gathered before those who wait are looked at again.
const GATHERING: Duration = Duration::from_millis(200);

/// What watches and reconciles IPUPartitions.
pub struct Reconciler {
    context: Arc<Context>,
    controller: Controller<Guarded>,
}

impl Reconciler {
    /// A reconciler that does nothing yet.
    pub fn new(context: Arc<Context>) -> Self {
        let api = Api::<Guarded>::all(context.client.clone());
        let controller = Controller::new(api, watcher::Config::default());
        Reconciler {
            context,
            controller,
        }
    }

    /// The IPUPartitions, as the watch last saw them.
    pub fn store(&self) -> Store<Guarded> {
        self.controller.store()
    }

    /// Reconciles until it is told to stop; then what is under way comes to its end.
    pub async fn run(self, stop: CancellationToken) {
        let waiting = those_who_wait(self.context.clone(), self.store());
        let config = controller::Config::default().concurrency(CONCURRENCY);
        self.controller
            .with_config(config)
            .reconcile_on(waiting)
            .graceful_shutdown_on(async move { stop.cancelled().await })
            .run(reconcile::reconcile, reconcile::after_error, self.context)
            .for_each(async |result| {
                if let Err(error) = result {
                    tracing::debug!(error = reconcile::chain(&error), "a reconcile ended early");
                }
            })
            .await;
    }
}

/// Every IPUPartition that can be read, as the watch last saw it.
pub fn readable(store: &Store<Guarded>) -> Vec<IPUPartition> {
    let objects = store.state().into_iter();
    objects.filter_map(|object| object.0.clone().ok()).collect()
}

/// The IPUPartitions that wait for room, oldest first, each time that IPUs were given back or the
/// list of controllers changed.
fn those_who_wait(
    context: Arc<Context>,
    store: Store<Guarded>,
) -> impl Stream<Item = ObjectRef<Guarded>> {
    let changes = context.fleet.registry().subscribe();
    let occasions = stream::unfold((context, changes), |(context, mut changes)| async move {
        tokio::select! {
            () = context.given_back.notified() => {}
            changed = changes.changed() => if changed.is_err() {
                // Nobody changes the list any more.
                context.given_back.notified().await;
            },
        }
        tokio::time::sleep(GATHERING).await;
        Some(((), (context, changes)))
    });
    occasions.flat_map(move |()| stream::iter(waiting(readable(&store))))
}

fn waiting(mut partitions: Vec<IPUPartition>) -> Vec<ObjectRef<Guarded>> {
    partitions.retain(|partition| partition.status.as_ref().is_none_or(has_no_partition));
    partitions.sort_by_key(|one| one.metadata.creation_timestamp.clone().map(|time| time.0));
    let names = partitions
        .iter()
        .filter_map(|one| one.metadata.name.as_deref());
    names.map(ObjectRef::new).collect()
}

fn has_no_partition(status: &IPUPartitionStatus) -> bool {
    status.partition_id.is_none()
}

#[cfg(test)]
mod simulation;
