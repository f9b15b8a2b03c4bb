//! Carries out one step for an IPUPartition. No other module of the reconciler writes to it or calls a controller.

use ipu_api::ipupartition::{
    Attempt, ControllerRef, IPUPartition, IPUPartitionSpec, IPUPartitionStatus, PartitionPhase,
};
use ipu_api::labels;
use ipu_api::uid::Uid;
use ipu_runtime::api_client;
use ipu_runtime::trimmed::Trimmed;
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams, PostParams};
use ring::rand::SystemRandom;
use serde_json::json;
use vipu_client::model::CreateRequest;
use vipu_client::{Lookup, VipuClient, VipuError};

use super::capacity;
use super::context::Context;
use super::evaluate;
use super::events::{self, Sweep};
use super::observations::{Answer, HealthState, Intent, Observation, RemoteState, Reply};
use super::placement_request::request::shortened;
use super::pod_users::{self, ListPodsError};
use super::refusals;
use super::remote_state;
use super::step::{Requeue, Step};

/// The outcome of a step.
#[derive(Debug)]
pub(super) enum Outcome {
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
pub(super) enum ExecuteError {
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
pub(super) async fn execute(
    context: &Context,
    partition: &IPUPartition,
    step: Step,
    has_written: bool,
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
        Step::Record(mut status, intent) => {
            context.pool.sign(&mut status, &intent);
            return write(context, partition, *status, Observation::Recorded(intent)).await;
        }
        Step::Create(attempt) => Observation::Created {
            reply: create(context, partition, &attempt).await,
            id: attempt.id,
        },
        Step::ReadState(attempt) => Observation::RemoteState {
            remote_state: remote_state(context, partition, &attempt).await,
            id: attempt.id,
        },
        Step::CountUsers(id) => Observation::Users {
            pods: pod_users::users_of_owner(context, partition, &id).await?,
            id,
        },
        Step::Remove { attempt, force } => Observation::Removed {
            error: remove(context, &attempt, force).await.err(),
            id: attempt.id,
        },
        Step::Reset(attempt) => Observation::Reset {
            error: reset(context, partition, &attempt).await.err(),
            id: attempt.id,
        },
        Step::Place => match ask(context, partition, has_written) {
            Some(answer) => Observation::Placed(answer, nonce()?),
            // The placement loop triggers the next reconcile.
            None => return Ok(Outcome::Done(Requeue::ForCapacity)),
        },
        Step::EvaluateEviction => {
            Observation::Eviction(evaluate::eviction(context, partition).await)
        }
    };
    Ok(Outcome::Observed(observation))
}

/// The decision on the controller of a partition. `None`: it follows.
fn ask(context: &Context, partition: &IPUPartition, has_written: bool) -> Option<Answer> {
    let is_open = |controller: &ControllerRef| context.pool.is_open(controller);
    let reply = context
        .queue_state
        .ask((partition, has_written), &context.watched, is_open);
    let uid = partition.uid().unwrap_or_default();
    context.freed(&uid, reply.is_freed);
    if matches!(reply.answer, Some(Answer::Try(..))) {
        // The IPUs wait for it: an error is followed by a short delay.
        context.history.count_idle(&uid, true);
    }
    reply.answer
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
    if capacity::releases(
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

async fn create(context: &Context, partition: &IPUPartition, attempt: &Attempt) -> Reply {
    let spec = &partition.spec;
    let request = CreateRequest {
        id: attempt.id.clone(),
        ipus: spec.ipus,
        gcds: spec.gcds,
        replicas: spec.options.replicas,
        reconfigurable: spec.options.reconfigurable,
        relocatable: spec.options.relocatable,
    };
    let uid = partition.uid().unwrap_or_default();
    let Attempt { controller, id, .. } = attempt;
    let result = match context.pool.client(controller) {
        Ok(client) => {
            // From now on, the controller may list the partition: it must not count twice.
            let _requested = context.pool.requests(controller, id, spec.ipus);
            context.queue_state.requests().requested(Uid::of(&uid));
            let result = client.create(&request).await;
            if result.is_ok() {
                // Before the request ends, so that its IPUs are never free.
                context.pool.took(controller, id, spec.ipus);
            }
            result
        }
        Err(error) => Err(error),
    };
    let Err(error) = result else {
        context.queue_state.served(&uid);
        return Reply::Done;
    };
    context.pool.changed(controller);
    let reason = shortened(&error.reason());
    tracing::warn!(
        id = attempt.id,
        controller = attempt.controller.name,
        reason,
        "create failed"
    );
    if error.is_exhausted() && refusals::are_options_usual(&spec.options) {
        let controller = &attempt.controller;
        context.pool.refused(controller, spec.ipus, &reason);
    }
    match error {
        VipuError::Address(_)
        | VipuError::UnlistedAddress { .. }
        | VipuError::Auth(_)
        | VipuError::Unreachable(_) => Reply::NotSent(reason),
        VipuError::OutcomeUnknown { .. }
        | VipuError::Refused { .. }
        | VipuError::Denied { .. }
        | VipuError::OtherAccount
        | VipuError::OtherPartition { .. }
        | VipuError::Incomplete { .. } => Reply::Failed(reason),
    }
}

async fn remote_state(
    context: &Context,
    partition: &IPUPartition,
    attempt: &Attempt,
) -> RemoteState {
    if context.pool.is_gone(&attempt.controller) {
        return RemoteState::Absent;
    }
    let asked = read_state(context, partition, attempt).await;
    let remote_state = asked.unwrap_or_else(|error| {
        let is_listed = context.pool.is_listed(&attempt.controller);
        remote_state::without_answer(&error.reason(), error.is_denial(), is_listed)
    });
    if remote_state::is_gone(attempt, &remote_state) {
        context.pool.changed(&attempt.controller);
    }
    remote_state
}

/// Reads the state. A partition that has just become active with another size than requested counts as failed.
async fn read_state(
    context: &Context,
    partition: &IPUPartition,
    attempt: &Attempt,
) -> Result<RemoteState, VipuError> {
    let IPUPartitionSpec { ipus, gcds, .. } = partition.spec;
    let client = context.pool.client(&attempt.controller)?;
    let account = attempt.account.as_deref();
    let lookup = client.lookup_as(&attempt.id, account).await?;
    context.pool.note(&client, &attempt.id, gcds, &lookup).await;
    let Lookup::Present(state) = lookup else {
        return Ok(RemoteState::Absent);
    };
    let mut health = remote_state::health(&state);
    let phase = partition.status.as_ref().map(|status| status.phase);
    if phase == Some(PartitionPhase::Creating)
        && health.state == HealthState::Active
        && let Some(why) = client.size_mismatch(&attempt.id, ipus, gcds).await
    {
        health.state = HealthState::Failed;
        health.errors = vec![why];
    }
    Ok(RemoteState::Present(health))
}

async fn remove(context: &Context, attempt: &Attempt, force: bool) -> Result<(), String> {
    let client = client(context, attempt)?;
    let result = client.remove(&attempt.id, force).await;
    match &result {
        Ok(()) => context.pool.removed(&attempt.controller, &attempt.id),
        Err(_) => context.pool.changed(&attempt.controller),
    }
    context.released.notify_one();
    result.map_err(|error| shortened(&error.reason()))
}

async fn reset(
    context: &Context,
    partition: &IPUPartition,
    attempt: &Attempt,
) -> Result<(), String> {
    let client = client(context, attempt)?;
    let relocatable = partition.spec.options.relocatable;
    let result = client.reset(&attempt.id, relocatable).await;
    result.map_err(|error| shortened(&error.reason()))
}

fn client(context: &Context, attempt: &Attempt) -> Result<VipuClient, String> {
    let client = context.pool.client(&attempt.controller);
    client.map_err(|error| shortened(&error.reason()))
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
