//! One step of one job: observe → validate → the executor's facts → phase → plan → apply → status.

use std::time::Duration;

use ipu_api::ipujob::is_managed_by_another;
use ipu_api::labels;
use ipu_api::queueing;
use ipu_runtime::clock;
use ipu_runtime::telemetry::trace;
use jiff::Timestamp;
use kube::ResourceExt;
use tracing::Instrument;

use super::StepError;
use super::context::{Context, traced};
use super::executor::{self, RequeueDelay};
use super::job_object::JobRef;
use super::kube_effects::KubeEffects;
use super::observe::{self, Observation, Snapshot};
use super::salvage;
use super::status;
use super::validate::{self, Suspension, ValidJob, ValidateError};

/// Requeue delay of a job whose cache is stale. Usually a watch event comes first.
const CACHE_STALE: Duration = Duration::from_secs(1);

/// The requeue delay of a job. `None` waits for the next event.
type Stepped = Result<RequeueDelay, StepError>;

/// Reconciles a job once. Every log line of the reconcile names the job.
pub(super) async fn step(context: &Context, job: &JobRef) -> Stepped {
    let snapshot = match observe::observe(&context.client, &context.views, job.uid).await? {
        Observation::Found(snapshot) => snapshot,
        Observation::CacheStale => return Ok(Some(CACHE_STALE)),
        Observation::NotFound => return Ok(None),
    };
    let uid = snapshot.job.uid().unwrap_or_default();
    // A span of level error is enabled at every log level.
    let span = tracing::error_span!("reconcile", %job, trace_id = trace::id(&uid));
    trace::of_object(&span, &traced(job, &uid));
    advance(context, snapshot).instrument(span).await
}

async fn advance(context: &Context, snapshot: Box<Snapshot>) -> Stepped {
    let is_deleted = snapshot.job.metadata.deletion_timestamp.is_some();
    let is_ours = if is_deleted {
        snapshot
            .job
            .finalizers()
            .iter()
            .any(|one| labels::is_job_finalizer(one))
    } else {
        !is_managed_by_another(&snapshot.object)
    };
    if !is_ours {
        return Ok(None);
    }
    context.force_delete_pods(&snapshot).await?;
    let now = clock::now();
    let mut effects = KubeEffects::new(context, snapshot);
    if is_deleted {
        return Box::pin(executor::finalize(&mut effects, now)).await;
    }
    match read(context, &effects.snapshot) {
        Ok(job) => {
            let settings = &context.pod_settings();
            // In a box, because its state is large.
            Box::pin(executor::reconcile(&job, settings, &mut effects, now)).await
        }
        Err(error) => {
            report_invalid(&mut effects, &error, now).await?;
            Ok(None)
        }
    }
}

/// Reads a job. A job that has started and is unreadable now is salvaged, so that it can finish.
/// While Kueue is installed, a job in a queue does not start without an admission. One that has
/// started continues: an earlier version of the operator knew neither queues nor admissions.
/// `ipu-kueue` stops it if it must stop. One that still waits for its partitions has not started.
/// The size of its admission limits a job, even if it has left its queue, because it keeps its
/// quota. Without Kueue, nobody would admit it with another size.
fn read(context: &Context, snapshot: &Snapshot) -> Result<ValidJob, ValidateError> {
    let read = validate::read(&snapshot.object, context.settings.max_ipus_per_job);
    let mut job = read.or_else(|error| {
        salvage::salvage(&snapshot.job, &snapshot.observed, error.clone()).ok_or(error)
    })?;
    let observed = &snapshot.observed;
    let has_pods = !observed.pods.is_empty() && status::is_active(&observed.status);
    let has_partitions = !observed.partitions.is_empty();
    let has_started = has_pods || has_partitions && status::has_started(&observed.status);
    if context.shared.kueue.is_served()
        && !has_started
        && validate::awaits_admission(&snapshot.object)
    {
        job.suspension = Suspension::Unadmitted;
    }
    let is_queued = context.shared.kueue.is_served() && queueing::is_queued(&snapshot.object);
    job.is_admitted = is_queued && validate::admission(&snapshot.object).is_some();
    if !context.shared.kueue.is_served() {
        for update in &mut job.pod_set_updates {
            update.count = None;
        }
    }
    Ok(job)
}

/// Writes the status of an unreadable job that has not started.
async fn report_invalid(
    effects: &mut KubeEffects<'_>,
    error: &ValidateError,
    now: Timestamp,
) -> Result<(), StepError> {
    let Snapshot {
        object, observed, ..
    } = &*effects.snapshot;
    let status = status::invalid::build(object, error, &observed.status, now);
    executor::write_status(effects, status, now).await
}
