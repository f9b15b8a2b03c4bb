//! Reconciles IPUJobs: observe → validate → facts → phase → plan → apply → status.
//!
//! Entry points:
//! - [`run`] reconciles until it is stopped. `step` reads what one reconcile of one job needs, and
//!   [`executor`] carries the reconcile out over its effects. It reads as a table of contents.
//! - [`phase`] decides the phase of a job, and by the rule of [`restart`] whether it restarts.
//!   [`plan`] decides what to create and delete. These are pure.
//! - [`delivery`] finds out whether nodes can mount the agent's image.
//! - `kube_effects` and [`writes`] do the I/O. [`validate`] checks the spec, [`build`] builds Pods
//!   and IPUPartitions, and [`status`] computes status and events.
//!
//! It creates and deletes IPUPartitions and reads their status. It must not know V-IPU controllers,
//! guests or webhooks.
#![forbid(unsafe_code)]

pub mod build;
pub mod cache;
mod cache_sync;
mod context;
pub mod delivery;
mod dependents_watch;
pub mod executor;
pub mod facts;
pub mod finalize;
pub mod job_conditions;
pub mod job_object;
mod kube_effects;
pub mod lost_node;
pub mod metrics;
pub mod node_affinity;
pub mod observe;
pub mod outcome;
pub mod phase;
pub mod plan;
pub mod pod_set;
pub mod pull_secrets;
pub mod raw;
pub mod restart;
pub mod rolling_update;
pub mod salvage;
mod shared_rights;
pub mod status;
mod step;
#[cfg(test)]
pub(crate) mod tests;
pub mod trial;
pub mod validate;
pub mod verified;
pub mod views;
mod watches;
pub mod writes;

use std::sync::Arc;
use std::time::Duration;

use futures::channel::mpsc;
use ipu_api::ipujob::IPUJob;
use ipu_api::ipupartition::IPUPartition;
use ipu_runtime::dry_run::DryRuns;
use ipu_runtime::scope::Scope;
use ipu_runtime::served_group::ServedGroup;
use ipu_runtime::trimmed::Trimmed;
use ipu_runtime::work_queue::{self, Limits, Requeue, guarded};
use kube::Client;
use kube::api::{Api, ListParams};
use kube::core::PartialObjectMeta;
use thiserror::Error;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use self::build::PodSettings;
use self::context::Context;
use self::delivery::Mountable;
use self::job_object::JobRef;
use self::metrics::JobMetrics;
use self::observe::ObserveError;
use self::raw::RawJob;
use self::writes::WriteError;

/// Time limit of one reconcile, so that a hung connection does not block a job.
const DEADLINE: Duration = Duration::from_mins(2);

/// Maximum number of concurrent reconciles.
const CONCURRENCY: usize = 32;

/// The admin's settings for jobs.
#[derive(Clone, Debug, PartialEq)]
pub struct JobSettings {
    /// Settings of the Pods.
    pub pods: PodSettings,
    /// Maximum number of IPUs of one partition.
    pub max_ipus_per_job: u32,
    /// Time for which a node must be unreachable before its terminating Pods are force-deleted.
    /// `None` disables that.
    pub lost_node: Option<Duration>,
    /// Name of this process in events, such as the Pod's name.
    pub instance: Option<String>,
    /// The namespaces whose jobs are reconciled.
    pub scope: Scope,
}

/// What the reconciler shares with the rest of its process.
#[derive(Clone, Debug, Default)]
pub struct Shared {
    /// Whether Kueue decides when a job in a queue starts.
    pub kueue: ServedGroup,
    /// What the API server has accepted lately.
    pub dry_runs: DryRuns,
    /// Whether new Pods mount the agent's image, whatever their settings are.
    pub mountable: Mountable,
}

/// A failure to start the controller.
#[derive(Debug, Error)]
pub enum RunError {
    /// IPUJobs cannot be listed, because the CRD or the permission is missing.
    #[error("failed to list IPUJobs; is crds/ipujobs.graphcore.ai.yaml applied?")]
    Jobs(#[source] kube::Error),
    /// IPUPartitions cannot be listed, because the CRD or the permission is missing.
    #[error("failed to list IPUPartitions; is crds/ipupartitions.graphcore.ai.yaml applied?")]
    Partitions(#[source] kube::Error),
}

/// A failed step of a reconcile.
#[derive(Debug, Error)]
enum StepError {
    /// A read failed.
    #[error("failed to read the objects of the IPUJob")]
    Observe(#[from] ObserveError),
    /// A write failed.
    #[error("failed to write the objects of the IPUJob")]
    Write(#[from] WriteError),
}

impl work_queue::StepError for StepError {
    fn category(&self) -> &'static str {
        match self {
            Self::Observe(ObserveError::Node(..)) => "ObserveNode",
            Self::Observe(ObserveError::Job(_)) => "ObserveJob",
            Self::Observe(ObserveError::ServiceAccount(..)) => "ObserveServiceAccount",
            Self::Observe(ObserveError::LauncherPolicy(..)) => "ObserveLauncherPolicy",
            Self::Write(_) => "Write",
        }
    }

    fn is_stale(&self) -> bool {
        matches!(self, Self::Write(error) if error.is_conflict())
    }
}

/// Reconciles IPUJobs until `shutdown`, then finishes the reconciles in progress. While `kueue` is
/// served, a job in a queue starts only with an admission in its status.
pub async fn run(
    client: Client,
    settings: JobSettings,
    shared: Shared,
    metrics: &JobMetrics,
    shutdown: CancellationToken,
) -> Result<(), RunError> {
    check_lists(&client).await?;
    let context = Arc::new(Context::new(client, settings, shared, metrics));
    let _watching = metrics.jobs.watching();
    let (trigger, triggers) = mpsc::unbounded();
    // The watches end with this function, also if it is dropped.
    let _watches = follow(&context, trigger);
    let limits = Limits {
        concurrency: CONCURRENCY,
        reconciles: &metrics.reconciles,
        stop: shutdown,
    };
    let reconcile = |job, _| reconcile(job, Arc::clone(&context));
    let listed = context.cache_sync.wait_synced::<IPUJob>();
    work_queue::run(triggers, listed, reconcile, limits).await;
    context.events.close().await;
    Ok(())
}

/// Starts the watches of jobs and of their objects.
fn follow(context: &Arc<Context>, trigger: mpsc::UnboundedSender<Arc<JobRef>>) -> JoinSet<()> {
    let mut watching = JoinSet::new();
    watching.spawn(dependents_watch::follow(
        Arc::clone(context),
        trigger.clone(),
    ));
    watching.spawn(watches::follow(Arc::clone(context), trigger));
    let context = Arc::clone(context);
    watching.spawn(async move { context.cache_sync.log_unsynced().await });
    watching
}

/// Checks that the watched kinds can be listed. A watch would retry for ever.
async fn check_lists(client: &Client) -> Result<(), RunError> {
    let one = ListParams::default().limit(1);
    let jobs: Api<Trimmed<RawJob>> = Api::all(client.clone());
    jobs.list(&one).await.map_err(RunError::Jobs)?;
    let partitions: Api<PartialObjectMeta<IPUPartition>> = Api::all(client.clone());
    partitions.list(&one).await.map_err(RunError::Partitions)?;
    Ok(())
}

/// Reconciles one job once.
async fn reconcile(job: Arc<JobRef>, context: Arc<Context>) -> Requeue {
    if !context.views.jobs.contains(job.uid) {
        // The job was deleted before the event of one of its objects arrived, or it never existed:
        // a user can create an object with any owner reference.
        context.forget(job.uid);
        return Requeue::Never;
    }
    let step = Box::pin(step::step(&context, &job));
    let requeue = guarded(&job, &context.reconciles, DEADLINE, step).await;
    // The job may have been deleted meanwhile.
    context.forget_if_deleted(job.uid);
    requeue
}
