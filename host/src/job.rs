//! Reconciles IPUJobs: observe → validate → phase → plan → apply → report.

pub mod apply;
pub mod build;
mod context;
pub mod facts;
pub mod finalize;
pub mod index;
pub mod kept;
mod lists;
pub mod observe;
pub mod phase;
pub mod plan;
pub mod raw;
mod removed;
pub mod report;
pub mod restart;
pub mod retry;
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
use futures::{FutureExt, StreamExt, TryStreamExt};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, DynamicObject, ListParams};
use kube::core::{PartialObjectMeta, PartialObjectMetaExt};
use kube::runtime::WatchStreamExt;
use kube::runtime::controller::{Action, Config, Controller};
use kube::runtime::reflector::{self, ObjectRef};
use kube::runtime::watcher::{self, Event};
use kube::{Client, Resource, ResourceExt};
use thiserror::Error;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use self::build::PodSettings;
use self::context::Context;
use self::kept::JobRef;
use self::observe::ObserveError;
use self::raw::RawJob;
use self::writes::WriteError;
use crate::api::ipujob::IPUJob;
use crate::api::ipupartition::IPUPartition;
use crate::metrics::Metrics;
use crate::metrics::jobs::Jobs;
use crate::metrics::reconcile::Reconciles;
use crate::panics::{self, Panicked};
use crate::scope::{self, Scope};
use crate::telemetry::trace;
use crate::trimmed::{Trimmed, untrimmed};

/// Longest time that one reconcile may take; a hung connection must not hold a job for ever.
const DEADLINE: Duration = Duration::from_mins(2);

/// Reconciles that may run at the same time.
const CONCURRENCY: u16 = 32;

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
    #[error("failed to list IPUJobs of {scope}; is crds/ipujobs.graphcore.ai.yaml applied?")]
    Jobs {
        /// Whose jobs were listed.
        scope: Scope,
        /// What the API server said.
        #[source]
        source: kube::Error,
    },
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

/// An IPUJob as the controller's queue knows it: the rest is in the view of jobs.
type JobMeta = PartialObjectMeta<IPUJob>;

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
    metrics: &Metrics,
    shutdown: CancellationToken,
) -> Result<(), RunError> {
    let scope = settings.scope.clone();
    can_list(&client, &scope).await?;
    let context = Arc::new(Context::new(client.clone(), settings, metrics));
    let reconciles = &metrics.reconciles;
    let _until_it_ends = (reconciles.queue(), metrics.jobs.following());
    let (touch, touched) = mpsc::unbounded();
    // It ends with this function, also where that is dropped.
    let _following = follow(&context, touch);
    let (reader, writer) = reflector::store();
    let hear = {
        let (context, counts) = (Arc::clone(&context), metrics.jobs.clone());
        move |event| hear(&context, &counts, event)
    };
    let belongings = Arc::clone(&context);
    let jobs = async move {
        belongings.lists.belongings().await;
        scope::watch::watch::<Trimmed<RawJob>>(&client, &scope, watcher::Config::default())
    };
    let jobs = jobs
        .flatten_stream()
        .map_ok(untrimmed)
        .map_ok(hear)
        .reflect(writer)
        .touched_objects()
        .inspect_ok({
            let reconciles = reconciles.clone();
            move |job| reconciles.wanted(&context::key_of(job))
        });
    let touched = touched.inspect({
        let reconciles = reconciles.clone();
        move |job: &JobRef| reconciles.wanted(&context::key(&job.namespace, &job.name))
    });
    let (running, shared) = (context.running.clone(), Arc::clone(&context));
    let reconciling = Controller::for_stream(jobs, reader)
        .reconcile_on(touched.map(|job| ObjectRef::new(&job.name).within(&job.namespace)))
        .with_config(Config::default().concurrency(CONCURRENCY))
        .graceful_shutdown_on(shutdown.clone().cancelled_owned())
        // A conflict means that the job was read too early; everything else gets better by itself
        // or when somebody mends it. Both are tried again at growing intervals.
        .run(
            reconcile,
            |job, _, context| Action::requeue(context.failed(&job)),
            context,
        )
        .for_each(|outcome| async move {
            if let Err(error) = outcome {
                log(&error, reconciles);
            }
        });
    // The controller would wait for what is only due in minutes as well. The next leader does that.
    let finished = async {
        shutdown.cancelled().await;
        running.close();
        running.wait().await;
    };
    tokio::select! {
        () = reconciling => {}
        () = finished => {}
    }
    shared.events.close().await;
    Ok(())
}

/// Follows what jobs have and what they need.
fn follow(context: &Arc<Context>, touch: mpsc::UnboundedSender<JobRef>) -> JoinSet<()> {
    let mut following = JoinSet::new();
    following.spawn(removed::follow(Arc::clone(context), touch.clone()));
    following.spawn(watches::follow(Arc::clone(context), touch));
    let told = Arc::clone(context);
    following.spawn(async move { told.lists.tell().await });
    following
}

/// Takes in what the watch of all jobs tells. Answers what the controller itself keeps of it.
fn hear(context: &Context, counts: &Jobs, event: Event<RawJob>) -> Event<JobMeta> {
    let names = names_of(&event);
    let ends = matches!(event, Event::Delete(_) | Event::InitDone);
    let heard = panics::caught_now(|| {
        counts.hear(&event);
        context.views.jobs.hear(event)
    });
    let touched = heard.unwrap_or_else(|_| {
        tracing::error!(event = ?names, "a job that the watch tells of is left out");
        Vec::new()
    });
    if ends {
        for job in &touched {
            context.forget(job.uid);
        }
    }
    if matches!(names, Event::InitDone) {
        context.lists.complete(&IPUJob::kind(&()));
    }
    names
}

/// Whether what is followed can be listed at all: a watch would try again without end.
async fn can_list(client: &Client, scope: &Scope) -> Result<(), RunError> {
    let one = ListParams::default().limit(1);
    for jobs in scope::watch::apis::<Trimmed<RawJob>>(client, scope) {
        let listed = jobs.list(&one).await;
        listed.map_err(|source| RunError::Jobs {
            scope: scope.clone(),
            source,
        })?;
    }
    let partitions: Api<PartialObjectMeta<IPUPartition>> = Api::all(client.clone());
    partitions.list(&one).await.map_err(RunError::Partitions)?;
    Ok(())
}

/// What the controller itself keeps of jobs, to have them reconciled.
fn names_of(event: &Event<RawJob>) -> Event<JobMeta> {
    let names = |job: &RawJob| {
        let names = ObjectMeta {
            name: job.metadata.name.clone(),
            namespace: job.metadata.namespace.clone(),
            uid: job.metadata.uid.clone(),
            ..ObjectMeta::default()
        };
        let mut names = names.into_response_partial();
        names.types = None;
        names
    };
    match event {
        Event::Apply(job) => Event::Apply(names(job)),
        Event::InitApply(job) => Event::InitApply(names(job)),
        Event::Delete(job) => Event::Delete(names(job)),
        Event::Init => Event::Init,
        Event::InitDone => Event::InitDone,
    }
}

/// Brings one job forward by one step. Every line of the log that comes of it names the job.
async fn reconcile(job: Arc<JobMeta>, context: Arc<Context>) -> Result<Action, ReconcileError> {
    let _running = context.running.token();
    let key = context::key_of(&job);
    let running = context.reconciles.begin(&key);
    // An error's level: whatever is logged within it names the job.
    let uid = job.uid().unwrap_or_default();
    let span = tracing::error_span!("reconcile", job = key, trace_id = trace::id(&uid));
    trace::of_job(&span, &uid);
    let step = tokio::time::timeout(DEADLINE, step::step(&context, &job));
    let outcome = match panics::caught(step).instrument(span).await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(_)) => Err(ReconcileError::Deadline),
        Err(panicked) => Err(ReconcileError::Panicked(panicked)),
    };
    running.end(outcome.as_ref().err().map(ReconcileError::category));
    if outcome.is_ok() {
        context.went_well(&job);
    }
    // It may have gone meanwhile.
    context.forget_unless_known(context::uid_of(&job));
    outcome
}

fn log(
    error: &kube::runtime::controller::Error<ReconcileError, watcher::Error>,
    reconciles: &Reconciles,
) {
    use kube::runtime::controller::Error;
    match error {
        // The job was deleted while a change of one of its Pods was on its way.
        Error::ObjectNotFound(job) => {
            let namespace = job.namespace.as_deref().unwrap_or_default();
            reconciles.unwanted(&context::key(namespace, &job.name));
        }
        Error::ReconcilerFailed(ReconcileError::Write(error), job) if error.is_conflict() => {
            tracing::debug!(job = named(job), "read too early; trying again");
        }
        Error::ReconcilerFailed(error, job) => {
            let error: &dyn std::error::Error = error;
            tracing::warn!(error, job = named(job), "failed to reconcile");
        }
        other => {
            let error: &dyn std::error::Error = other;
            tracing::warn!(error, "failed to reconcile");
        }
    }
}

fn named(job: &ObjectRef<DynamicObject>) -> String {
    context::key(job.namespace.as_deref().unwrap_or_default(), &job.name)
}
