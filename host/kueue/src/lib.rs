//! Makes IPUJobs wait in the queues of Kueue, as Kueue does for its own jobs.
//!
//! A job with the label `kueue.x-k8s.io/queue-name` gets a Workload; Kueue admits the Workload, and
//! the job starts; Kueue evicts it, and the job stops.
//!
//! Entry points:
//! - [`run`] reconciles until it is stopped. `watches` and `execute` do the I/O.
//! - [`job`], [`objects`] and [`partitions`] keep what decisions read, [`pod_sets`] counts the
//!   job's Pods and IPUs, [`plan`] decides the next step, [`check`] answers the AdmissionCheck
//!   `graphcore.ai/partition`, and [`build`] makes the objects and patches. These are pure.
//! - [`native`] decides about Workloads of other jobs, whose Pods request IPUs themselves.
//!
//! It writes Workloads, and of an IPUJob only `spec.suspend`, `status.admission` and one condition.
//! For an IPUJob it creates no Pod and no partition: `ipu-jobs` does. Before the admission of
//! another job it creates partitions for the Pods, which these claim (`ipu-pods`). It must not know
//! V-IPU controllers, guests or webhooks.
#![forbid(unsafe_code)]

pub mod build;
pub mod check;
mod execute;
pub mod job;
pub mod mirror;
pub mod native;
pub mod objects;
pub mod observed;
pub mod partitions;
pub mod plan;
pub mod pod_sets;
#[cfg(test)]
mod samples;
pub mod updates;
mod watches;

use std::sync::Arc;
use std::time::Duration;

use futures::channel::mpsc;
use ipu_api::object_ref::ObjectRef;
use ipu_api::{API_VERSION, labels};
use ipu_jobs::JobSettings;
use ipu_runtime::clock;
use ipu_runtime::events::{Event, EventQueue, normal, warning};
use ipu_runtime::scope::watch::FirstLists;
use ipu_runtime::work_queue::metrics::Reconciles;
use ipu_runtime::work_queue::{self, Limits, Requeue, guarded};
use ipu_text::{explain, sanitize};
use kube::Client;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use self::execute::RequestError;
use self::job::QueuedJob;
use self::mirror::Due;
use self::objects::Workload;
use self::observed::{Key, Lookup, Observed};
use self::plan::{ObservedJob, Plan, Step};

/// Longest time of one reconcile.
const DEADLINE: Duration = Duration::from_mins(1);

/// Reconciles that may run at the same time.
const CONCURRENCY: usize = 16;

/// Requeue delay of a step that waits for something that no watch of this package shows.
const BLOCKED: Duration = Duration::from_secs(2);

/// Requeue delay of a job that has left its queue and still has a Workload: the events of such a
/// job trigger nothing.
const LEFT_QUEUE: Duration = Duration::from_secs(15);

/// Requeue delay of a job whose Workload the API server refuses.
const REFUSED: Duration = Duration::from_secs(30);

/// Longest reason in an event, in bytes.
const NOTE_MAX: usize = 1_000;

/// Settings of the reconciler.
#[derive(Clone, Debug)]
pub struct KueueSettings {
    /// The admin's settings for jobs. Kueue counts the jobs' Pods, and a Pod has no more IPUs than
    /// a job either.
    pub jobs: JobSettings,
    /// Whether Pods that request IPUs themselves are reconciled.
    pub has_native_pods: bool,
}

/// State that all reconciles share. A restart loses nothing of it.
struct Context {
    client: Client,
    settings: KueueSettings,
    events: EventQueue,
    observed: Observed,
    cache_sync: FirstLists,
    reconciles: Reconciles,
}

/// Reconciles queued jobs until `stop`, then finishes the reconciles in progress.
pub async fn run(
    client: Client,
    settings: KueueSettings,
    reconciles: &Reconciles,
    stop: CancellationToken,
) {
    let context = Arc::new(Context {
        events: EventQueue::new(
            &client,
            labels::FIELD_MANAGER,
            settings.jobs.instance.as_deref(),
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
    let reconcile = |key, _| reconcile(key, Arc::clone(&context));
    let synced = context.cache_sync.wait_synced();
    work_queue::run(triggers, synced, reconcile, limits).await;
    context.events.close().await;
}

/// Carries out the next step of one object.
async fn reconcile(key: Key, context: Arc<Context>) -> Requeue {
    let step = step(&context, &key);
    guarded(&key, &context.reconciles, DEADLINE, step).await
}

/// Returns the requeue delay; `None` waits for the next event.
async fn step(context: &Context, key: &Key) -> Result<Option<Duration>, RequestError> {
    match key {
        Key::Job(job) => match context.observed.job(job) {
            Lookup::Queued(seen) => of_job(context, &seen).await,
            Lookup::Unqueued(workloads) => of_unqueued(context, job, workloads).await,
        },
        Key::Workload(namespace, name) => of_other(context, namespace, name).await,
        Key::Check(name) => {
            if let Some(check) = context.observed.check(name) {
                execute::activate(&context.client, &check).await?;
            }
            Ok(None)
        }
    }
}

/// Plans and executes the next step of a job. Without one, its condition is brought up to date.
async fn of_job(context: &Context, seen: &ObservedJob) -> Result<Option<Duration>, RequestError> {
    let now = clock::now();
    let Plan {
        workload,
        step,
        requeue,
    } = plan::plan(seen, now);
    let (job, workload) = (&seen.job, workload.as_deref());
    let Some(step) = step else {
        let mirrored = match workload {
            Some(workload) if job.queue.is_some() => mirror::due(job, workload, now),
            Some(_) => Due::Never,
            None if job.runs_unadmitted() => mirror::outside(job, now),
            None => Due::Never,
        };
        return match mirrored {
            Due::Never => Ok(requeue),
            Due::Later(delay) => Ok(Some(requeue.map_or(delay, |requeue| requeue.min(delay)))),
            Due::Now(conditions) => {
                execute::set_conditions(&context.client, job, &conditions).await?;
                Ok(requeue)
            }
        };
    };
    match execute::step(context, job, workload, &step).await {
        Ok(is_done) => {
            if is_done {
                publish(context, job, event(&step, workload).into_iter().collect());
            }
            Ok((!is_done).then_some(BLOCKED))
        }
        Err(error) if error.is_refusal() => {
            let remedy = "correct the IPUJob, or ask the admin of the queue";
            report_failure(context, job, format!("{}; {remedy}", explain(&error)));
            Ok(Some(REFUSED))
        }
        Err(error) if error.is_for_admins() => {
            report_failure(context, job, explain(&error));
            Err(error)
        }
        Err(error) => Err(error),
    }
}

/// Publishes the event of a step that failed, and that no retry alone can carry out.
fn report_failure(context: &Context, job: &QueuedJob, note: String) {
    publish(context, job, vec![warning("QueueingFailed", "Queue", note)]);
}

fn publish(context: &Context, job: &QueuedJob, events: Vec<Event>) {
    let job = job.reference.object_reference(API_VERSION, "IPUJob");
    context.events.publish(job, events);
}

/// The event of a step for users.
fn event(step: &Step, workload: Option<&Workload>) -> Option<Event> {
    match step {
        Step::Start(_) => {
            let admission = workload?.status.as_ref()?.admission.as_ref()?;
            let note = format!("admitted by ClusterQueue {}", admission.cluster_queue);
            Some(normal("QueueAdmitted", "Start", note))
        }
        Step::Stop(reason) => {
            let note = sanitize(reason, NOTE_MAX);
            Some(normal("QueueStopped", "Stop", note))
        }
        _ => None,
    }
}

/// Reconciles Workloads whose job is not in a queue: it has left its queue, or it is gone.
async fn of_unqueued(
    context: &Context,
    job: &ObjectRef,
    workloads: Vec<Arc<Workload>>,
) -> Result<Option<Duration>, RequestError> {
    if workloads.is_empty() {
        return Ok(None);
    }
    let Some(found) = execute::living_job(&context.client, job).await? else {
        return of_gone(context, job, &workloads).await;
    };
    // A job that is deleted, or in its queue again, has another event.
    let Some(job) = QueuedJob::unqueued(&found) else {
        return Ok(None);
    };
    let delay = of_job(context, &context.observed.unqueued(job, workloads)).await?;
    // No event reports the writes of this step, or the end of the job.
    Ok(Some(
        delay.map_or(LEFT_QUEUE, |delay| delay.min(LEFT_QUEUE)),
    ))
}

/// Removes the finalizers of Workloads whose job is gone.
async fn of_gone(
    context: &Context,
    job: &ObjectRef,
    workloads: &[Arc<Workload>],
) -> Result<Option<Duration>, RequestError> {
    if context.observed.has_partitions(job) {
        // Its end triggers the next reconcile.
        return Ok(None);
    }
    let mut is_done = true;
    for workload in workloads {
        is_done &= execute::release_of_gone(&context.client, job, workload).await?;
    }
    Ok((!is_done).then_some(BLOCKED))
}

/// Plans and executes the next step of a Workload that belongs to no IPUJob.
async fn of_other(
    context: &Context,
    namespace: &str,
    name: &str,
) -> Result<Option<Duration>, RequestError> {
    let seen = context.observed.other_workload(namespace, name);
    let settings = &context.settings;
    let max_ipus = settings
        .has_native_pods
        .then_some(settings.jobs.max_ipus_per_job);
    let native::Plan { step, requeue } = native::plan(&seen, max_ipus, clock::now());
    let Some(step) = step else {
        return Ok(requeue);
    };
    execute::native::step(&context.client, seen.workload.as_deref(), &step).await?;
    // Mostly an event comes before.
    Ok(Some(BLOCKED))
}
