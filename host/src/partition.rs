//! Reconciles IPUPartition objects: the request, the write-ahead record and the thing to watch in one.

pub mod conditions;
mod context;
#[cfg(any(test, feature = "fuzzing"))]
#[cfg_attr(
    not(test),
    expect(dead_code, reason = "the simulation needs more of it")
)]
mod driver;
mod events;
mod execute;
pub mod fleet;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod honest;
mod inheritance;
pub mod knowledge;
mod leftovers;
pub mod line;
mod look;
pub mod node_labels;
#[cfg(test)]
mod nonsense;
pub mod orphans;
mod pace;
pub mod placing;
mod reconcile;
pub mod record;
mod release;
mod seek;
pub mod step;
pub mod surroundings;
pub mod sweep;
pub mod tracker;
mod turns;
mod unreadable;
pub mod usage;
mod users;
mod wanted;
pub mod watched;
mod written;

use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt, stream};
use kube::ResourceExt;
use kube::runtime::controller::{self, Controller};
use kube::runtime::reflector::{ObjectRef, Store};
use tokio_util::sync::CancellationToken;

pub use context::{Context, Shared};
pub use reconcile::Guarded;

use crate::api::ipupartition::IPUPartition;
use crate::clock;

/// IPUPartitions that are worked on at the same time. One that forms holds its place for minutes.
const CONCURRENCY: u16 = 64;

/// How long things given back are gathered before those who wait are looked at again.
const GATHERING: Duration = Duration::from_millis(200);

/// Reconciles IPUPartitions until it is told to stop; then what is under way comes to its end.
pub async fn run(context: Arc<Context>, stop: CancellationToken) {
    let waiting = those_who_wait(context.clone());
    let config = controller::Config::default().concurrency(CONCURRENCY);
    let reconciles = context.reconciles.clone();
    let _queue = reconciles.queue();
    let wanted = reconciles.clone();
    let objects = context.watched.objects();
    let objects = objects.inspect(move |object| wanted.wanted(&object.name_any()));
    let wanted = reconciles.clone();
    let waiting = waiting.inspect(move |object| wanted.wanted(&object.name));
    Controller::for_shared_stream(objects, context.watched.store().clone())
        .with_config(config)
        .reconcile_on(waiting)
        .graceful_shutdown_on(async move { stop.cancelled().await })
        .run(reconcile::reconcile, reconcile::after_error, context)
        .for_each(async |result| {
            if let Err(controller::Error::ObjectNotFound(object)) = &result {
                reconciles.unwanted(&object.name);
            }
            if let Err(error) = result {
                tracing::debug!(error = reconcile::chain(&error), "a reconcile ended early");
            }
        })
        .await;
}

/// Every IPUPartition that can be read, as the watch last saw it.
pub fn readable(store: &Store<Guarded>) -> Vec<IPUPartition> {
    let objects = store.state().into_iter();
    objects.filter_map(|object| object.0.clone().ok()).collect()
}

/// The IPUPartitions that wait for room, oldest first, and those that are to leave their controller,
/// each time that IPUs were given back or the list of controllers changed.
fn those_who_wait(context: Arc<Context>) -> impl Stream<Item = ObjectRef<Guarded>> {
    let changes = context.fleet.registry().subscribe();
    let state = (context.clone(), changes);
    let occasions = stream::unfold(state, |(context, mut changes)| async move {
        tokio::select! {
            () = context.given_back.notified() => {}
            changed = changes.changed() => if changed.is_err() {
                // Nobody changes the list any more.
                context.given_back.notified().await;
            },
        }
        context.turns.room_was_made();
        tokio::time::sleep(GATHERING).await;
        Some(((), (context, changes)))
    });
    occasions.flat_map(move |()| {
        let line = context.turns.line(context.watched.store(), clock::now());
        let waiting: Vec<_> = line.iter().map(|one| ObjectRef::new(&one.name)).collect();
        stream::iter(waiting).chain(stream::iter(those_to_leave(&context)))
    })
}

/// The IPUPartitions on controllers that are being drained.
fn those_to_leave(context: &Context) -> Vec<ObjectRef<Guarded>> {
    let closed = context.fleet.closed();
    if closed.is_empty() {
        return Vec::new();
    }
    let is_drained = |object: &&Arc<Guarded>| {
        let partition = object.0.as_ref();
        partition.is_ok_and(|partition| surroundings::is_drained(partition, &closed))
    };
    let objects = context.watched.store().state();
    let drained = objects.iter().filter(is_drained);
    drained
        .map(|object| ObjectRef::from_obj(&**object))
        .collect()
}

#[cfg(test)]
mod simulation;
