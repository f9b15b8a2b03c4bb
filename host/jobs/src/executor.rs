//! Pure: one reconcile of one job, carried out over its effects: from what was read to the last
//! write, without I/O of its own.
//!
//! The operator gives it the API server as [`Effects`], the simulation gives it its own.

mod apply;
mod effects;
mod uses;

use std::time::Duration;

use ipu_api::ipujob_status::IPUJobStatus;
use ipu_api::labels;
use ipu_runtime::pod_start::node_report;
use jiff::Timestamp;

use super::build::PodSettings;
use super::facts;
use super::finalize::{self, Deleting};
use super::phase;
use super::plan;
use super::status::postponed::postponed;
use super::status::{self, Obstacle};
use super::validate::ValidJob;

pub use self::effects::Effects;

/// Requeue delay of a blocked job. No watch reports the deletion of another owner's object, or the
/// loss of a node.
const BLOCKED: Duration = Duration::from_secs(15);

/// The requeue delay of a job. `None` waits for the next event.
pub type RequeueDelay = Option<Duration>;

/// Plans and applies the next step of a job at the time `now`, and writes its status.
pub async fn reconcile<E: Effects>(
    job: &ValidJob,
    settings: &PodSettings,
    effects: &mut E,
    now: Timestamp,
) -> Result<RequeueDelay, E::Error> {
    if !has_finalizer(effects) {
        // Before the first object is created that outlives the job.
        effects.set_finalizer(true).await?;
        return Ok(None);
    }
    let mut facts = facts::facts(job, effects.observed(), now);
    uses::erase_gone(job, effects, &mut facts).await?;
    let phase = phase::phase(job, &facts, now);
    let mut plan = plan::plan(job, &facts, &phase, settings);
    if plan.delete_job {
        effects.delete_job().await?;
        return Ok(None);
    }
    let observed = effects.observed();
    let has_objects = !observed.partitions.is_empty() || !observed.pods.is_empty();
    let refused = if plan.create_partitions.is_empty() || has_objects {
        None
    } else {
        effects.trial_refusal(job).await
    };
    if let Some(refusal) = &refused {
        plan.refuse(job, &facts, &refusal.to_string(), settings.start_timeout);
    }
    effects.add_pull_secrets(job, &mut plan).await?;
    plan.add_launcher_otherwise(job);
    let build = |plan: &plan::Plan, obstacles: &[Obstacle], old: &IPUJobStatus| {
        status::build(job, &facts, &phase, (plan, obstacles), old, now)
    };
    if plan.is_recorded_first() {
        // Before the first Pod: after the deletion of the Pod, only the status shows that it used
        // its partition.
        let uses = build(&plan, refused.as_slice(), old(effects));
        write_status(effects, uses, now).await?;
    }
    let obstacles = match apply::apply(&plan, effects).await {
        Ok(obstacles) => obstacles,
        Err(error) => {
            // The status that was written before counts Pods that may not exist.
            plan.create_pods.clear();
            let uncounted = build(&plan, &[], old(effects));
            write_status(effects, uncounted, now).await?;
            return Err(error);
        }
    };
    let obstacles: Vec<_> = refused.into_iter().chain(obstacles).collect();
    let is_blocked = !obstacles.is_empty() || has_terminating_pods(effects);
    let unreadable = job.start.unreadable().map(|error| Obstacle::Unreadable {
        object: format!("IPUJob {}", job.name),
        reason: error.to_string(),
    });
    let obstacles: Vec<_> = unreadable.into_iter().chain(obstacles).collect();
    let reported = build(&plan, &obstacles, old(effects));
    let created = effects.metadata().creation_timestamp.as_ref();
    let postponed = postponed(old(effects), &reported, created, now);
    if postponed.is_none() {
        write_status(effects, reported, now).await?;
    }
    let preparing = is_preparing(effects).then_some(node_report::RETRY);
    let due = [plan.requeue, postponed].into_iter().flatten();
    let due = due.chain(preparing).min();
    Ok(requeue_delay(is_blocked, due))
}

/// Advances the deletion of a job: deletes its Pods, then its partitions, then the finalizer.
pub async fn finalize<E: Effects>(
    effects: &mut E,
    now: Timestamp,
) -> Result<RequeueDelay, E::Error> {
    let observed = effects.observed();
    let deleting = finalize::deleting(&observed.pods, &observed.partitions);
    match &deleting {
        Deleting::Pods { plan, .. } | Deleting::Partitions { plan, .. } => {
            apply::apply(plan, effects).await?;
            let status = finalize::status(&deleting, old(effects), now);
            write_status(effects, status, now).await?;
            Ok(Some(BLOCKED))
        }
        Deleting::Done => {
            effects.set_finalizer(false).await?;
            Ok(None)
        }
    }
}

/// Writes a status if anything but its times has changed.
pub async fn write_status<E: Effects>(
    effects: &mut E,
    status: IPUJobStatus,
    now: Timestamp,
) -> Result<(), E::Error> {
    match status::changed(old(effects), status, now) {
        Some(new) => effects.write_status(new, now).await,
        None => Ok(()),
    }
}

fn old<E: Effects>(effects: &E) -> &IPUJobStatus {
    &effects.observed().status
}

/// Returns the shortest of the requeue delays that apply.
fn requeue_delay(is_blocked: bool, due: Option<Duration>) -> Option<Duration> {
    let blocked = is_blocked.then_some(BLOCKED);
    blocked.into_iter().chain(due).min()
}

/// Whether Pods are terminating. No watch reports that a node is lost.
fn has_terminating_pods<E: Effects>(effects: &E) -> bool {
    let mut pods = effects.observed().pods.iter();
    pods.any(|pod| pod.termination.is_some())
}

/// Whether the node of a Pod prepares it.
fn is_preparing<E: Effects>(effects: &E) -> bool {
    let mut pods = effects.observed().pods.iter();
    pods.any(|pod| pod.preparing_since.is_some())
}

fn has_finalizer<E: Effects>(effects: &E) -> bool {
    let mut finalizers = effects.metadata().finalizers.iter().flatten();
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
