//! The sweep: deletes IPUPartitions of owners that are gone, and removes partitions without an
//! IPUPartition.

mod executor;
mod lists;
mod ownerless;

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::future::join_all;
use ipu_api::ipupartition::{ControllerRef, IPUPartition};
use ipu_api::uid::Uid;
use ipu_ledger::sweep::Course;
use ipu_ledger::sweep::orphans::{self, RemotePartition, Suspects};
use ipu_runtime::panics;
use ipu_text::explain;
use kube::Client;
use kube::core::DeserializeGuard;
use tokio::task::coop;
use tokio_util::sync::CancellationToken;
use vipu_client::model::ReadyState;

use super::pod_users::ListPodsError;
use crate::controllers::ControllerPool;
use crate::leader::Context;
use crate::store::watch::Watched;
use executor::Executor;
use lists::Holdings;

/// Errors of one sweep that are logged individually.
const ERRORS_LOGGED: usize = 3;

/// Times of the sweep.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// Time between two sweeps that find nothing.
    pub period: Duration,
    /// Grace period of a partition without an owner, from when it was first seen.
    pub grace: Duration,
}

impl Default for Times {
    fn default() -> Self {
        Times {
            period: Duration::from_mins(2),
            grace: Duration::from_secs(30),
        }
    }
}

/// Failure of a sweep. The next one does the rest.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    /// The IPUPartitions, or the owners of one kind, could not be listed.
    #[error("failed to list {0}")]
    List(&'static str, #[source] kube::Error),
    /// The owner could not be read.
    #[error("failed to look for the owner of IPUPartition {0}")]
    GetOwner(String, #[source] kube::Error),
    /// An IPUPartition whose owner is gone could not be deleted.
    #[error("failed to delete IPUPartition {0}, whose owner is gone")]
    Delete(String, #[source] kube::Error),
    /// The Pods that use a partition could not be listed.
    #[error("failed to check whether Pods use a partition without an owner")]
    Users(#[source] ListPodsError),
    /// This replica did not renew its leadership in time: another one may lead.
    #[error("stopped: this replica's leadership has expired")]
    NotLeading,
}

/// Sweeps at the start and then periodically, until `stop`. After it has found a suspect, it sweeps
/// again at the end of the grace period, so no partition without an owner stays for longer than a
/// period.
pub async fn run(context: Arc<Context>, times: Times, stop: CancellationToken) {
    let (began, mut suspects) = (Instant::now(), Suspects::new());
    loop {
        // After a panic there are no suspects: each partition gets the whole grace period again.
        let (known, mut in_use) = (std::mem::take(&mut suspects), BTreeSet::new());
        match panics::caught(sweep(&context, known, times.grace, began)).await {
            Ok(swept) => {
                report(&swept.errors);
                (suspects, in_use) = (swept.suspects, swept.in_use);
            }
            Err(error) => tracing::error!(error = explain(&error), "the sweep was not complete"),
        }
        let pause = orphans::until_next(&suspects, &in_use, times.period, times.grace);
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = stop.cancelled() => return,
            () = clear_owned(&context.watched, &mut suspects) => {}
        }
    }
}

/// Removes partitions that turn out to have an owner from the suspects, without end.
async fn clear_owned(watched: &Watched, suspects: &mut Suspects) {
    let mut seen = pin!(watched.names());
    while let Some(name) = seen.next().await {
        if suspects.is_empty() {
            continue;
        }
        // There may be thousands of objects, so this yields to other tasks.
        coop::consume_budget().await;
        let object = watched.read(|cache| cache.get(&name));
        if let Some(DeserializeGuard(Ok(partition))) = object {
            orphans::clear_owned(suspects, &partition);
        }
    }
}

/// The result of a sweep.
struct Swept {
    /// Partitions without an owner, and since when.
    suspects: Suspects,
    /// Those of them that Pods use.
    in_use: BTreeSet<RemotePartition>,
    errors: Vec<SweepError>,
}

fn report(errors: &[SweepError]) {
    let first = errors.iter().take(ERRORS_LOGGED);
    let first: Vec<String> = first.map(|error| explain(error)).collect();
    if !first.is_empty() {
        let count = errors.len();
        tracing::warn!(count, ?first, "the sweep was not complete");
    }
}

/// One sweep. `suspects` are those of the last one, with times since `first`.
async fn sweep(context: &Context, suspects: Suspects, grace: Duration, first: Instant) -> Swept {
    let began = Instant::now();
    let is_to_judge = |one: &IPUPartition| ownerless::is_to_judge(one, &context.scope);
    let (found, held) = listed(&context.pool, &context.client, is_to_judge).await;
    let mut held = match held {
        Ok(held) => held,
        // Without that list it is unknown which partitions have an owner.
        Err(error) => {
            return Swept {
                suspects,
                in_use: BTreeSet::new(),
                errors: vec![error],
            };
        }
    };
    let judged = std::mem::take(&mut held.suspects);
    let ownerless = ownerless::without_owner(&context.client, judged).await;
    let mut orphans = orphans::find_orphans(
        found.iter().map(Found::key),
        |id| held.ids.contains(&Uid::of(id)),
        &suspects,
        &context.settings.identity,
        grace,
        first.elapsed(),
    );
    let (objects, partitions) = (held.objects, found.len());
    let (suspects, due) = (orphans.suspects.len(), orphans.due.len());
    // Those whose last removal had no answer come last.
    orphans
        .due
        .sort_by_key(|one| orphans.suspects.get(one).copied());
    let courses = Course::concurrent(ownerless, orphans.due);
    let executor = Executor {
        client: &context.client,
        pod_users: &context.pod_users,
        pool: &context.pool,
        leadership: &context.leadership,
        released: &context.released,
    };
    let (mut errors, mut in_use) = (Vec::new(), BTreeSet::new());
    for mut course in executor.run_all(&found, courses).await {
        for unanswered in course.take_unanswered() {
            orphans.suspects.insert(unanswered, first.elapsed());
        }
        in_use.append(&mut course.take_in_use());
        errors.extend(course.into_errors());
    }
    let seconds = began.elapsed().as_secs_f64();
    if suspects == 0 {
        tracing::debug!(objects, partitions, seconds, "swept");
    } else {
        tracing::info!(objects, partitions, suspects, due, seconds, "swept");
    }
    Swept {
        suspects: orphans.suspects,
        in_use,
        errors,
    }
}

/// The partitions on the controllers, and the holdings of the IPUPartitions after that.
/// `orphans::find_orphans` explains this order.
async fn listed(
    pool: &ControllerPool,
    client: &Client,
    is_to_judge: impl Fn(&IPUPartition) -> bool,
) -> (Vec<Found>, Result<Holdings, SweepError>) {
    let found = partitions_on_controllers(pool).await;
    (found, lists::holdings(client, is_to_judge).await)
}

/// A partition on a controller.
struct Found {
    controller: Arc<ControllerRef>,
    id: String,
    /// Whether it is in error, and has to be removed by force.
    is_in_error: bool,
}

impl Found {
    /// Name of its controller, and its id.
    fn key(&self) -> (&str, &str) {
        (&self.controller.name, &self.id)
    }
}

/// All partitions on the controllers that answer: those of the admin's list, and those on which an
/// IPUPartition still holds something. A controller that does not answer is swept when it is back.
async fn partitions_on_controllers(pool: &ControllerPool) -> Vec<Found> {
    let mut controllers = pool.controllers();
    controllers.extend(pool.left_behind());
    let lists = controllers.iter().map(|controller| async move {
        let list = match pool.client(controller) {
            Ok(client) => client.list().await,
            Err(error) => Err(error),
        };
        (controller, list)
    });
    let mut found = Vec::new();
    for (controller, list) in join_all(lists).await {
        let controller = Arc::new(controller.clone());
        match list {
            Ok(list) => found.extend(list.into_iter().map(|one| Found {
                controller: Arc::clone(&controller),
                is_in_error: one.ready_state == ReadyState::Error,
                id: one.id,
            })),
            Err(error) => tracing::info!(
                controller = controller.name,
                reason = error.reason(),
                "not swept, since it does not answer"
            ),
        }
    }
    found
}

#[cfg(test)]
mod tests;
