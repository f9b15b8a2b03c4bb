//! The calls of V-IPU controllers: creates, reads, removes and resets partitions there.

use futures::future::{OptionFuture, join};
use ipu_api::ipupartition::{Attempt, IPUPartition, IPUPartitionSpec, PartitionPhase};
use ipu_api::uid::Uid;
use ipu_ledger::observations::{HealthState, RemoteState, Reply};
use ipu_placement::guest_call::values::shortened;
use ipu_placement::refusals;
use kube::ResourceExt;
use vipu_client::model::{self, CreateRequest};
use vipu_client::{Lookup, VipuClient, VipuError};

use crate::leader::Context;
use crate::reconcile::health;

/// Creates the partition of an attempt.
pub(super) async fn create(
    context: &Context,
    partition: &IPUPartition,
    attempt: &Attempt,
) -> Reply {
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
                if context.pool.took(controller, id, spec.ipus) {
                    context.released.notify_one();
                }
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
    let reply = reply(&error);
    if let Reply::NotSent(reason) | Reply::Exhausted(reason) | Reply::Failed(reason) = &reply {
        tracing::warn!(
            id = attempt.id,
            controller = attempt.controller.name,
            reason,
            "create failed"
        );
    }
    if let Reply::Exhausted(reason) = &reply
        && refusals::are_options_usual(&spec.options)
    {
        context.pool.refused(controller, partition, reason);
    }
    reply
}

/// The reply to a failed CreatePartition.
fn reply(error: &VipuError) -> Reply {
    let reason = shortened(&error.reason());
    if error.is_unsent() {
        Reply::NotSent(reason)
    } else if error.is_exhausted() {
        Reply::Exhausted(reason)
    } else {
        Reply::Failed(reason)
    }
}

/// Reads the state of the partition of an attempt.
pub(super) async fn remote_state(
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
        health::without_answer(&error.reason(), error.is_denial(), is_listed)
    });
    if health::is_gone(attempt, &remote_state) {
        context.pool.changed(&attempt.controller);
    }
    remote_state
}

/// Reads the state. A partition that has just become active with another size than requested counts
/// as failed. Its first state and its IPUs are read at the same time, because most partitions are
/// active when their creation returns.
async fn read_state(
    context: &Context,
    partition: &IPUPartition,
    attempt: &Attempt,
) -> Result<RemoteState, VipuError> {
    let IPUPartitionSpec { ipus, gcds, .. } = partition.spec;
    let client = context.pool.client(&attempt.controller)?;
    let account = attempt.account.as_deref();
    let status = partition.status.as_ref();
    let is_forming = status.is_some_and(|status| status.phase == PartitionPhase::Creating);
    let is_first = is_forming && status.is_some_and(|status| status.partition_id.is_none());
    let early = async {
        let config = is_first.then(|| client.ipuof_config(&attempt.id, 0));
        OptionFuture::from(config).await?.ok()
    };
    let (lookup, early) = join(client.lookup_as(&attempt.id, account), early).await;
    let lookup = lookup?;
    context.pool.note(&client, &attempt.id, gcds, &lookup).await;
    let Lookup::Present(state) = lookup else {
        return Ok(RemoteState::Absent);
    };
    let mut health = health::health(&state);
    health.account = client.account();
    health.first_ipu = context.pool.first_ipu(&attempt.controller, &attempt.id);
    if is_forming && health.state == HealthState::Active {
        // Without IPUs, it was read before the partition had any.
        let mismatch = match early.filter(|config| !config.devices.is_empty()) {
            Some(config) => model::size_mismatch(&config, ipus, gcds),
            None => client.size_mismatch(&attempt.id, ipus, gcds).await,
        };
        if let Some(why) = mismatch {
            health.state = HealthState::Failed;
            health.errors = vec![why];
        }
    }
    Ok(RemoteState::Present(health))
}

/// Removes the partition of an attempt. Returns why it failed.
pub(super) async fn remove(
    context: &Context,
    attempt: &Attempt,
    force: bool,
) -> Result<(), String> {
    let client = client(context, attempt)?;
    let result = client.remove(&attempt.id, force).await;
    match &result {
        Ok(()) => {
            context.pool.removed(&attempt.controller, &attempt.id);
            context.released.notify_one();
        }
        // If it is removed nevertheless, the next reconcile reads that, and records the release.
        Err(_) => context.pool.changed(&attempt.controller),
    }
    result.map_err(|error| shortened(&error.reason()))
}

/// Resets the partition of an attempt. Returns why it failed.
pub(super) async fn reset(
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
