//! Carries out one step for an IPUPartition. No other module of the reconciler writes to it or calls a controller.

use ipu_api::ipupartition::{Attempt, ControllerRef, IPUPartition, IPUPartitionStatus};
use ipu_api::labels;
use ipu_ledger::observations::{Answer, Intent, Observation};
use ipu_ledger::step::{Requeue, Step};
use ipu_placement::allocations;
use ipu_placement::decision::PlacementDecision;
use ipu_runtime::api_client;
use ipu_runtime::trimmed::Trimmed;
use ipu_runtime::work_queue::Slot;
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams, PostParams};
use ring::rand::SystemRandom;
use serde_json::json;

use super::events::{self, Sweep};
use crate::leader::Context;
use crate::pod_users::ListPodsError;
use crate::reconcile::siblings;
use crate::reconcile::vipu_calls::{create, remote_state, remove, reset};

/// The outcome of a step.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// An observation.
    Observed(Observation),
    /// The object was written. This is its new version, with the observation.
    Wrote(Box<IPUPartition>, Observation),
    /// The finalizer was removed.
    Released,
    /// Nothing is left to do for now.
    Done(Requeue),
}

/// Failure of a step.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ExecuteError {
    /// The object was changed meanwhile, or is gone: the reconcile starts again with the current one.
    #[error("failed to write the IPUPartition, since it was changed meanwhile")]
    Conflict,
    /// This replica did not renew its leadership in time: another one may lead.
    #[error("stopped: this replica's leadership has expired")]
    NotLeading,
    /// The finalizer could not be added.
    #[error("failed to add the finalizer")]
    AddFinalizer(#[source] kube::Error),
    /// The finalizer could not be removed.
    #[error("failed to remove the finalizer")]
    RemoveFinalizer(#[source] kube::Error),
    /// The status could not be written.
    #[error("failed to write the status")]
    WriteStatus(#[source] kube::Error),
    /// The Pods that use the partition could not be listed.
    #[error(transparent)]
    ListPods(#[from] ListPodsError),
    /// The kernel gave no random number for the id of the next attempt.
    #[error("failed to draw a random number for the id of a partition")]
    Nonce,
}

/// Carries out `step` for `partition`. `has_written`: the reconcile has written the object, and the watch may not have
/// shown that yet.
///
/// It waits for V-IPU controllers outside its slot, so that one that does not answer does not stop the partitions of
/// others.
pub(crate) async fn execute(
    context: &Context,
    (partition, has_written): (&IPUPartition, bool),
    step: Step,
    slot: &Slot,
) -> Result<Outcome, ExecuteError> {
    if !context.leadership.is_valid() {
        return Err(ExecuteError::NotLeading);
    }
    let observation = match step {
        Step::Done(requeue) => return Ok(Outcome::Done(requeue)),
        Step::AddFinalizer => {
            let written = set_finalizer(context, partition, true)
                .await
                .map_err(|error| unless_conflict(error, ExecuteError::AddFinalizer))?;
            return Ok(Outcome::Wrote(Box::new(written), Observation::Written));
        }
        Step::RemoveFinalizer { abandoned } => {
            release(context, partition, &abandoned).await?;
            return Ok(Outcome::Released);
        }
        Step::Write(status) => {
            return write(context, partition, *status, Observation::Written).await;
        }
        Step::Record(status, intent) => {
            return write(context, partition, *status, Observation::Recorded(intent)).await;
        }
        Step::Create(attempt) => Observation::Created {
            reply: slot.outside(create(context, partition, &attempt)).await,
            id: attempt.id,
        },
        Step::ReadState(attempt) => Observation::RemoteState {
            remote_state: slot
                .outside(remote_state(context, partition, &attempt))
                .await,
            id: attempt.id,
        },
        Step::CountUsers(id) => Observation::Users {
            pods: slot.outside(users(context, partition, &id)).await?,
            id,
        },
        Step::Remove { attempt, force } => Observation::Removed {
            error: slot.outside(remove(context, &attempt, force)).await.err(),
            id: attempt.id,
        },
        Step::Reset(attempt) => Observation::Reset {
            error: slot
                .outside(reset(context, partition, &attempt))
                .await
                .err(),
            id: attempt.id,
        },
        Step::Place => match ask(context, partition, has_written) {
            Some(decision) => Observation::Placed(answer(context, decision)?),
            // The placement loop triggers the next reconcile.
            None => return Ok(Outcome::Done(Requeue::ForCapacity)),
        },
        Step::EvaluateEviction => {
            Observation::Eviction(slot.outside(siblings::eviction(context, partition)).await)
        }
    };
    Ok(Outcome::Observed(observation))
}

/// The live Pods that use partition `id`. If there are some, the end of one triggers the next reconcile.
async fn users(
    context: &Context,
    partition: &IPUPartition,
    id: &str,
) -> Result<Vec<String>, ListPodsError> {
    // Before the list, so that the end of a Pod after it is not missed.
    context.pod_waits.begin(id, &partition.name_any());
    let pods = context.pod_users.of_owner(partition, id).await?;
    if pods.is_empty() {
        context.pod_waits.end(id);
    }
    Ok(pods)
}

/// The decision on the controller of a partition. `None`: it follows.
fn ask(
    context: &Context,
    partition: &IPUPartition,
    has_written: bool,
) -> Option<PlacementDecision> {
    let is_open = |controller: &ControllerRef| context.pool.is_open(controller);
    let reply = context
        .queue_state
        .ask((partition, has_written), &context.watched, is_open);
    let uid = partition.uid().unwrap_or_default();
    context.freed(&uid, reply.is_freed);
    if matches!(reply.answer, Some(PlacementDecision::Try(..))) {
        // The IPUs wait for it: an error is followed by a short delay.
        context.history.count_idle(&uid, true);
    }
    reply.answer
}

fn answer(context: &Context, decision: PlacementDecision) -> Result<Answer, ExecuteError> {
    let account = match &decision {
        PlacementDecision::Try(controller, _) => context.pool.account(controller),
        PlacementDecision::Wait(_) | PlacementDecision::Reject(_) => None,
    };
    Ok(Answer {
        decision,
        account,
        nonce: nonce()?,
    })
}

/// A random number that makes an id unique, even after a restore of the API server.
fn nonce() -> Result<u64, ExecuteError> {
    let random = ring::rand::generate::<[u8; 8]>(&SystemRandom::new());
    let random = random.map_err(|_| ExecuteError::Nonce)?;
    Ok(u64::from_be_bytes(random.expose()))
}

async fn write(
    context: &Context,
    partition: &IPUPartition,
    status: IPUPartitionStatus,
    observation: Observation,
) -> Result<Outcome, ExecuteError> {
    let before = partition.status.clone().unwrap_or_default();
    let note = events::of_change(&before, &status);
    let mut desired = partition.clone();
    desired.status = Some(status);
    // A replacement with the version that was read: the API server refuses it after any other write, and it removes
    // fields that are no longer set.
    let api = Api::<Trimmed<IPUPartition>>::all(context.client.clone());
    let (name, params) = (partition.name_any(), PostParams::default());
    let replaced = api.replace_subresource("status", &name, &params, &desired);
    let Trimmed(written) = api_client::with_timeout(replaced)
        .await
        .map_err(|error| unless_conflict(error, ExecuteError::WriteStatus))?;
    if allocations::releases(
        &before,
        written
            .status
            .as_ref()
            .unwrap_or(&IPUPartitionStatus::default()),
    ) {
        // Earlier requests are decided before this reconcile can request anything itself.
        context.released.notify_one();
    }
    log_change(&before, &written, &observation);
    if let Some(note) = note {
        context.publish(&written, note);
    }
    Ok(Outcome::Wrote(Box::new(written), observation))
}

fn log_change(before: &IPUPartitionStatus, written: &IPUPartition, observation: &Observation) {
    let status = written.status.clone().unwrap_or_default();
    let message = status.message.as_deref().unwrap_or_default();
    match observation {
        Observation::Recorded(Intent::Create(id) | Intent::Reset(id)) => {
            tracing::info!(partition = %written.name_any(), id, message, "recorded the next step");
        }
        _ if before.phase != status.phase || before.message != status.message => {
            tracing::info!(partition = %written.name_any(), phase = ?status.phase, message);
        }
        _ => tracing::debug!(partition = %written.name_any(), "wrote the status"),
    }
}

async fn release(
    context: &Context,
    partition: &IPUPartition,
    abandoned: &[Attempt],
) -> Result<(), ExecuteError> {
    let status = partition.status.clone().unwrap_or_default();
    let sweep = |attempt: &Attempt| {
        if !context.settings.identity.marks(&attempt.id) {
            Sweep::Never
        } else if context.pool.is_listed(&attempt.controller) {
            Sweep::Later
        } else {
            Sweep::OnceListed
        }
    };
    let note = events::of_release(&status, abandoned, sweep);
    set_finalizer(context, partition, false)
        .await
        .map_err(|error| unless_conflict(error, ExecuteError::RemoveFinalizer))?;
    for attempt in abandoned {
        tracing::warn!(
            partition = %partition.name_any(), id = attempt.id, controller = attempt.controller.name,
            is_swept_later = sweep(attempt) == Sweep::Later, "gave up a partition by force"
        );
    }
    context.released.notify_one();
    if let Some(note) = note {
        context.publish(partition, note);
    }
    Ok(())
}

async fn set_finalizer(
    context: &Context,
    partition: &IPUPartition,
    is_held: bool,
) -> Result<IPUPartition, kube::Error> {
    let mut finalizers: Vec<String> = partition.finalizers().to_vec();
    finalizers.retain(|name| name != labels::PARTITION_FINALIZER);
    if is_held {
        finalizers.push(labels::PARTITION_FINALIZER.to_owned());
    }
    let patch = json!({
        "metadata": {
            "uid": partition.uid(),
            "resourceVersion": partition.resource_version(),
            "finalizers": finalizers,
        }
    });
    let api = Api::<Trimmed<IPUPartition>>::all(context.client.clone());
    let (name, params) = (partition.name_any(), PatchParams::default());
    let written = api_client::with_timeout(api.patch(&name, &params, &Patch::Merge(patch))).await;
    written.map(|Trimmed(written)| written)
}

fn unless_conflict(
    error: kube::Error,
    otherwise: impl FnOnce(kube::Error) -> ExecuteError,
) -> ExecuteError {
    match &error {
        kube::Error::Api(status) if status.code == 409 || status.code == 404 => {
            ExecuteError::Conflict
        }
        _ => otherwise(error),
    }
}
