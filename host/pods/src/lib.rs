//! Reconciles native Pods: Pods of any owner that request IPUs and belong to no IPUJob.
//!
//! The webhook (`ipu-admission`) has put a scheduling gate on each of these Pods. A Pod of a
//! Workload of Kueue may claim an IPUPartition that `ipu-kueue` has created for it ([`claims`]).
//!
//! Entry points:
//! - [`run`] reconciles until it is stopped. `watches` and `execute` do the I/O.
//! - [`pod`] and [`partition`] keep what decisions read of a Pod and of an IPUPartition, [`start`]
//!   finds what keeps a Pod from its start, [`plan`] decides the next step of a Pod, and [`report`]
//!   computes its condition. These are pure, as are [`build`] and [`observed`].
//!
//! It creates and deletes IPUPartitions and reads their status, and evicts Pods that cannot use
//! theirs. It must not know V-IPU controllers, guests or IPUJobs.
#![forbid(unsafe_code)]

pub mod build;
pub mod claims;
mod execute;
pub mod observed;
pub mod partition;
pub mod plan;
pub mod pod;
pub mod report;
#[cfg(test)]
mod samples;
pub mod start;
mod watches;

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::channel::mpsc;
use ipu_api::labels;
use ipu_api::object_ref::ObjectRef;
use ipu_runtime::clock;
use ipu_runtime::events::EventQueue;
use ipu_runtime::scope::Scope;
use ipu_runtime::scope::watch::FirstLists;
use ipu_runtime::work_queue::metrics::Reconciles;
use ipu_runtime::work_queue::{self, Limits, Requeue, guarded};
use kube::Client;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use self::execute::RequestError;
use self::observed::{Lookup, Observed};
use self::plan::{Circumstances, Plan};
use self::report::Due;

/// Longest time of one reconcile.
const DEADLINE: Duration = Duration::from_mins(1);

/// Reconciles that may run at the same time.
const CONCURRENCY: usize = 16;

/// Requeue delay of a Pod with a stale cache. Usually a watch event comes first.
const CACHE_STALE: Duration = Duration::from_secs(1);

/// Requeue delay of a live Pod without its label, and of a Pod with an object that the API server
/// refuses.
const REFUSED: Duration = Duration::from_secs(30);

/// Settings of the reconciler.
#[derive(Clone, Debug, Default)]
pub struct NativePodSettings {
    /// Namespaces of the reconciled Pods.
    pub scope: Scope,
    /// Name of this process in events, such as the name of its Pod.
    pub instance: Option<String>,
    /// Time for which a node is unreachable until terminating Pods there are deleted by force.
    /// `None`: they never are.
    pub lost_node: Option<Duration>,
    /// Time after which a Pod that cannot start is evicted, if a controller owns it. `None`: it
    /// never is.
    pub start_timeout: Option<Duration>,
    /// Most IPUs of one Pod. `None`: no limit.
    pub max_ipus: Option<u32>,
}

/// State that all reconciles share. A restart loses nothing of it.
struct Context {
    client: Client,
    settings: NativePodSettings,
    events: EventQueue,
    observed: Observed,
    cache_sync: FirstLists,
    reconciles: Reconciles,
}

/// Reconciles native Pods until `stop`, then finishes the reconciles in progress.
pub async fn run(
    client: Client,
    settings: NativePodSettings,
    reconciles: &Reconciles,
    stop: CancellationToken,
) {
    let context = Arc::new(Context {
        events: EventQueue::new(
            &client,
            labels::FIELD_MANAGER,
            settings.instance.as_deref(),
            reconciles.events_lost.clone(),
        ),
        client,
        settings,
        observed: Observed::default(),
        cache_sync: FirstLists::new(watches::WATCHES),
        reconciles: reconciles.clone(),
    });
    let (trigger, triggers) = mpsc::unbounded();
    // It ends with this function, also where that is dropped.
    let mut following = JoinSet::new();
    following.spawn(watches::follow(Arc::clone(&context), trigger));
    let limits = Limits {
        concurrency: CONCURRENCY,
        reconciles,
        stop,
    };
    let reconcile = |pod, _| reconcile(pod, Arc::clone(&context));
    work_queue::run(
        triggers,
        context.cache_sync.wait_synced(),
        reconcile,
        limits,
    )
    .await;
    context.events.close().await;
}

/// Carries out the next step of one Pod.
async fn reconcile(pod: Arc<ObjectRef>, context: Arc<Context>) -> Requeue {
    let step = step(&context, &pod);
    guarded(&pod, &context.reconciles, DEADLINE, step).await
}

/// Observes, plans, executes and reports. Returns the requeue delay; `None` waits for the next
/// event.
async fn step(context: &Context, pod: &ObjectRef) -> Result<Option<Duration>, RequestError> {
    let seen = match context.observed.get(pod, Instant::now()) {
        Lookup::CacheStale => return Ok(Some(CACHE_STALE)),
        Lookup::Gone(None) => return Ok(None),
        Lookup::Gone(Some(partition)) => {
            let is_released = execute::release_of_gone(context, pod, &partition).await?;
            return Ok((!is_released).then_some(REFUSED));
        }
        Lookup::Found(seen) => seen,
    };
    let now = clock::now();
    let seen = execute::with_events(context, seen, now).await;
    let around = Circumstances {
        now,
        lost_node: context.settings.lost_node,
        node_lost_since: execute::node_lost_since(context, &seen.pod, now).await?,
        start_timeout: context.settings.start_timeout,
        max_ipus: context.settings.max_ipus.unwrap_or(u32::MAX),
    };
    let Plan {
        step,
        mut report,
        requeue,
    } = plan::plan(&seen, &around);
    let mut delay = None;
    // The condition is written first: a later step may delete the Pod.
    if step.as_ref().is_some_and(plan::Step::is_last) {
        delay = write_condition(context, &seen.pod, report.take()).await?;
    }
    if let Some(step) = step
        && let Some(refusal) = execute::step(context, &seen, step).await?
    {
        write_condition(context, &seen.pod, Some(refusal)).await?;
        return Ok(Some(REFUSED));
    }
    if report.is_some() {
        delay = write_condition(context, &seen.pod, report).await?;
    }
    Ok(delay.into_iter().chain(requeue).min())
}

/// Writes the condition of a Pod if it is due, and publishes its event.
async fn write_condition(
    context: &Context,
    pod: &pod::NativePod,
    report: Option<report::Report>,
) -> Result<Option<Duration>, RequestError> {
    let Some(report) = report else {
        return Ok(None);
    };
    match report::due(pod, &report, clock::now()) {
        Due::Never => Ok(None),
        Due::Later(delay) => Ok(Some(delay)),
        Due::Now(written) => {
            let (condition, event) = *written;
            execute::set_condition(context, &pod.reference, &condition).await?;
            let event = event.into_iter().collect();
            let regarding = pod.reference.object_reference("v1", "Pod");
            context.events.publish(regarding, event);
            Ok(None)
        }
    }
}
