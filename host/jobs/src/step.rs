//! One step of one job: observe → validate → facts → phase → plan → apply → report.

use std::time::Duration;

use ipu_api::ipujob::is_managed_by_another;
use ipu_api::names;
use ipu_runtime::clock;
use ipu_runtime::telemetry::trace;
use kube::ResourceExt;
use tracing::Instrument;

use super::ReconcileError;
use super::context::Context;
use super::facts;
use super::finalize::{self, Deleting};
use super::kept::JobRef;
use super::observe::{self, Observation, Seen};
use super::phase;
use super::plan;
use super::raw::RawJob;
use super::report::postponed::postponed;
use super::report::{self, Obstacle};
use super::salvage;
use super::validate::{self, ValidJob, ValidateError};
use super::writes;

/// How soon a job is looked at again that something stands in the way of: nothing that is watched
/// tells when a stranger's object goes, or that a node is lost.
const OBSTACLE: Duration = Duration::from_secs(15);

/// How soon a job is looked at again whose watches are behind. Mostly they tell of it before.
const BEHIND: Duration = Duration::from_secs(1);

/// The delay after which a job is due again, if ever by itself.
type Due = Result<Option<Duration>, ReconcileError>;

/// Looks at a job, and does whatever it needs next. Every line of the log that comes of it names
/// the job.
pub(super) async fn step(context: &Context, job: &JobRef) -> Due {
    let seen = match observe::observe(&context.client, &context.views, job.uid).await? {
        Observation::Seen(seen) => seen,
        Observation::Behind => return Ok(Some(BEHIND)),
        Observation::Gone => return Ok(None),
    };
    let uid = seen.job.uid().unwrap_or_default();
    // An error's level: whatever is logged within it names the job.
    let span = tracing::error_span!("reconcile", %job, trace_id = trace::id(&uid));
    trace::of_job(&span, &uid);
    advance(context, seen).instrument(span).await
}

async fn advance(context: &Context, seen: Box<Seen>) -> Due {
    let is_deleted = seen.job.metadata.deletion_timestamp.is_some();
    let is_ours = if is_deleted {
        seen.job
            .finalizers()
            .iter()
            .any(|one| names::is_job_finalizer(one))
    } else {
        !is_managed_by_another(&seen.object)
    };
    if !is_ours {
        return Ok(None);
    }
    context.free(&seen).await?;
    if is_deleted {
        return finalize(context, seen).await;
    }
    match read(context, &seen) {
        Ok(job) => carry_on(context, &job, seen).await,
        Err(error) => refuse(context, seen, &error).await,
    }
}

/// Reads a job. One that cannot be read is brought to its end, where it has begun.
fn read(context: &Context, seen: &Seen) -> Result<ValidJob, ValidateError> {
    validate::read(&seen.object, context.settings.max_ipus_per_job)
        .or_else(|error| salvage::salvage(&seen.job, &seen.observed, error.clone()).ok_or(error))
}

/// Decides what is to be done for a job, does it, and reports.
async fn carry_on(context: &Context, job: &ValidJob, mut seen: Box<Seen>) -> Due {
    if !has_finalizer(&seen.job) {
        // Before anything is made that outlives the job.
        context.set_finalizer(&seen, true).await?;
        return Ok(None);
    }
    let now = clock::now();
    let facts = facts::facts(job, &seen.observed, now);
    let phase = phase::phase(job, &facts);
    let plan = plan::plan(job, &facts, &phase, &context.settings.pods);
    if plan.delete_job {
        writes::delete_job(&context.jobs(&seen), &seen.job, &context.views.jobs).await?;
        return Ok(None);
    }
    let status = |obstacles: &[Obstacle], seen: &Seen| {
        let old = &seen.observed.status;
        report::status(job, &facts, &phase, (&plan, obstacles), old, now)
    };
    if !plan.begins.is_empty() {
        // Before the first Pod: once it is gone, nothing else tells that it used its partition.
        let begins = status(&[], &seen);
        context.report(&mut seen, begins, now).await?;
    }
    let obstacles = context.apply(&seen, &plan).await?;
    let looks_again = !obstacles.is_empty() || awaits_pods(&seen);
    let unreadable = job.start.unreadable().map(|error| Obstacle::Unreadable {
        object: format!("IPUJob {}", job.name),
        reason: error.to_string(),
    });
    let obstacles: Vec<_> = unreadable.into_iter().chain(obstacles).collect();
    let reported = status(&obstacles, &seen);
    let (old, created) = (&seen.observed.status, &seen.job.metadata.creation_timestamp);
    let postponed = postponed(old, &reported, created.as_ref(), now);
    if postponed.is_none() {
        context.report(&mut seen, reported, now).await?;
    }
    Ok(again(looks_again, [plan.requeue, postponed]))
}

/// When a job is looked at again: where something stands in its way soon, and sooner where something is
/// due.
fn again(looks_again: bool, due: [Option<Duration>; 2]) -> Option<Duration> {
    let obstacle = looks_again.then_some(OBSTACLE);
    obstacle.into_iter().chain(due.into_iter().flatten()).min()
}

/// A job that cannot be read, and of which there is nothing yet: its status says so.
async fn refuse(context: &Context, mut seen: Box<Seen>, error: &ValidateError) -> Due {
    let now = clock::now();
    let old = &seen.observed.status;
    let status = report::refused::status(&seen.object, error, old, now);
    context.report(&mut seen, status, now).await?;
    Ok(None)
}

/// A job that is being deleted: Pods first, then partitions, then the finalizer.
async fn finalize(context: &Context, mut seen: Box<Seen>) -> Due {
    let deleting = finalize::deleting(&seen.observed.pods, &seen.observed.partitions);
    match &deleting {
        Deleting::Pods { plan, .. } | Deleting::Partitions { plan, .. } => {
            context.apply(&seen, plan).await?;
            let now = clock::now();
            let status = finalize::status(&deleting, &seen.observed.status, now);
            context.report(&mut seen, status, now).await?;
            Ok(Some(OBSTACLE))
        }
        Deleting::Done => {
            context.set_finalizer(&seen, false).await?;
            Ok(None)
        }
    }
}

/// Whether Pods are being deleted: nothing that is watched tells when a node is lost for good.
fn awaits_pods(seen: &Seen) -> bool {
    let mut pods = seen.observed.pods.iter();
    pods.any(|pod| pod.metadata.deletion_timestamp.is_some())
}

fn has_finalizer(job: &RawJob) -> bool {
    let mut finalizers = job.finalizers().iter();
    finalizers.any(|finalizer| finalizer == names::JOB_FINALIZER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_due_sooner_than_an_obstacle_is_looked_at_is_not_late() {
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        for (looks_again, due, expected) in [
            (false, None, None),
            (false, seconds(300), seconds(300)),
            (true, None, seconds(15)),
            (true, seconds(300), seconds(15)),
            (true, seconds(2), seconds(2)),
        ] {
            for due in [[due, None], [None, due], [due, seconds(900).and(due)]] {
                assert_eq!(again(looks_again, due), expected, "{looks_again} {due:?}");
            }
        }
    }
}
