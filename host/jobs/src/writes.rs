//! The one door through which the job controller writes to the cluster.

mod meaning;

use std::fmt::Debug;

use ipu_api::ipupartition::IPUPartition;
use ipu_api::names;
use ipu_api::uid::Uid;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::{NamespaceResourceScope, Request, Resource};
use kube::{Client, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use thiserror::Error;
use tracing::Instrument;

use super::kept::{OfJob, version};
use super::plan::{Binding, Deletion, Reset};
use super::raw::RawJob;
use super::report::Obstacle;
use super::watches::View;
use meaning::{failed, in_the_way, named, refused_or_failed, says_all_of};

/// A write that did not get through to the API server, or met an error of its own.
#[derive(Debug, Error)]
#[error("failed to {action} {object}")]
pub struct WriteError {
    action: &'static str,
    object: String,
    /// What the client says.
    #[source]
    pub source: kube::Error,
}

impl WriteError {
    /// Whether somebody else wrote the object since it was read.
    pub fn is_conflict(&self) -> bool {
        matches!(&self.source, kube::Error::Api(status) if status.is_conflict())
    }
}

/// What became of a write.
pub type Written = Result<Option<Obstacle>, WriteError>;

/// The version at which an object is as it should be, or what keeps it from that.
pub type Brought = Result<Result<u64, Obstacle>, WriteError>;

/// Makes an object. Where one of the name exists, its owner's UID decides: it is ours and was made
/// a moment ago, it is going, or it belongs to a stranger, and is never adopted.
///
/// `view` is told of what is there now.
pub async fn create<K>(api: &Api<K>, object: &K, owner: &str, view: &View<K>) -> Written
where
    K: OfJob + Clone + Debug,
{
    let span = tracing::trace_span!("create", object = named(object));
    match api.create(&by_us(), object).instrument(span).await {
        Ok(made) => {
            view.wrote(&made);
            Ok(None)
        }
        Err(kube::Error::Api(status)) if status.is_already_exists() => {
            let name = object.name_any();
            let found = api
                .get_opt(&name)
                .await
                .map_err(|source| failed("read", object, source))?;
            if let Some(found) = &found {
                view.wrote(found);
            }
            // Gone again: the next reconcile makes it.
            Ok(found.and_then(|found| in_the_way(&found, object, owner)))
        }
        Err(error) => refused_or_failed("create", object, error).map(Some),
    }
}

/// Brings an object inside the job's namespace to a state by server-side apply, unless it belongs
/// to a stranger: a ServiceAccount `<job>-launcher` may well be a user's own.
///
/// One that is `expected` is looked at first, since mostly it is as it should be; another is made at
/// once, which mostly succeeds.
pub async fn apply<K>(
    client: &Client,
    namespace: &str,
    object: &K,
    owner: &str,
    expected: bool,
) -> Brought
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Serialize
        + DeserializeOwned
        + Clone
        + Debug,
{
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    let name = object.name_any();
    if !expected {
        match api.create(&by_us(), object).await {
            Ok(made) => return Ok(Ok(version(made.meta()))),
            Err(kube::Error::Api(status)) if status.is_already_exists() => {}
            Err(error) => return refused_or_failed("create", object, error).map(Err),
        }
    }
    let found = api
        .get_opt(&name)
        .await
        .map_err(|source| failed("read", object, source))?;
    let mut wanted = object.clone();
    if let Some(found) = found {
        if let Some(obstacle) = in_the_way(&found, object, owner) {
            return Ok(Err(obstacle));
        }
        if says_all_of(&json!(found), &json!(object)) {
            return Ok(Ok(version(found.meta())));
        }
        // Another object that takes the name in between is a conflict, and not overwritten.
        wanted.meta_mut().uid = found.uid();
    }
    let parameters = PatchParams::apply(names::FIELD_MANAGER).force();
    match api.patch(&name, &parameters, &Patch::Apply(&wanted)).await {
        Ok(written) => Ok(Ok(version(written.meta()))),
        Err(error) => refused_or_failed("apply", object, error).map(Err),
    }
}

/// Deletes this object of a job and no other of the same name. One that is gone is a success.
pub async fn delete<K>(
    api: &Api<K>,
    deletion: &Deletion,
    job: &str,
    view: &View<K>,
) -> Result<(), WriteError>
where
    K: OfJob + Clone + Debug,
{
    delete_with(api, deletion, DeleteParams::background(), (job, view)).await
}

/// Deletes a Pod of a job without waiting for its node, which is lost.
pub async fn delete_by_force(
    pods: &Api<Pod>,
    deletion: &Deletion,
    job: &str,
    view: &View<Pod>,
) -> Result<(), WriteError> {
    let now = DeleteParams::background().grace_period(0);
    delete_with(pods, deletion, now, (job, view)).await
}

async fn delete_with<K>(
    api: &Api<K>,
    deletion: &Deletion,
    parameters: DeleteParams,
    (job, view): (&str, &View<K>),
) -> Result<(), WriteError>
where
    K: OfJob + Clone + Debug,
{
    let parameters = DeleteParams {
        preconditions: Some(Preconditions {
            uid: Some(deletion.uid.clone()),
            resource_version: None,
        }),
        ..parameters
    };
    match api.delete(&deletion.name, &parameters).await {
        Ok(deleted) => match deleted.left() {
            Some(leaving) => view.wrote(&leaving),
            None => view.removed(job, &deletion.uid),
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

/// Ends what runs on in a Pod beside its main container. The Pod stays, and with it its logs.
///
/// A deadline is the one thing of a running Pod's spec that ends it and can be set later.
pub async fn end_pod(pods: &Api<Pod>, pod: &Deletion, view: &View<Pod>) -> Result<(), WriteError> {
    let patch = json!({
        "metadata": {"uid": pod.uid},
        "spec": {"activeDeadlineSeconds": 1},
    });
    merge(pods, &pod.name, &patch, "end the sidecars of", view).await
}

/// Asks for a reset of a partition.
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

/// Says whether a partition may leave its controller.
pub async fn bind(
    partitions: &Api<IPUPartition>,
    binding: &Binding,
    view: &View<IPUPartition>,
) -> Result<(), WriteError> {
    let patch = json!({
        "metadata": {"uid": binding.uid},
        "spec": {"options": {"pinned": binding.pinned}},
    });
    merge(partitions, &binding.name, &patch, "let move or stay", view).await
}

/// Merges into this object and no other of the same name. One that is gone needs it no more.
async fn merge<K>(
    api: &Api<K>,
    name: &str,
    patch: &Value,
    action: &'static str,
    view: &View<K>,
) -> Result<(), WriteError>
where
    K: OfJob + Clone + Debug,
{
    let parameters = PatchParams {
        field_manager: Some(names::FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    };
    let sent = api.patch(name, &parameters, &Patch::Merge(patch)).await;
    unless_gone(action, name, sent.map(Some), view)?;
    Ok(())
}

/// Deletes an IPUJob whose time after its end is over, as it was when that was decided.
pub async fn delete_job(
    jobs: &Api<RawJob>,
    job: &RawJob,
    view: &View<RawJob>,
) -> Result<(), WriteError> {
    let parameters = DeleteParams {
        preconditions: Some(Preconditions {
            uid: job.uid(),
            resource_version: job.resource_version(),
        }),
        ..DeleteParams::background()
    };
    let name = job.name_any();
    let leaving = match jobs.delete(&name, &parameters).await {
        Ok(deleted) => Ok(deleted.left()),
        Err(error) => Err(error),
    };
    unless_gone("delete", &name, leaving, view)?;
    Ok(())
}

/// Sends a merge patch to an IPUJob: its finalizers.
pub async fn patch_job(
    jobs: &Api<RawJob>,
    name: &str,
    patch: &Value,
    view: &View<RawJob>,
) -> Result<(), WriteError> {
    merge(jobs, name, patch, "patch", view).await
}

/// Replaces the status of an IPUJob, given whole and with the version that was read. Server-side
/// apply would need the whole object to keep the schema, and the status of one that does not is where
/// a user looks for the reason; a merge patch costs the API server a third more.
pub async fn replace_job_status(
    jobs: &Api<RawJob>,
    name: &str,
    object: &Value,
    view: &View<RawJob>,
) -> Result<Option<RawJob>, WriteError> {
    let parameters = PostParams {
        field_manager: Some(format!("{}/status", names::FIELD_MANAGER)),
        ..PostParams::default()
    };
    let body = object.to_string().into_bytes();
    let sent = Request::new(jobs.resource_url())
        .replace_subresource("status", name, &parameters, body)
        .map_err(kube::Error::BuildRequest);
    let sent = match sent {
        Ok(request) => jobs.clone().into_client().request::<RawJob>(request).await,
        Err(error) => Err(error),
    };
    unless_gone("write the status of", name, sent.map(Some), view)
}

/// Whether a Pod of an instance exists that its job's view does not show: the view is told of it.
pub async fn has_pods(
    pods: &Api<Pod>,
    (job, instance): (&str, u32),
    view: &View<Pod>,
) -> Result<bool, WriteError> {
    let labels = format!(
        "{}={job},{}={instance}",
        names::JOB_UID_LABEL,
        names::INSTANCE_LABEL
    );
    let found = pods.list(&ListParams::default().labels(&labels)).await;
    let found = found.map_err(|source| WriteError {
        action: "list",
        object: format!("the Pods of instance {instance}"),
        source,
    })?;
    let is_ours = |pod: &&Pod| pod.job().is_some_and(|owner| owner.uid == Uid::of(job));
    let ours = found.iter().filter(is_ours);
    Ok(ours.inspect(|pod| view.wrote(pod)).count() > 0)
}

/// Tells the view what is there now. An object that is gone needs no write any more.
fn unless_gone<K: OfJob>(
    action: &'static str,
    name: &str,
    sent: Result<Option<K>, kube::Error>,
    view: &View<K>,
) -> Result<Option<K>, WriteError> {
    match sent {
        Ok(written) => {
            if let Some(object) = &written {
                view.wrote(object);
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

fn by_us() -> PostParams {
    PostParams {
        field_manager: Some(names::FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    }
}
