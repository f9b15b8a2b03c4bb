//! Reconciles IPUPartitions: each is the request for a V-IPU partition, the record of the attempts
//! to create it, and the object to watch.
//!
//! `ipu-ledger` decides what happens to one IPUPartition, and `ipu-placement` which controller it
//! may use. This package carries both out. Its rooms:
//! - [`run`] reconciles until it is stopped: `scheduler` decides on the partitions that need a
//!   controller, one cycle after the other, and `reconcile` takes each partition to its next steps.
//!   `leader` has what only the leader knows.
//! - [`sweep`] removes partitions without an owner.
//! - [`store`] keeps the IPUPartitions that the watch has seen, [`nodes`] the nodes, and
//!   [`pod_users`] finds the Pods that use a partition.
//! - [`controllers`] are the clients of V-IPU controllers, with what each has reported.
//! - [`publish`] writes what others read, such as VIPUControllers; [`accounting`] adds up where
//!   IPU-seconds went, and [`metrics`] counts.
//!
//! It reads Pods only to find out whether one uses a partition, and whether it is ready. It must
//! not know the rules of IPUJobs, the webhooks, or how a guest is loaded.
#![forbid(unsafe_code)]

pub mod accounting;
pub mod controllers;
mod leader;
pub mod metrics;
pub mod nodes;
pub mod pod_users;
pub mod publish;
pub mod reconcile;
mod scheduler;
pub mod store;
pub mod sweep;

use std::sync::Arc;

use futures::channel::mpsc;
use futures::stream;
use ipu_runtime::work_queue::{self, Limits};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub use leader::{Context, Shared};
pub use store::Guarded;

/// Concurrent reconciles, without those that wait for V-IPU controllers: a new partition takes
/// minutes.
const CONCURRENCY: usize = 64;

/// Reconciles IPUPartitions, from the complete list on until `stop`. Reconciles in progress come to
/// their end.
pub async fn run(context: Arc<Context>, stop: CancellationToken) {
    let limits = Limits {
        concurrency: CONCURRENCY,
        reconciles: &context.reconciles,
        stop,
    };
    // It has at most as many names as partitions wait for a decision, for a permit of a controller,
    // or for the end of Pods.
    let (sender, decided) = mpsc::unbounded();
    context.permits.send_to(sender.clone());
    context.pod_waits.send_to(sender.clone());
    let names = stream::select(context.watched.names(), decided);
    let reconcile = |name, slot| reconcile::reconcile(name, slot, context.clone());
    let reconciling = work_queue::run(names, context.watched.once_listed(), reconcile, limits);
    // In a task of its own: nothing else waits for long decisions. It ends with this function.
    let mut placing = JoinSet::new();
    placing.spawn(scheduler::run(context.clone(), sender));
    reconciling.await;
}
