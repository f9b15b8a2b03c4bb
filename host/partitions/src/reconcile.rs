//! One reconcile of one IPUPartition: carries out steps until nothing is left to do for now.

pub(crate) mod events;
pub(crate) mod execute;
pub mod health;
pub(crate) mod siblings;
pub(crate) mod unreadable;
mod vipu_calls;

use std::sync::Arc;
use std::time::{Duration, Instant};

use ipu_api::ipupartition::{ControllerRef, IPUPartition, PartitionOwner};
use ipu_api::uid::Uid;
use ipu_ledger::reconcile::{StepLimit, Steps};
use ipu_ledger::requeue;
use ipu_ledger::step::{Requeue, Step};
use ipu_placement::requests::Ended;
use ipu_runtime::clock;
use ipu_runtime::telemetry::trace;
use ipu_runtime::work_queue::{self, ReconcileError, Slot, measured};
use ipu_text::explain;
use kube::ResourceExt;
use tracing::{Instrument, Span};

use self::execute::{ExecuteError, Outcome};
use crate::controllers::permits::Permit;
use crate::leader::Context;
use crate::store::Guarded;

/// A failed step of a reconcile.
#[derive(Debug, thiserror::Error)]
enum StepError {
    /// A step failed.
    #[error("failed to reconcile the IPUPartition")]
    Execute(#[from] ExecuteError),
    /// The steps repeat without end.
    #[error(transparent)]
    StepLimit(#[from] StepLimit),
}

impl work_queue::StepError for StepError {
    fn category(&self) -> &'static str {
        match self {
            Self::Execute(ExecuteError::Conflict) => "Conflict",
            Self::Execute(ExecuteError::NotLeading) => "NotLeading",
            Self::Execute(ExecuteError::AddFinalizer(_)) => "AddFinalizer",
            Self::Execute(ExecuteError::RemoveFinalizer(_)) => "RemoveFinalizer",
            Self::Execute(ExecuteError::WriteStatus(_)) => "WriteStatus",
            Self::Execute(ExecuteError::ListPods(_)) => "ListPods",
            Self::Execute(ExecuteError::Nonce) => "Nonce",
            Self::StepLimit(StepLimit) => "StepLimit",
        }
    }

    fn is_stale(&self) -> bool {
        matches!(self, Self::Execute(ExecuteError::Conflict))
    }
}

/// Reconciles one IPUPartition. Returns the requeue delay; `None` waits for the next event. Each log line names the
/// IPUPartition and its job.
pub(super) async fn reconcile(
    name: Arc<str>,
    slot: Slot,
    context: Arc<Context>,
) -> Option<Duration> {
    let object = context.watched.read(|cache| cache.get(&name))?;
    let owner = object.0.as_ref().map(|partition| &partition.spec.owner);
    let span = span(&name, owner.ok());
    // Without a time limit: a V-IPU controller takes minutes for a large partition.
    let advancing = measured(&context.reconciles, None, advance(&object, &slot, &context));
    let outcome = advancing.instrument(span).await;
    outcome.unwrap_or_else(|error| after_error(&object, &error, &context))
}

/// The span of the work on an IPUPartition of this owner.
pub(super) fn span(name: &str, owner: Option<&PartitionOwner>) -> Span {
    let job = owner.map(|owner| format!("{}/{}", owner.namespace, owner.name));
    let uid = owner.map_or("", |owner| &owner.uid);
    let (job, trace_id) = (job.unwrap_or_default(), trace::id(uid));
    let span = tracing::error_span!("reconcile", partition = name, job, trace_id);
    trace::of_job(&span, uid);
    span
}

async fn advance(
    object: &Guarded,
    slot: &Slot,
    context: &Context,
) -> Result<Option<Duration>, StepError> {
    let mut partition = match &object.0 {
        Ok(partition) => partition.clone(),
        Err(invalid) => {
            context.withdraw(invalid.metadata.uid.as_deref().unwrap_or_default());
            unreadable::report(context, object, &invalid.error).await;
            return Ok(None);
        }
    };
    let uid = partition.uid().unwrap_or_default();
    let version = partition.resource_version();
    if let Some(left) = context
        .read_your_writes
        .behind(&uid, version.as_deref(), Instant::now())
    {
        // The watch has not delivered the last write yet. Its event triggers the next reconcile.
        return Ok(Some(left));
    }
    context
        .queue_state
        .requests()
        .begin_reconcile(Uid::of(&uid));
    let (mut steps, mut permit) = (Steps::default(), None);
    loop {
        let current = |controller: &ControllerRef| context.pool.current_entry(controller);
        let step = steps.next(&partition, &context.settings, current, clock::now())?;
        tracing::trace!(partition = %partition.name_any(), ?step);
        if !has_permit(context, &partition, &step, &mut permit) {
            context.end_request(&partition, Ended::Postponed);
            // The permit that another reconcile releases triggers the next one of this partition.
            return Ok(requeue::delay(Requeue::ForCapacity, 0));
        }
        match execute::execute(context, (&partition, steps.has_worked()), step, slot).await? {
            Outcome::Observed(observation) => steps.observe(observation),
            Outcome::Wrote(written, observation) => {
                partition = *written;
                let version = partition.resource_version();
                context
                    .read_your_writes
                    .note(&uid, version.as_deref(), Instant::now());
                steps.observe_write(observation);
            }
            Outcome::Released => {
                context.forget(&uid);
                return Ok(None);
            }
            Outcome::Done(requeue) => {
                context.end_request(&partition, Ended::Well);
                let idle_rounds = context.history.count_idle(&uid, steps.has_worked());
                return Ok(requeue::delay(requeue, idle_rounds));
            }
        }
    }
}

/// Whether the reconcile has a permit of the controller that this step calls. It keeps its last permit until it ends.
fn has_permit(
    context: &Context,
    partition: &IPUPartition,
    step: &Step,
    permit: &mut Option<Permit>,
) -> bool {
    let Some(controller) = step.controller(partition, &context.pool.cordons()) else {
        return true;
    };
    let name = partition.name_any();
    if !permit
        .as_ref()
        .is_some_and(|permit| permit.is_of(controller))
    {
        *permit = context.permits.acquire(controller, &name.as_str().into());
    }
    if permit.is_none() {
        tracing::debug!(
            partition = name,
            controller,
            "too many reconciles call the controller; postponed"
        );
    }
    permit.is_some()
}

/// Requeue delay after an error: short after a conflict, until the new version arrives, otherwise growing.
fn after_error(
    object: &Guarded,
    error: &ReconcileError<StepError>,
    context: &Context,
) -> Option<Duration> {
    let name = object.name_any();
    let end_request = |ended| {
        if let Ok(partition) = &object.0 {
            context.end_request(partition, ended);
        }
    };
    match error {
        ReconcileError::Step(StepError::Execute(ExecuteError::Conflict)) => {
            end_request(Ended::Conflict);
            tracing::debug!(partition = name, "changed meanwhile; beginning again");
            let uid = object.uid().unwrap_or_default();
            Some(requeue::after_conflict(
                context.history.count_idle(&uid, false),
            ))
        }
        ReconcileError::Step(
            StepError::Execute(
                ExecuteError::NotLeading
                | ExecuteError::AddFinalizer(_)
                | ExecuteError::RemoveFinalizer(_)
                | ExecuteError::WriteStatus(_)
                | ExecuteError::ListPods(_)
                | ExecuteError::Nonce,
            )
            | StepError::StepLimit(StepLimit),
        )
        | ReconcileError::Deadline(_)
        | ReconcileError::Panicked(_) => {
            end_request(Ended::Failed);
            let idle_rounds = context
                .history
                .count_idle(&object.uid().unwrap_or_default(), false);
            tracing::warn!(partition = name, error = explain(error), "trying again");
            requeue::delay(Requeue::Blocked, idle_rounds)
        }
    }
}
