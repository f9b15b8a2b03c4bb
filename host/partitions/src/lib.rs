//! Reconciles IPUPartitions: each is the request for a V-IPU partition, the record of the attempts to create it, and
//! the object to watch.
//!
//! Entry points:
//! - [`run`] reconciles until it is stopped, and [`sweep`] removes partitions without an owner.
//! - `next_step` decides on the next step of one IPUPartition from its status ([`status_update`]) and the observations
//!   of the reconcile ([`observations`]); it is pure. `execute` carries a step out on a V-IPU controller.
//! - `lifecycle` decides on desired partitions, `finalize` on deleted ones. A lost reply leaves an attempt with an
//!   unknown outcome, which `lost_replies` settles.
//! - `placement_loop` decides on the V-IPU controller of each partition that needs one, in the order of [`queue`], with
//!   a request to the guests ([`placement_request`]).
//! - [`controller_objects`] manages a VIPUController for each V-IPU controller, and [`accounting`] adds up where
//!   IPU-seconds went.
//!
//! It reads Pods only to find out whether one uses a partition, and whether it is ready. It must not know the rules of
//! IPUJobs, the webhooks, or how a guest is loaded.
#![forbid(unsafe_code)]

pub mod account_recorder;
pub mod accounting;
pub mod advertise;
pub mod cache;
pub mod capacity;
mod context;
pub mod controller_objects;
mod controller_permits;
pub mod controller_pool;
pub mod controller_summary;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod cooperative_env;
#[cfg(any(test, feature = "fixtures"))]
pub mod crd_schema;
mod duplicates;
mod evaluate;
mod events;
pub mod eviction;
mod execute;
mod finalize;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod inventory_view;
mod known_sizes;
mod lifecycle;
mod lost_replies;
pub mod metrics;
mod next_step;
pub mod nodes;
pub mod observations;
pub mod orphans;
mod placement_loop;
mod placement_pass;
mod placement_queue;
pub mod placement_request;
pub mod pod_users;
#[cfg(test)]
mod proptests;
pub mod queue;
mod queue_state;
mod read_your_writes;
mod reconcile;
mod reconcile_history;
pub mod refusals;
mod remote_state;
mod requeue;
#[cfg(any(test, feature = "fixtures"))]
pub mod samples;
mod shared_queue;
#[cfg(any(test, feature = "fuzzing"))]
#[cfg_attr(
    not(test),
    expect(dead_code, reason = "the simulation needs more of it")
)]
mod sim_adapter;
pub mod state_unknown;
pub mod status_update;
pub mod step;
mod steps;
pub mod sweep;
pub mod tracker;
mod unreadable;
pub mod watched;

use std::sync::Arc;

use futures::channel::mpsc;
use futures::stream;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub use cache::Guarded;
pub use context::{Context, Shared};

use cache::Brief;
use ipu_runtime::work_queue::{self, Limits};

/// Concurrent reconciles, without those that wait for V-IPU controllers: a new partition takes minutes.
const CONCURRENCY: usize = 64;

/// Reconciles IPUPartitions, from the complete list on until `stop`. Reconciles in progress come to their end.
pub async fn run(context: Arc<Context>, stop: CancellationToken) {
    let limits = Limits {
        concurrency: CONCURRENCY,
        reconciles: &context.reconciles,
        stop,
    };
    // It has at most as many names as partitions wait for a decision, or for a permit of a controller.
    let (sender, decided) = mpsc::unbounded();
    context.permits.send_to(sender.clone());
    let names = stream::select(context.watched.names(), decided);
    let reconcile = |name, slot| reconcile::reconcile(name, slot, context.clone());
    let reconciling = work_queue::run(names, context.watched.once_listed(), reconcile, limits);
    // In a task of its own: nothing else waits for long decisions. It ends with this function.
    let mut placing = JoinSet::new();
    placing.spawn(placement_loop::run(context.clone(), sender));
    reconciling.await;
}

/// The IPUPartitions with partitions on drained, gone and renamed controllers.
fn partitions_to_move(context: &Context) -> Vec<Arc<str>> {
    let known = context.pool.registry().known();
    let (cordons, departed) = (&known.cordons, &known.departed);
    let is_other = |name: &str| {
        eviction::is_draining(name, cordons)
            || departed.gone.contains(name)
            || departed.renamed.contains_key(name)
    };
    let others: Vec<Arc<str>> = context.watched.read(|cache| {
        let held = cache.allocations().controllers();
        held.filter(|name| is_other(name)).map(Into::into).collect()
    });
    if others.is_empty() {
        return Vec::new();
    }
    let is_there = |one: &Brief| {
        one.held
            .iter()
            .any(|held| others.contains(&held.controller))
    };
    context.watched.read(|cache| cache.names_of(is_there))
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod simulation;
