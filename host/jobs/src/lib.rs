//! Reconciles IPUJobs: observe → validate → facts → phase → plan → apply → report.
//!
//! [`run`] reconciles until it is stopped. One step of one job is in `step`, which reads as a table of contents. `phase`
//! decides what a job is in, `restart` whether it starts again, and `plan` what to create and delete; these are pure.
//! `apply` and `writes` do the I/O. `validate` holds the rules of the spec, and `build` makes Pods and IPUPartitions.
//!
//! The package creates and deletes IPUPartitions and reads their status. It knows no V-IPU controller and no guest.
#![forbid(unsafe_code)]

pub mod apply;
pub mod build;
mod context;
pub mod facts;
pub mod finalize;
pub mod index;
pub mod kept;
mod lists;
pub mod metrics;
pub mod observe;
pub mod phase;
pub mod plan;
pub mod raw;
mod removed;
pub mod report;
pub mod restart;
pub mod rollout;
pub mod salvage;
pub mod settled;
mod step;
pub mod stranded;
#[cfg(test)]
pub(crate) mod tests;
pub mod validate;
pub mod watches;
pub mod writes;

use std::sync::Arc;
use std::time::Duration;

use futures::channel::mpsc;
use ipu_api::ipujob::IPUJob;
use ipu_api::ipupartition::IPUPartition;
use ipu_runtime::panics::{self, Panicked};
use ipu_runtime::scope::Scope;
use ipu_runtime::trimmed::Trimmed;
use ipu_runtime::work_queue::{self, Limits, Requeue};
use kube::Client;
use kube::api::{Api, ListParams};
use kube::core::PartialObjectMeta;
use thiserror::Error;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use self::build::PodSettings;
use self::context::Context;
use self::kept::JobRef;
use self::metrics::JobMetrics;
use self::observe::ObserveError;
use self::raw::RawJob;
use self::writes::WriteError;

/// Longest time that one reconcile may take; a hung connection must not hold a job for ever.
const DEADLINE: Duration = Duration::from_mins(2);

/// Reconciles that may run at the same time.
const CONCURRENCY: usize = 32;

/// Delays before a failed reconcile is tried again. A conflict means that the job was read too early;
/// everything else gets better by itself or when somebody mends it.
const BACK_OFF: Requeue = Requeue::BackOff {
    first: Duration::from_millis(250),
    most: Duration::from_mins(1),
};

/// What an admin sets about jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobSettings {
    /// How Pods are made.
    pub pods: PodSettings,
    /// Most IPUs of one partition.
    pub max_ipus_per_job: u32,
    /// How long a node may be silent before the Pods there that should have ended are deleted by
    /// force; missing: for ever.
    pub lost_node: Option<Duration>,
    /// Name of this process in events, the Pod's name for example.
    pub instance: Option<String>,
    /// Whose jobs are reconciled.
    pub scope: Scope,
}

/// Why the controller did not start.
#[derive(Debug, Error)]
pub enum RunError {
    /// IPUJobs cannot be listed: the CRD is missing, or the rights are.
    #[error("failed to list IPUJobs; is crds/ipujobs.graphcore.ai.yaml applied?")]
    Jobs(#[source] kube::Error),
    /// IPUPartitions cannot be listed: the CRD is missing, or the rights are.
    #[error("failed to list IPUPartitions; is crds/ipupartitions.graphcore.ai.yaml applied?")]
    Partitions(#[source] kube::Error),
}

/// Why one reconcile did not come to its end.
#[derive(Debug, Error)]
pub enum ReconcileError {
    /// Something could not be read.
    #[error("failed to observe the job")]
    Observe(#[from] ObserveError),
    /// Something could not be written.
    #[error("failed to carry out the plan")]
    Write(#[from] WriteError),
    /// It took too long.
    #[error("failed to reconcile within {DEADLINE:?}")]
    Deadline,
    /// It met an object that it cannot cope with.
    #[error("failed to reconcile the job")]
    Panicked(#[source] Panicked),
}

impl ReconcileError {
    /// What failed, in a word of few: a label of metrics.
    fn category(&self) -> &'static str {
        match self {
            Self::Observe(ObserveError::Node(..)) => "ObserveNode",
            Self::Write(error) if error.is_conflict() => "Conflict",
            Self::Write(_) => "Write",
            Self::Deadline => "Deadline",
            Self::Panicked(_) => "Panic",
        }
    }
}

/// Reconciles IPUJobs until `shutdown`, then finishes what is under way.
pub async fn run(
    client: Client,
    settings: JobSettings,
    metrics: &JobMetrics,
    shutdown: CancellationToken,
) -> Result<(), RunError> {
    can_list(&client).await?;
    let context = Arc::new(Context::new(client, settings, metrics));
    let _until_it_ends = metrics.jobs.following();
    let (touch, touched) = mpsc::unbounded();
    // It ends with this function, also where that is dropped.
    let _following = follow(&context, touch);
    let limits = Limits {
        concurrency: CONCURRENCY,
        reconciles: &metrics.reconciles,
        stop: shutdown,
    };
    let reconcile = |job| reconcile(job, Arc::clone(&context));
    let listed = context.lists.once_complete::<IPUJob>();
    work_queue::run(touched, listed, reconcile, limits).await;
    context.events.close().await;
    Ok(())
}

/// Follows what jobs have and what they need.
fn follow(context: &Arc<Context>, touch: mpsc::UnboundedSender<Arc<JobRef>>) -> JoinSet<()> {
    let mut following = JoinSet::new();
    following.spawn(removed::follow(Arc::clone(context), touch.clone()));
    following.spawn(watches::follow(Arc::clone(context), touch));
    let told = Arc::clone(context);
    following.spawn(async move { told.lists.tell().await });
    following
}

/// Whether what is followed can be listed at all: a watch would try again without end.
async fn can_list(client: &Client) -> Result<(), RunError> {
    let one = ListParams::default().limit(1);
    let jobs: Api<Trimmed<RawJob>> = Api::all(client.clone());
    jobs.list(&one).await.map_err(RunError::Jobs)?;
    let partitions: Api<PartialObjectMeta<IPUPartition>> = Api::all(client.clone());
    partitions.list(&one).await.map_err(RunError::Partitions)?;
    Ok(())
}

/// Brings one job forward by one step.
async fn reconcile(job: Arc<JobRef>, context: Arc<Context>) -> Requeue {
    if !context.views.jobs.knows(job.uid) {
        // It was deleted while a change of one of its Pods was on its way.
        return Requeue::Never;
    }
    let running = context.reconciles.begin();
    let step = tokio::time::timeout(DEADLINE, step::step(&context, &job));
    let outcome = match panics::caught(step).await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(_)) => Err(ReconcileError::Deadline),
        Err(panicked) => Err(ReconcileError::Panicked(panicked)),
    };
    running.end(outcome.as_ref().err().map(ReconcileError::category));
    // It may have gone meanwhile.
    context.forget_unless_known(job.uid);
    match outcome {
        Ok(due) => due.into(),
        Err(error) => {
            log(&error, &job);
            BACK_OFF
        }
    }
}

fn log(error: &ReconcileError, job: &JobRef) {
    match error {
        ReconcileError::Write(error) if error.is_conflict() => {
            tracing::debug!(%job, "read too early; trying again");
        }
        error => {
            let error: &dyn std::error::Error = error;
            tracing::warn!(error, %job, "failed to reconcile");
        }
    }
}
