//! All writes of the job controller to the cluster.

mod classify;
pub mod pod;
pub mod shared;
pub mod status;

use std::fmt::Debug;

use ipu_api::ipupartition::IPUPartition;
use ipu_api::labels;
use ipu_api::uid::Uid;
use ipu_runtime::requests;
use ipu_runtime::watch_store::version;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use kube::core::{NamespaceResourceScope, Resource};
use kube::{Client, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use thiserror::Error;
use tracing::Instrument;

use super::job_object::{JobObject, job_uid};
use super::plan::{Deletion, PinUpdate, Release, Reset};
use super::raw::RawJob;
use super::status::Obstacle;
use super::views::View;
use classify::{contains_all, failed, object_name, ownership_conflict, refused_or_failed};

/// A write that failed, and that the next reconcile retries.
#[derive(Debug, Error)]
#[error("failed to {action} {object}")]
pub struct WriteError {
    action: &'static str,
    object: String,
    /// The error of the client.
    #[source]
    pub source: kube::Error,
}

impl WriteError {
    /// Whether another client has changed the object since it was read.
    pub fn is_conflict(&self) -> bool {
        matches!(&self.source, kube::Error::Api(status) if status.is_conflict())
    }
}

/// The result of a creation: the obstacle, if there is one.
pub type CreateResult = Result<Option<Obstacle>, WriteError>;

/// What became of a creation.
enum Creation<K> {
    /// The object is created.
    Created(K),
    /// An object of the name exists, or the API server refuses the new one. `None`: the job owns
    /// the existing object.
    Not(Option<Obstacle>),
}

/// The result of an apply: the version of the object, or the obstacle.
pub type ApplyResult = Result<Result<u64, Obstacle>, WriteError>;

/// Creates an object. If an object of the name exists, its owner's UID decides: it is the job's own
/// and was created a moment ago, it is terminating, or it belongs to another owner and is never
/// adopted.
///
/// The cache behind `view` expects the object.
pub async fn create<K>(api: &Api<K>, object: &K, owner: &str, view: &View<K>) -> CreateResult
where
    K: JobObject + Clone + Debug,
{
    Ok(match post(api, object, owner, view).await? {
        Creation::Created(_) => None,
        Creation::Not(obstacle) => obstacle,
    })
}

async fn post<K>(
    api: &Api<K>,
    object: &K,
    owner: &str,
    view: &View<K>,
) -> Result<Creation<K>, WriteError>
where
    K: JobObject + Clone + Debug,
{
    let span = tracing::trace_span!(
        "create",
        object = object_name(object),
        k8s.namespace.name = object.meta().namespace,
        k8s.pod.name = (K::kind(&()) == "Pod").then(|| object.name_any()),
    );
    match api.create(&requests::post(), object).instrument(span).await {
        Ok(created) => {
            view.expect_update(&created);
            Ok(Creation::Created(created))
        }
        Err(kube::Error::Api(status)) if status.is_already_exists() => {
            let name = object.name_any();
            let found = api
                .get_opt(&name)
                .await
                .map_err(|source| failed("read", object, source))?;
            if let Some(found) = &found {
                view.expect_update(found);
            }
            // If it was deleted meanwhile, the next reconcile creates it.
            let conflict = found.and_then(|found| ownership_conflict(&found, object, owner));
            Ok(Creation::Not(conflict))
        }
        Err(error) => {
            let obstacle = refused_or_failed("create", object, error)?;
            Ok(Creation::Not(Some(obstacle)))
        }
    }
}

/// Applies an object in the job's namespace (server-side apply), unless it belongs to another
/// owner: a ServiceAccount `<job>-launcher` may be a user's.
///
/// An `expected` object is read first, because usually it needs no write. Any other is created
/// first, which usually succeeds.
pub async fn apply<K>(
    client: &Client,
    namespace: &str,
    object: &K,
    owner: &str,
    expected: bool,
) -> ApplyResult
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Serialize
        + DeserializeOwned
        + Clone
        + Debug,
{
    let conflict = |found: &K| ownership_conflict(found, object, owner);
    apply_unless(client, namespace, object, expected, conflict).await
}

/// Applies an object (server-side apply), unless it is as desired, or the found one is a conflict.
/// An absent one is created, so that one of a user, created meanwhile, is found.
async fn apply_unless<K>(
    client: &Client,
    namespace: &str,
    object: &K,
    expected: bool,
    conflict: impl Fn(&K) -> Option<Obstacle>,
) -> ApplyResult
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Serialize
        + DeserializeOwned
        + Clone
        + Debug,
{
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    let name = object.name_any();
    let read = async || {
        let found = api.get_opt(&name).await;
        found.map_err(|source| failed("read", object, source))
    };
    let mut found = if expected { read().await? } else { None };
    if found.is_none() {
        match api.create(&requests::post(), object).await {
            Ok(created) => return Ok(Ok(version(created.meta()))),
            Err(kube::Error::Api(status)) if status.is_already_exists() => found = read().await?,
            Err(error) => return refused_or_failed("create", object, error).map(Err),
        }
    }
    let mut desired = object.clone();
    if let Some(found) = found {
        if let Some(obstacle) = conflict(&found) {
            return Ok(Err(obstacle));
        }
        if contains_all(&json!(found), &json!(object)) {
            return Ok(Ok(version(found.meta())));
        }
        // The UID prevents that another object of the name, created meanwhile, is overwritten.
        desired.meta_mut().uid = found.uid();
    }
    let parameters = PatchParams::apply(labels::FIELD_MANAGER).force();
    match api.patch(&name, &parameters, &Patch::Apply(&desired)).await {
        Ok(written) => Ok(Ok(version(written.meta()))),
        Err(error) => refused_or_failed("apply", object, error).map(Err),
    }
}

/// Deletes an object of a job by its UID. An object that does not exist is a success.
pub async fn delete<K>(
    api: &Api<K>,
    deletion: &Deletion,
    job: Uid,
    view: &View<K>,
) -> Result<(), WriteError>
where
    K: JobObject + Clone + Debug,
{
    delete_with(api, deletion, of_uid(deletion), (job, view)).await
}

/// Deletes a Pod of a job with a grace period of 0, because its node is lost.
pub async fn force_delete(
    pods: &Api<Pod>,
    deletion: &Deletion,
    job: Uid,
    view: &View<Pod>,
) -> Result<(), WriteError> {
    let now = of_uid(deletion).grace_period(0);
    delete_with(pods, deletion, now, (job, view)).await
}

fn of_uid(deletion: &Deletion) -> DeleteParams {
    requests::delete(Some(deletion.uid.clone()), None)
}

async fn delete_with<K>(
    api: &Api<K>,
    deletion: &Deletion,
    parameters: DeleteParams,
    (job, view): (Uid, &View<K>),
) -> Result<(), WriteError>
where
    K: JobObject + Clone + Debug,
{
    match api.delete(&deletion.name, &parameters).await {
        Ok(deleted) => match deleted.left() {
            Some(terminating) => view.expect_update(&terminating),
            None => view.expect_delete(job, &deletion.uid),
        },
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => {}
        Err(source) => {
            return Err(WriteError {
                action: "delete",
                object: format!("{} {}", K::kind(&()), deletion.name),
                source,
            });
        }
    }
    Ok(())
}

/// Ends the sidecars of a Pod whose main container has ended. The Pod and its logs remain.
///
/// `activeDeadlineSeconds` is the only mutable field of a Pod's spec that ends it.
pub async fn end_pod(pods: &Api<Pod>, pod: &Deletion, view: &View<Pod>) -> Result<(), WriteError> {
    let patch = json!({
        "metadata": {"uid": pod.uid},
        "spec": {"activeDeadlineSeconds": 1},
    });
    merge(pods, &pod.name, &patch, "end the sidecars of", view).await
}

/// Releases the command of a launcher.
pub async fn release(
    pods: &Api<Pod>,
    release: &Release,
    view: &View<Pod>,
) -> Result<(), WriteError> {
    let patch = json!({"metadata": {
        "uid": release.uid,
        "annotations": {labels::START_ANNOTATION: release.at},
    }});
    merge(pods, &release.name, &patch, "release the command of", view).await
}

/// Requests a reset of a partition.
pub async fn reset(
    partitions: &Api<IPUPartition>,
    reset: &Reset,
    view: &View<IPUPartition>,
) -> Result<(), WriteError> {
    let patch = json!({
        "metadata": {"uid": reset.uid},
        "spec": {"resetGeneration": reset.generation},
    });
    let action = "request a reset of";
    merge(partitions, &reset.name, &patch, action, view).await
}

/// Updates whether a partition is pinned.
pub async fn update_pin(
    partitions: &Api<IPUPartition>,
    update: &PinUpdate,
    view: &View<IPUPartition>,
) -> Result<(), WriteError> {
    let patch = json!({
        "metadata": {"uid": update.uid},
        "spec": {"options": {"pinned": update.pinned}},
    });
    merge(partitions, &update.name, &patch, "update the pin of", view).await
}

/// Sends a merge patch to an object by its UID. An object that does not exist needs no write.
async fn merge<K>(
    api: &Api<K>,
    name: &str,
    patch: &Value,
    action: &'static str,
    view: &View<K>,
) -> Result<(), WriteError>
where
    K: JobObject + Clone + Debug,
{
    let (parameters, patch) = (requests::patch(), Patch::Merge(patch));
    let sent = api.patch(name, &parameters, &patch).await;
    record_write(action, name, sent.map(Some), view)?;
    Ok(())
}

/// Deletes a finished IPUJob after its TTL, unless it has changed since that was decided.
pub async fn delete_job(
    jobs: &Api<RawJob>,
    job: &RawJob,
    view: &View<RawJob>,
) -> Result<(), WriteError> {
    let parameters = requests::delete(job.uid(), job.resource_version());
    let name = job.name_any();
    let terminating = match jobs.delete(&name, &parameters).await {
        Ok(deleted) => Ok(deleted.left()),
        Err(error) => Err(error),
    };
    record_write("delete", &name, terminating, view)?;
    Ok(())
}

/// Patches the finalizers of an IPUJob.
pub async fn patch_job(
    jobs: &Api<RawJob>,
    name: &str,
    patch: &Value,
    view: &View<RawJob>,
) -> Result<(), WriteError> {
    merge(jobs, name, patch, "patch", view).await
}

/// Whether a Pod of an instance exists that the cache does not contain. The cache then expects it.
pub async fn has_pods(
    pods: &Api<Pod>,
    (job, instance): (&str, u32),
    view: &View<Pod>,
) -> Result<bool, WriteError> {
    let labels = format!(
        "{}={job},{}={instance}",
        labels::JOB_UID_LABEL,
        labels::INSTANCE_LABEL
    );
    let found = pods.list(&ListParams::default().labels(&labels)).await;
    let found = found.map_err(|source| WriteError {
        action: "list",
        object: format!("the Pods of instance {instance}"),
        source,
    })?;
    let is_owned = |pod: &&Pod| {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        pod.job()
            .is_some_and(|owner| owner.uid == job_uid(namespace, job))
    };
    let owned = found.iter().filter(is_owned);
    Ok(owned.inspect(|pod| view.expect_update(pod)).count() > 0)
}

/// Whether an IPUPartition exists that the cache does not contain. The cache then expects it.
pub async fn has_partition(
    partitions: &Api<IPUPartition>,
    name: &str,
    view: &View<IPUPartition>,
) -> Result<bool, WriteError> {
    let found = record_write("read", name, partitions.get_opt(name).await, view)?;
    Ok(found.is_some())
}

/// Records a write in the cache. An object that does not exist needs no write.
fn record_write<K: JobObject>(
    action: &'static str,
    name: &str,
    sent: Result<Option<K>, kube::Error>,
    view: &View<K>,
) -> Result<Option<K>, WriteError> {
    match sent {
        Ok(written) => {
            if let Some(object) = &written {
                view.expect_update(object);
            }
            Ok(written)
        }
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(None),
        Err(source) => Err(WriteError {
            action,
            object: format!("{} {name}", K::kind(&())),
            source,
        }),
    }
}
