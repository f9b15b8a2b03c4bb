//! The effects of a reconcile in the operator. No other module of the reconciler writes to an
//! IPUPartition or calls a controller.

use std::sync::Arc;
use std::time::Instant;

use ipu_api::ipupartition::{Attempt, ControllerRef, IPUPartition, IPUPartitionStatus};
use ipu_api::labels;
use ipu_ledger::executor::Effects;
use ipu_ledger::observations::{Answer, Intent, RemoteState, Reply};
use ipu_ledger::step::Step;
use ipu_placement::allocations;
use ipu_placement::decision::PlacementDecision;
use ipu_placement::drain::EvictionState;
use ipu_runtime::api_client;
use ipu_runtime::trimmed::Trimmed;
use ipu_runtime::work_queue::Slot;
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams, PostParams};
use ring::rand::SystemRandom;
use serde_json::json;

use super::events::{self, Sweep};
use crate::controllers::permits::Permit;
use crate::leader::Context;
use crate::pod_users::ListPodsError;
use crate::reconcile::siblings;
use crate::reconcile::vipu_calls;

/// Failure of a step.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EffectError {
    /// The object was changed meanwhile, or is gone: the reconcile starts again with the current
    /// one.
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

/// The API server, the V-IPU controllers and placement, as one reconcile of the leader uses them.
///
/// It waits for V-IPU controllers outside its slot, so that one that does not answer does not stop
/// the partitions of others.
pub(super) struct OperatorEffects<'a> {
    context: &'a Context,
    slot: &'a Slot,
    /// Its last permit, kept until the reconcile ends.
    permit: Option<Permit>,
}

impl<'a> OperatorEffects<'a> {
    pub(super) fn new(context: &'a Context, slot: &'a Slot) -> Self {
        Self {
            context,
            slot,
            permit: None,
        }
    }

    /// The watch may not have delivered the write when the next reconcile begins.
    fn note_write(&self, written: &IPUPartition) {
        let (uid, version) = (
            written.uid().unwrap_or_default(),
            written.resource_version(),
        );
        let writes = &self.context.read_your_writes;
        writes.note(&uid, version.as_deref(), Instant::now());
    }
}

impl Effects for OperatorEffects<'_> {
    type Error = EffectError;

    fn is_admitted(&mut self, partition: &IPUPartition, step: &Step) -> bool {
        let cordons = self.context.pool.cordons();
        let Some(controller) = step.controller(partition, &cordons) else {
            return true;
        };
        let held = self.permit.as_ref();
        if held.is_some_and(|permit| permit.is_of(controller)) {
            return true;
        }
        let name = partition.name_any();
        self.permit = self
            .context
            .permits
            .acquire(controller, &name.as_str().into());
        if self.permit.is_none() {
            tracing::debug!(
                partition = name,
                controller,
                "too many reconciles call the controller; postponed"
            );
        }
        self.permit.is_some()
    }

    fn check_leadership(&self) -> Result<(), EffectError> {
        let is_valid = self.context.leadership.is_valid();
        is_valid.then_some(()).ok_or(EffectError::NotLeading)
    }

    async fn add_finalizer(
        &mut self,
        partition: &IPUPartition,
    ) -> Result<Arc<IPUPartition>, EffectError> {
        let written = set_finalizer(self.context, partition, true)
            .await
            .map_err(|error| unless_conflict(error, EffectError::AddFinalizer))?;
        self.note_write(&written);
        Ok(Arc::new(written))
    }

    async fn release(
        &mut self,
        partition: &IPUPartition,
        abandoned: &[Attempt],
    ) -> Result<(), EffectError> {
        release(self.context, partition, abandoned).await
    }

    async fn write_status(
        &mut self,
        partition: &IPUPartition,
        status: IPUPartitionStatus,
        intent: Option<&Intent>,
    ) -> Result<Arc<IPUPartition>, EffectError> {
        let written = write(self.context, partition, status, intent).await?;
        self.note_write(&written);
        Ok(Arc::new(written))
    }

    async fn users(
        &mut self,
        partition: &IPUPartition,
        id: &str,
    ) -> Result<Vec<String>, EffectError> {
        let listed = users(self.context, partition, id);
        Ok(self.slot.outside(listed).await?)
    }

    async fn create(&mut self, partition: &IPUPartition, attempt: &Attempt) -> Reply {
        let call = vipu_calls::create(self.context, partition, attempt);
        self.slot.outside(call).await
    }

    async fn remote_state(&mut self, partition: &IPUPartition, attempt: &Attempt) -> RemoteState {
        let call = vipu_calls::remote_state(self.context, partition, attempt);
        self.slot.outside(call).await
    }

    async fn remove(
        &mut self,
        _: &IPUPartition,
        attempt: &Attempt,
        force: bool,
    ) -> Result<(), String> {
        let call = vipu_calls::remove(self.context, attempt, force);
        self.slot.outside(call).await
    }

    async fn reset(&mut self, partition: &IPUPartition, attempt: &Attempt) -> Result<(), String> {
        let call = vipu_calls::reset(self.context, partition, attempt);
        self.slot.outside(call).await
    }

    async fn place(
        &mut self,
        partition: &IPUPartition,
        has_written: bool,
    ) -> Result<Option<Answer>, EffectError> {
        let decision = ask(self.context, partition, has_written);
        decision
            .map(|decision| answer(self.context, decision))
            .transpose()
    }

    async fn eviction(&mut self, partition: &IPUPartition) -> EvictionState {
        let call = siblings::eviction(self.context, partition);
        self.slot.outside(call).await
    }
}

/// The live Pods that use partition `id`. If there are some, the end of one triggers the next
/// reconcile.
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
        .ask(partition, has_written, &context.watched, is_open);
    let uid = partition.uid().unwrap_or_default();
    context.freed(&uid, reply.is_freed);
    if matches!(reply.answer, Some(PlacementDecision::Try(..))) {
        // The IPUs wait for it: an error is followed by a short delay.
        context.history.count_idle(&uid, true);
    }
    reply.answer
}

fn answer(context: &Context, decision: PlacementDecision) -> Result<Answer, EffectError> {
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
fn nonce() -> Result<u64, EffectError> {
    let random = ring::rand::generate::<[u8; 8]>(&SystemRandom::new());
    let random = random.map_err(|_| EffectError::Nonce)?;
    Ok(u64::from_be_bytes(random.expose()))
}

async fn write(
    context: &Context,
    partition: &IPUPartition,
    status: IPUPartitionStatus,
    intent: Option<&Intent>,
) -> Result<IPUPartition, EffectError> {
    let before = partition.status.clone().unwrap_or_default();
    let note = events::of_change(&before, &status);
    let mut desired = partition.clone();
    desired.status = Some(status);
    // A replacement with the version that was read: the API server refuses it after any other
    // write, and it removes fields that are no longer set.
    let api = Api::<Trimmed<IPUPartition>>::all(context.client.clone());
    let (name, params) = (partition.name_any(), PostParams::default());
    let replaced = api.replace_subresource("status", &name, &params, &desired);
    let Trimmed(written) = api_client::with_timeout(replaced)
        .await
        .map_err(|error| unless_conflict(error, EffectError::WriteStatus))?;
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
    log_change(&before, &written, intent);
    if let Some(note) = note {
        context.publish(&written, note);
    }
    Ok(written)
}

fn log_change(before: &IPUPartitionStatus, written: &IPUPartition, intent: Option<&Intent>) {
    let status = written.status.clone().unwrap_or_default();
    let message = status.message.as_deref().unwrap_or_default();
    match intent {
        Some(Intent::Create(id) | Intent::Reset(id)) => {
            tracing::info!(partition = %written.name_any(), id, message, "recorded the next step");
        }
        None if before.phase != status.phase || before.message != status.message => {
            tracing::info!(partition = %written.name_any(), phase = ?status.phase, message);
        }
        None => tracing::debug!(partition = %written.name_any(), "wrote the status"),
    }
}

async fn release(
    context: &Context,
    partition: &IPUPartition,
    abandoned: &[Attempt],
) -> Result<(), EffectError> {
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
    let note = events::of_release(&partition.spec.owner, &status, abandoned, sweep);
    set_finalizer(context, partition, false)
        .await
        .map_err(|error| unless_conflict(error, EffectError::RemoveFinalizer))?;
    let id = status.attempts.last().map(|attempt| attempt.id.as_str());
    tracing::info!(partition = %partition.name_any(), id, "removed the finalizer");
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
    otherwise: impl FnOnce(kube::Error) -> EffectError,
) -> EffectError {
    match &error {
        kube::Error::Api(status) if status.code == 409 || status.code == 404 => {
            EffectError::Conflict
        }
        _ => otherwise(error),
    }
}
