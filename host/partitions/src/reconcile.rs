//! One reconcile of one IPUPartition: carries out steps until nothing is left to do for now.

mod effects;
pub(crate) mod events;
pub mod health;
pub(crate) mod siblings;
pub(crate) mod unreadable;
mod vipu_calls;

use std::sync::Arc;
use std::time::{Duration, Instant};

use ipu_api::ipupartition::{ControllerRef, PartitionOwner};
use ipu_api::uid::Uid;
use ipu_ledger::executor::{Ended, Reconcile};
use ipu_ledger::reconcile::StepLimit;
use ipu_ledger::requeue;
use ipu_ledger::step::Requeue;
use ipu_placement::requests as request;
use ipu_runtime::clock;
use ipu_runtime::telemetry::trace::{self, TracedObject};
use ipu_runtime::work_queue::{self, ReconcileError, Slot, measured};
use ipu_text::explain;
use kube::ResourceExt;
use tracing::{Instrument, Span};

use self::effects::{EffectError, OperatorEffects};
use crate::leader::Context;
use crate::store::Guarded;

/// A failed step of a reconcile.
#[derive(Debug, thiserror::Error)]
enum StepError {
    /// A step failed.
    #[error("failed to reconcile the IPUPartition")]
    Execute(#[from] EffectError),
    /// The steps repeat without end.
    #[error(transparent)]
    StepLimit(#[from] StepLimit),
}

impl work_queue::StepError for StepError {
    fn category(&self) -> &'static str {
        match self {
            Self::Execute(EffectError::Conflict) => "Conflict",
            Self::Execute(EffectError::NotLeading) => "NotLeading",
            Self::Execute(EffectError::AddFinalizer(_)) => "AddFinalizer",
            Self::Execute(EffectError::RemoveFinalizer(_)) => "RemoveFinalizer",
            Self::Execute(EffectError::WriteStatus(_)) => "WriteStatus",
            Self::Execute(EffectError::ListPods(_)) => "ListPods",
            Self::Execute(EffectError::Nonce) => "Nonce",
            Self::StepLimit(StepLimit) => "StepLimit",
        }
    }

    fn is_stale(&self) -> bool {
        matches!(self, Self::Execute(EffectError::Conflict))
    }
}

/// Reconciles one IPUPartition. Returns the requeue delay; `None` waits for the next event. Each
/// log line names the IPUPartition and its job.
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
    let traced = owner.map_or_else(TracedObject::default, |owner| TracedObject {
        kind: &owner.kind,
        namespace: &owner.namespace,
        name: &owner.name,
        uid: &owner.uid,
    });
    trace::of_object(&span, &traced);
    span
}

async fn advance(
    object: &Guarded,
    slot: &Slot,
    context: &Context,
) -> Result<Option<Duration>, StepError> {
    let partition = match &object.0 {
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
    let mut core = Reconcile::begin(Arc::new(partition));
    let mut effects = OperatorEffects::new(context, slot);
    let ended = loop {
        let current = |controller: &ControllerRef| context.pool.current_entry(controller);
        let step = core.next(&context.settings, current, clock::now())?;
        tracing::trace!(partition = %core.partition().name_any(), ?step);
        if let Some(ended) = core.carry_out(step, &mut effects).await? {
            break ended;
        }
    };
    Ok(after(ended, &core, &uid, context))
}

/// Requeue delay of a reconcile that has ended without an error.
fn after(ended: Ended, core: &Reconcile, uid: &str, context: &Context) -> Option<Duration> {
    let partition = core.partition();
    match ended {
        Ended::Postponed => {
            context.end_request(partition, request::Ended::Postponed);
            requeue::delay(Requeue::ForCapacity, 0)
        }
        Ended::Released => {
            context.forget(uid);
            None
        }
        Ended::Done(requeue) => {
            context.end_request(partition, request::Ended::Well);
            let has_worked = core.steps().has_worked();
            requeue::delay(requeue, context.history.count_idle(uid, has_worked))
        }
    }
}

/// Requeue delay after an error: short after a conflict, until the new version arrives, otherwise
/// growing.
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
        ReconcileError::Step(StepError::Execute(EffectError::Conflict)) => {
            end_request(request::Ended::Conflict);
            tracing::debug!(partition = name, "changed meanwhile; beginning again");
            let uid = object.uid().unwrap_or_default();
            Some(requeue::after_conflict(
                context.history.count_idle(&uid, false),
            ))
        }
        ReconcileError::Step(
            StepError::Execute(
                EffectError::NotLeading
                | EffectError::AddFinalizer(_)
                | EffectError::RemoveFinalizer(_)
                | EffectError::WriteStatus(_)
                | EffectError::ListPods(_)
                | EffectError::Nonce,
            )
            | StepError::StepLimit(StepLimit),
        )
        | ReconcileError::Deadline(_)
        | ReconcileError::Panicked(_) => {
            end_request(request::Ended::Failed);
            let idle_rounds = context
                .history
                .count_idle(&object.uid().unwrap_or_default(), false);
            tracing::warn!(partition = name, error = explain(error), "trying again");
            requeue::delay(Requeue::Blocked, idle_rounds)
        }
    }
}
