//! One step of one job: observe → validate → facts → phase → plan → apply → status.

use std::time::Duration;

use ipu_api::ipujob::is_managed_by_another;
use ipu_api::labels;
use ipu_api::queueing;
use ipu_runtime::clock;
use ipu_runtime::pod_start::node_report;
use ipu_runtime::telemetry::trace;
use kube::ResourceExt;
use tracing::Instrument;

use super::StepError;
use super::context::{Context, traced};
use super::facts;
use super::finalize::{self, Deleting};
use super::job_object::JobRef;
use super::observe::{self, Observation, Snapshot};
use super::phase;
use super::plan::{self, Plan};
use super::pull_secrets;
use super::raw::RawJob;
use super::salvage;
use super::status::postponed::postponed;
use super::status::{self, Obstacle};
use super::validate::{self, Suspension, ValidJob, ValidateError};
use super::writes;

/// Requeue delay of a blocked job. No watch reports the deletion of another owner's object, or the loss of a node.
const BLOCKED: Duration = Duration::from_secs(15);

/// Requeue delay of a job whose cache is stale. Usually a watch event comes first.
const CACHE_STALE: Duration = Duration::from_secs(1);

/// The requeue delay of a job. `None` waits for the next event.
type RequeueDelay = Result<Option<Duration>, StepError>;

/// Reconciles a job once. Every log line of the reconcile names the job.
pub(super) async fn step(context: &Context, job: &JobRef) -> RequeueDelay {
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

async fn advance(context: &Context, snapshot: Box<Snapshot>) -> RequeueDelay {
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
    if is_deleted {
        return finalize(context, snapshot).await;
    }
    match read(context, &snapshot) {
        Ok(job) => advance_valid(context, &job, snapshot).await,
        Err(error) => report_invalid(context, snapshot, &error).await,
    }
}

/// Reads a job. A job that has started and is unreadable now is salvaged, so that it can finish. While Kueue is installed,
/// a job in a queue does not start without an admission. One that has started continues: an earlier version of the operator
/// knew neither queues nor admissions. `ipu-kueue` stops it if it must stop. One that still waits for its partitions has not
/// started. The size of its admission limits a job, even if it has left its queue, because it keeps its quota. Without
/// Kueue, nobody would admit it with another size.
fn read(context: &Context, snapshot: &Snapshot) -> Result<ValidJob, ValidateError> {
    let read = validate::read(&snapshot.object, context.settings.max_ipus_per_job);
    let mut job = read.or_else(|error| {
        salvage::salvage(&snapshot.job, &snapshot.observed, error.clone()).ok_or(error)
    })?;
    let observed = &snapshot.observed;
    let has_pods = !observed.pods.is_empty() && status::is_active(&observed.status);
    let has_partitions = !observed.partitions.is_empty();
    let has_started = has_pods || has_partitions && status::has_started(&observed.status);
    if context.kueue.is_served() && !has_started && validate::awaits_admission(&snapshot.object) {
        job.suspension = Suspension::Unadmitted;
    }
    let is_queued = context.kueue.is_served() && queueing::is_queued(&snapshot.object);
    job.is_admitted = is_queued && validate::admission(&snapshot.object).is_some();
    if !context.kueue.is_served() {
        for update in &mut job.pod_set_updates {
            update.count = None;
        }
    }
    Ok(job)
}

/// Plans and applies the next step of a job, and writes its status.
async fn advance_valid(
    context: &Context,
    job: &ValidJob,
    mut snapshot: Box<Snapshot>,
) -> RequeueDelay {
    if !has_finalizer(&snapshot.job) {
        // Before the first object is created that outlives the job.
        context.set_finalizer(&snapshot, true).await?;
        return Ok(None);
    }
    let now = clock::now();
    let facts = facts::facts(job, &snapshot.observed, now);
    let phase = phase::phase(job, &facts, now);
    let mut plan = plan::plan(job, &facts, &phase, &context.settings.pods);
    if plan.delete_job {
        writes::delete_job(&context.jobs(&snapshot), &snapshot.job, &context.views.jobs).await?;
        return Ok(None);
    }
    let refused = context.trial_refusal(job, &snapshot, &plan).await;
    if let Some(refusal) = &refused {
        let timeout = context.settings.pods.start_timeout;
        plan.refuse(job, &facts, &refusal.to_string(), timeout);
    }
    pull_secrets::add(&context.client, job, &mut plan).await?;
    let status = |plan: &Plan, obstacles: &[Obstacle], snapshot: &Snapshot| {
        let old = &snapshot.observed.status;
        status::build(job, &facts, &phase, (plan, obstacles), old, now)
    };
    if plan.is_recorded_first() {
        // Before the first Pod: after the deletion of the Pod, only the status shows that it used its partition.
        let uses = status(&plan, refused.as_slice(), &snapshot);
        context.write_status(&mut snapshot, uses, now).await?;
    }
    let obstacles = match context.apply(&snapshot, &plan).await {
        Ok(obstacles) => obstacles,
        Err(error) => {
            // The status that was written before counts Pods that may not exist.
            plan.create_pods.clear();
            let uncounted = status(&plan, &[], &snapshot);
            context.write_status(&mut snapshot, uncounted, now).await?;
            return Err(error.into());
        }
    };
    let obstacles: Vec<_> = refused.into_iter().chain(obstacles).collect();
    let is_blocked = !obstacles.is_empty() || has_terminating_pods(&snapshot);
    let unreadable = job.start.unreadable().map(|error| Obstacle::Unreadable {
        object: format!("IPUJob {}", job.name),
        reason: error.to_string(),
    });
    let obstacles: Vec<_> = unreadable.into_iter().chain(obstacles).collect();
    let reported = status(&plan, &obstacles, &snapshot);
    let (old, created) = (
        &snapshot.observed.status,
        &snapshot.job.metadata.creation_timestamp,
    );
    let postponed = postponed(old, &reported, created.as_ref(), now);
    if postponed.is_none() {
        context.write_status(&mut snapshot, reported, now).await?;
    }
    let preparing = is_preparing(&snapshot).then_some(node_report::RETRY);
    let due = [plan.requeue, postponed].into_iter().flatten();
    let due = due.chain(preparing).min();
    Ok(requeue_delay(is_blocked, due))
}

/// Returns the shortest of the requeue delays that apply.
fn requeue_delay(is_blocked: bool, due: Option<Duration>) -> Option<Duration> {
    let blocked = is_blocked.then_some(BLOCKED);
    blocked.into_iter().chain(due).min()
}

/// Writes the status of an unreadable job that has not started.
async fn report_invalid(
    context: &Context,
    mut snapshot: Box<Snapshot>,
    error: &ValidateError,
) -> RequeueDelay {
    let now = clock::now();
    let old = &snapshot.observed.status;
    let status = status::invalid::build(&snapshot.object, error, old, now);
    context.write_status(&mut snapshot, status, now).await?;
    Ok(None)
}

/// Advances the deletion of a job: deletes its Pods, then its partitions, then the finalizer.
async fn finalize(context: &Context, mut snapshot: Box<Snapshot>) -> RequeueDelay {
    let deleting = finalize::deleting(&snapshot.observed.pods, &snapshot.observed.partitions);
    match &deleting {
        Deleting::Pods { plan, .. } | Deleting::Partitions { plan, .. } => {
            context.apply(&snapshot, plan).await?;
            let now = clock::now();
            let status = finalize::status(&deleting, &snapshot.observed.status, now);
            context.write_status(&mut snapshot, status, now).await?;
            Ok(Some(BLOCKED))
        }
        Deleting::Done => {
            context.set_finalizer(&snapshot, false).await?;
            Ok(None)
        }
    }
}

/// Whether Pods are terminating. No watch reports that a node is lost.
fn has_terminating_pods(snapshot: &Snapshot) -> bool {
    let mut pods = snapshot.observed.pods.iter();
    pods.any(|pod| pod.termination.is_some())
}

/// Whether the node of a Pod prepares it.
fn is_preparing(snapshot: &Snapshot) -> bool {
    let mut pods = snapshot.observed.pods.iter();
    pods.any(|pod| pod.preparing_since.is_some())
}

fn has_finalizer(job: &RawJob) -> bool {
    let mut finalizers = job.finalizers().iter();
    finalizers.any(|finalizer| finalizer == labels::JOB_FINALIZER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_requeue_delay_counts() {
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        for (is_blocked, due, expected) in [
            (false, None, None),
            (false, seconds(300), seconds(300)),
            (true, None, seconds(15)),
            (true, seconds(300), seconds(15)),
            (true, seconds(2), seconds(2)),
        ] {
            let delay = requeue_delay(is_blocked, due);
            assert_eq!(delay, expected, "{is_blocked} {due:?}");
        }
    }
}
