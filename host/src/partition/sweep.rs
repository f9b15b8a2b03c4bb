//! Finds what has no owner: IPUPartitions of owners that are gone, and partitions of nobody.

use std::collections::{BTreeMap, HashSet};
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::future::join_all;
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Preconditions};
use kube::core::{ApiResource, DeserializeGuard};
use tokio::task::coop;
use tokio_util::sync::CancellationToken;

use super::context::Context;
use super::execute::ExecuteError;
use super::orphans::{self, Place};
use super::reconcile::chain;
use super::users;
use super::watched::Watched;
use crate::api::ipujob::IPUJob;
use crate::api::ipupartition::{ControllerRef, IPUPartition};
use crate::object_names;
use crate::uid::Uid;
use crate::vipu::model::ReadyState;

/// IPUPartitions that are read at once. A page takes some ten KiB of memory for each.
const PAGE: u32 = 200;

/// When is swept.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// Between two sweeps that find nothing.
    pub period: Duration,
    /// How long a partition without an owner is left alone after it was first seen.
    pub grace: Duration,
}

impl Default for Times {
    fn default() -> Self {
        Times {
            period: Duration::from_mins(2),
            grace: Duration::from_secs(30),
        }
    }
}

/// Why a sweep was not complete. Whatever it did before is right; the next one does the rest.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    /// The IPUPartitions could not be listed.
    #[error("failed to list the IPUPartitions")]
    ListPartitions(#[source] kube::Error),
    /// Whether an owner still lives could not be asked.
    #[error("failed to look for the owner of IPUPartition {partition}")]
    GetOwner {
        /// The object whose owner was looked for.
        partition: String,
        /// What the API server said.
        #[source]
        source: kube::Error,
    },
    /// An IPUPartition whose owner is gone could not be deleted.
    #[error("failed to delete IPUPartition {partition}, whose owner is gone")]
    Delete {
        /// The object.
        partition: String,
        /// What the API server said.
        #[source]
        source: kube::Error,
    },
    /// Whether Pods use a partition could not be asked.
    #[error("failed to make sure that nobody uses a partition without an owner")]
    Users(#[source] ExecuteError),
}

/// Sweeps on start and then regularly, until it is told to stop. After a find it comes back as soon
/// as the grace is over, so that nothing without an owner stays for longer than a period.
pub async fn run(context: Arc<Context>, times: Times, stop: CancellationToken) {
    let mut suspects = BTreeMap::new();
    loop {
        match sweep(&context, &suspects, times.grace).await {
            Ok(found) => suspects = found,
            Err(error) => tracing::warn!(error = chain(&error), "the sweep was not complete"),
        }
        let pause = if suspects.is_empty() {
            times.period
        } else {
            times.grace
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = stop.cancelled() => return,
            () = spare(&context.watched, &mut suspects) => {}
        }
    }
}

/// Takes from the suspects what is seen to have an owner, as long as anything is seen.
async fn spare(watched: &Watched, suspects: &mut BTreeMap<Place, Timestamp>) {
    let mut seen = pin!(watched.names());
    while let Some(name) = seen.next().await {
        if suspects.is_empty() {
            continue;
        }
        // There may be thousands of objects, and others have their turn.
        coop::consume_budget().await;
        let object = watched.read(|cache| cache.get(&name));
        if let Some(DeserializeGuard(Ok(partition))) = object {
            orphans::spare(suspects, &partition);
        }
    }
}

/// One sweep. `suspects` is what the last one found, and the answer is what this one did.
async fn sweep(
    context: &Context,
    suspects: &BTreeMap<Place, Timestamp>,
    grace: Duration,
) -> Result<BTreeMap<Place, Timestamp>, SweepError> {
    let began = Instant::now();
    // Listed before the IPUPartitions are: `orphans::tell` says why.
    let found = partitions_on_controllers(context).await;
    let held = go_through(context).await?;
    let told = orphans::tell(
        found.iter().map(Found::place),
        |id| held.ids.contains(&Uid::of(id)),
        suspects,
        &context.settings.installation,
        SignedDuration::try_from(grace).unwrap_or(SignedDuration::ZERO),
        Timestamp::now(),
    );
    for (name, id) in &told.due {
        let mut found = found.iter();
        if let Some(found) = found.find(|one| one.place() == (name.as_str(), id.as_str())) {
            remove(context, found).await?;
        }
    }
    let (objects, partitions) = (held.objects, found.len());
    let (suspects, due) = (told.suspects.len(), told.due.len());
    let seconds = began.elapsed().as_secs_f64();
    if suspects == 0 {
        tracing::debug!(objects, partitions, seconds, "swept");
    } else {
        tracing::info!(objects, partitions, suspects, due, seconds, "swept");
    }
    Ok(told.suspects)
}

/// A partition on a controller.
struct Found {
    controller: Arc<ControllerRef>,
    id: String,
    /// Whether it has to be removed by force, as one in error does.
    is_in_error: bool,
}

impl Found {
    /// The name of its controller, and its id.
    fn place(&self) -> (&str, &str) {
        (&self.controller.name, &self.id)
    }
}

/// Every partition on every controller that answers. One that does not is swept when it is back.
async fn partitions_on_controllers(context: &Context) -> Vec<Found> {
    let controllers = context.fleet.controllers();
    let lists = controllers.iter().map(|controller| async move {
        let list = match context.fleet.client(controller) {
            Ok(client) => client.list().await,
            Err(error) => Err(error),
        };
        (controller, list)
    });
    let mut found = Vec::new();
    for (controller, list) in join_all(lists).await {
        let controller = Arc::new(controller.clone());
        match list {
            Ok(list) => found.extend(list.into_iter().map(|one| Found {
                controller: Arc::clone(&controller),
                is_in_error: one.ready_state == ReadyState::Error,
                id: one.id,
            })),
            Err(error) => tracing::info!(
                controller = controller.name,
                reason = error.reason(),
                "not swept, since it does not answer"
            ),
        }
    }
    found
}

/// What all IPUPartitions hold.
#[derive(Default)]
struct Holdings {
    objects: usize,
    /// Ids of their attempts, and every text in objects that cannot be read: whatever id such a text may
    /// be is left alone. There are thousands, so that only their digests are kept.
    ids: HashSet<Uid>,
}

/// Goes through all IPUPartitions as they are at one moment, and deletes those whose owners are gone. Page
/// by page, since there may be thousands.
async fn go_through(context: &Context) -> Result<Holdings, SweepError> {
    let kind = ApiResource::erase::<IPUPartition>(&());
    let api = Api::<DynamicObject>::all_with(context.client.clone(), &kind);
    let (mut holdings, mut params) = (Holdings::default(), ListParams::default().limit(PAGE));
    loop {
        let page = api.list(&params).await;
        let page = page.map_err(SweepError::ListPartitions)?;
        for object in page.items {
            match object.clone().try_parse::<IPUPartition>() {
                Ok(partition) => {
                    delete_if_owner_is_gone(context, &partition).await?;
                    holdings.objects += 1;
                    let ids = orphans::held([&partition]);
                    holdings.ids.extend(ids.iter().map(|id| Uid::of(id)));
                }
                Err(_) => collect_texts(&object.data, &mut holdings.ids),
            }
        }
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params.continue_token = Some(token),
            None => return Ok(holdings),
        }
    }
}

fn collect_texts(value: &serde_json::Value, texts: &mut HashSet<Uid>) {
    match value {
        serde_json::Value::String(text) => {
            texts.insert(Uid::of(text));
        }
        serde_json::Value::Array(items) => {
            for item in items {
                collect_texts(item, texts);
            }
        }
        serde_json::Value::Object(fields) => {
            for field in fields.values() {
                collect_texts(field, texts);
            }
        }
        serde_json::Value::Null | serde_json::Value::Bool(_) | serde_json::Value::Number(_) => {}
    }
}

/// Deletes an IPUPartition whose owner is an IPUJob that is gone. Owners of other kinds are never
/// judged: who made them knows when they end.
async fn delete_if_owner_is_gone(
    context: &Context,
    partition: &IPUPartition,
) -> Result<(), SweepError> {
    let owner = &partition.spec.owner;
    let is_known = owner.kind == "IPUJob" && owner.api_version == crate::api::API_VERSION;
    if !is_known
        || !context.scope.contains(&owner.namespace)
        || partition.metadata.deletion_timestamp.is_some()
    {
        return Ok(());
    }
    let name = partition.name_any();
    // What was written by hand may hold anything: an owner that cannot exist is not looked for.
    if object_names::can_exist(owner) {
        let found = Api::<IPUJob>::namespaced(context.client.clone(), &owner.namespace)
            .get_metadata_opt(&owner.name)
            .await
            .map_err(|source| SweepError::GetOwner {
                partition: name.clone(),
                source,
            })?;
        if found.is_some_and(|job| job.metadata.uid.as_ref() == Some(&owner.uid)) {
            return Ok(());
        }
    }
    tracing::info!(
        partition = name,
        owner = owner.name,
        "deleting it, since its owner is gone"
    );
    let exactly = DeleteParams {
        preconditions: Some(Preconditions {
            uid: partition.uid(),
            resource_version: partition.resource_version(),
        }),
        ..DeleteParams::default()
    };
    match Api::<IPUPartition>::all(context.client.clone())
        .delete(&name, &exactly)
        .await
    {
        Ok(_) => Ok(()),
        // Changed or gone meanwhile: the next sweep looks again.
        Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => Ok(()),
        Err(source) => Err(SweepError::Delete {
            partition: name,
            source,
        }),
    }
}

/// Removes a partition of this installation that no IPUPartition answers for, unless a Pod uses it.
async fn remove(context: &Context, found: &Found) -> Result<(), SweepError> {
    let (name, id) = found.place();
    let users = users::users(&context.client, id)
        .await
        .map_err(SweepError::Users)?;
    if !users.is_empty() {
        tracing::warn!(
            id,
            controller = name,
            ?users,
            "left alone: it has no owner, but Pods use it"
        );
        return Ok(());
    }
    let controller = &*found.controller;
    let result = match context.fleet.client(controller) {
        Ok(client) => client.remove(id, found.is_in_error).await,
        Err(error) => Err(error),
    };
    match result {
        Ok(()) => tracing::info!(
            id,
            controller = name,
            "removed a partition without an owner"
        ),
        Err(error) => tracing::warn!(
            id,
            controller = name,
            reason = error.reason(),
            "failed to remove a partition without an owner; trying again"
        ),
    }
    context.fleet.changed(controller);
    context.given_back.notify_one();
    Ok(())
}
