//! Carries out the steps of queued jobs on the API server.

mod admission;
pub(super) mod native;
mod priority;

use ipu_api::condition;
use ipu_api::ipujob_status::JobCondition;
use ipu_api::ipupartition::IPUPartition;
use ipu_api::labels::JOB_UID_LABEL;
use ipu_api::object_ref::ObjectRef;
use ipu_jobs::raw::RawJob;
use ipu_runtime::clock;
use ipu_runtime::requests;
use ipu_runtime::work_queue::StepError;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Client;
use kube::api::{Api, DynamicObject, ListParams, Patch};
use kube::core::PartialObjectMeta;
use kube::discovery::ApiResource;
use serde_json::{Value, json};
use thiserror::Error;

use super::Context;
use super::build::{self};
use super::check::Answer;
use super::job::QueuedJob;
use super::objects::{AdmissionCheck, Workload};
use super::plan::Step;

/// Condition of an AdmissionCheck: a controller answers it.
const ACTIVE: &str = "Active";

/// A request that did not succeed.
#[derive(Debug, Error)]
pub(super) enum RequestError {
    /// The API server has answered with an error, or not at all.
    #[error("failed to {0}")]
    Failed(&'static str, #[source] kube::Error),
    /// The API server has answered without an error, and does not know the field.
    #[error(
        "failed to {0}: the CustomResourceDefinition of IPUJobs has no status.admission, because it is that of an \
         earlier version; as the admin of the cluster, apply the CRDs of this version"
    )]
    NotStored(&'static str),
}

impl RequestError {
    /// Whether the API server does not accept the object as it is.
    pub(super) fn is_refusal(&self) -> bool {
        self.code()
            .is_some_and(|code| [400, 403, 422].contains(&code))
    }

    /// Whether the CRDs of the cluster are of an earlier version.
    pub(super) fn is_for_admins(&self) -> bool {
        matches!(self, Self::NotStored(_))
    }

    /// The status code of the API server's answer.
    fn code(&self) -> Option<u16> {
        match self {
            Self::Failed(_, kube::Error::Api(status)) => Some(status.code),
            Self::Failed(..) | Self::NotStored(_) => None,
        }
    }
}

impl StepError for RequestError {
    fn category(&self) -> &'static str {
        "Write"
    }

    /// Also for an object that is gone.
    fn is_stale(&self) -> bool {
        self.code().is_some_and(|code| [404, 409].contains(&code))
    }
}

/// Names what failed.
fn failed_to(action: &'static str) -> impl Fn(kube::Error) -> RequestError {
    move |source| RequestError::Failed(action, source)
}

/// Carries out a step of a job. Returns whether it was done: a step that releases quota waits for
/// the last partition.
pub(super) async fn step(
    context: &Context,
    job: &QueuedJob,
    workload: Option<&Workload>,
    step: &Step,
) -> Result<bool, RequestError> {
    let reference = &*job.reference;
    let client = &context.client;
    match (step, workload) {
        (Step::CreateWorkload, _) => create(client, job).await?,
        (Step::Stop(_), _) => admission::stop(client, job).await?,
        (Step::Start(updates), _) => admission::start(client, job, updates).await?,
        (Step::Reserve(updates), _) => admission::reserve(client, job, updates).await?,
        (Step::RemoveCondition, _) => {
            set_conditions(client, job, &build::without_quota(job)).await?;
        }
        (_, None) => {}
        (
            Step::ReleaseQuota { .. } | Step::Finish { .. } | Step::DeleteWorkload,
            Some(workload),
        ) => {
            if has_partitions(client, reference).await? {
                return Ok(false);
            }
            release(client, workload, step).await?;
        }
        (step, Some(workload)) => of_workload(client, job, workload, step).await?,
    }
    Ok(true)
}

async fn release(client: &Client, workload: &Workload, step: &Step) -> Result<(), RequestError> {
    let now = clock::now();
    match step {
        Step::ReleaseQuota { is_retry } => {
            let fields = build::released(workload, *is_retry, now);
            patch_status(
                client,
                workload,
                &fields,
                "release the quota of the Workload",
            )
            .await
        }
        Step::Finish { reason, message } => {
            let fields = build::finished(workload, reason, message, now);
            patch_status(client, workload, &fields, "finish the Workload").await
        }
        _ => delete(client, workload).await,
    }
}

async fn of_workload(
    client: &Client,
    job: &QueuedJob,
    workload: &Workload,
    step: &Step,
) -> Result<(), RequestError> {
    let action = "change the Workload";
    let now = clock::now();
    let patch = match step {
        Step::AdoptWorkload => build::adoption(job, workload),
        Step::SetPodSets => build::spec(workload, &json!({"podSets": job.pod_sets})),
        Step::SetQueue => build::spec(workload, &json!({"queueName": job.queue})),
        Step::SetPriority => {
            let priority = priority::priority(client, job).await?;
            let fields = json!({"priorityClassRef": priority.class, "priority": priority.value});
            build::spec(workload, &fields)
        }
        Step::SetTimeLimit => {
            let seconds = json!({"maximumExecutionTimeSeconds": job.max_execution_seconds});
            build::spec(workload, &seconds)
        }
        Step::SetGatedBy => build::gates(job, workload),
        Step::RemoveFinalizer => build::without_finalizer(workload),
        Step::SetReclaimable(pods) => {
            let fields = json!({"reclaimablePods": pods});
            return patch_status(client, workload, &fields, action).await;
        }
        Step::SetPodsReady { is_ready, reason } => {
            let fields = build::pods_ready(workload, *is_ready, reason, now);
            return patch_status(client, workload, &fields, action).await;
        }
        Step::Evict(reason) => {
            let fields = build::evicted(workload, reason, now);
            return patch_status(client, workload, &fields, "evict the Workload").await;
        }
        Step::Requeue => {
            let fields = build::requeued(workload, now);
            return patch_status(client, workload, &fields, action).await;
        }
        Step::AnswerCheck { name, answer } => {
            return answer_check(client, workload, name, answer).await;
        }
        Step::DiscardWorkload => return delete(client, workload).await,
        Step::CreateWorkload
        | Step::RemoveCondition
        | Step::DeleteWorkload
        | Step::Finish { .. }
        | Step::Stop(_)
        | Step::ReleaseQuota { .. }
        | Step::Start(_)
        | Step::Reserve(_) => return Ok(()),
    };
    patch_workload(client, workload, patch, action).await
}

/// Creates the Workload of a job. One that exists already was created a moment ago: its name
/// contains a hash of the UID.
async fn create(client: &Client, job: &QueuedJob) -> Result<(), RequestError> {
    let action = "create the Workload of the IPUJob";
    let priority = priority::priority(client, job).await?;
    let object = without_nulls(build::workload(job, &priority));
    let object: DynamicObject = serde_json::from_value(object)
        .map_err(kube::Error::SerdeError)
        .map_err(failed_to(action))?;
    let kind = ApiResource::erase::<Workload>(&());
    let workloads: Api<DynamicObject> =
        Api::namespaced_with(client.clone(), &job.reference.namespace, &kind);
    match workloads.create(&requests::post(), &object).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
        created => created.map(drop).map_err(failed_to(action)),
    }
}

/// Answers an admission check of a Workload.
pub(super) async fn answer_check(
    client: &Client,
    workload: &Workload,
    name: &str,
    answer: &Answer,
) -> Result<(), RequestError> {
    let now = clock::now();
    let checks = workload.checks().iter().map(|check| {
        if check["name"] == name {
            answer.set_in(check, now)
        } else {
            check.clone()
        }
    });
    let fields = json!({"admissionChecks": checks.collect::<Vec<_>>()});
    patch_status(
        client,
        workload,
        &fields,
        "answer the admission check of the Workload",
    )
    .await
}

/// Writes the conditions of a job.
pub(super) async fn set_conditions(
    client: &Client,
    job: &QueuedJob,
    conditions: &[JobCondition],
) -> Result<(), RequestError> {
    let reference = &*job.reference;
    let patch = build::job_status(job, json!({"conditions": conditions}));
    let sent = jobs(client, reference)
        .patch_status(&reference.name, &requests::patch(), &Patch::Merge(patch))
        .await;
    sent.map(drop)
        .map_err(failed_to("write the condition of the IPUJob"))
}

/// Sets an AdmissionCheck to active, which Kueue requires before it uses a ClusterQueue with the
/// check.
pub(super) async fn activate(client: &Client, check: &AdmissionCheck) -> Result<(), RequestError> {
    let status = check.status.as_ref();
    let mut conditions = status.map_or_else(Vec::new, |status| status.conditions.clone());
    if conditions
        .iter()
        .any(|one| one.type_ == ACTIVE && one.status == "True")
    {
        return Ok(());
    }
    let message = "the IPU operator answers the admission check".to_owned();
    let said = ("Active", message);
    let active = Condition {
        observed_generation: check.metadata.generation,
        ..condition::renewed(&conditions, ACTIVE, true, said, clock::now())
    };
    condition::put(&mut conditions, active);
    let metadata = &check.metadata;
    let patch = json!({
        "metadata": {"uid": metadata.uid, "resourceVersion": metadata.resource_version},
        "status": {"conditions": conditions},
    });
    let checks: Api<AdmissionCheck> = Api::all(client.clone());
    let name = metadata.name.as_deref().unwrap_or_default();
    let sent = checks
        .patch_status(name, &requests::patch(), &Patch::Merge(patch))
        .await;
    sent.map(drop)
        .map_err(failed_to("activate the AdmissionCheck"))
}

/// Reads a job. `None`: it is gone, or another job has its name.
pub(super) async fn living_job(
    client: &Client,
    job: &ObjectRef,
) -> Result<Option<RawJob>, RequestError> {
    let jobs: Api<RawJob> = Api::namespaced(client.clone(), &job.namespace);
    let found = jobs.get_opt(&job.name).await;
    let found = found.map_err(failed_to("read the IPUJob"))?;
    Ok(found.filter(|found| found.metadata.uid.as_deref() == Some(&*job.uid)))
}

/// Removes the finalizer of a Workload whose job is gone. Returns whether nothing is left to do.
pub(super) async fn release_of_gone(
    client: &Client,
    job: &ObjectRef,
    workload: &Workload,
) -> Result<bool, RequestError> {
    if has_partitions(client, job).await? {
        return Ok(false);
    }
    let patch = build::without_finalizer(workload);
    match patch_workload(
        client,
        workload,
        patch,
        "remove the finalizer of the Workload",
    )
    .await
    {
        Err(error) if error.is_stale() => Ok(false),
        removed => removed.map(|()| true),
    }
}

/// Whether the API server has a partition of the job. The watch may be late.
async fn has_partitions(client: &Client, job: &ObjectRef) -> Result<bool, RequestError> {
    let partitions: Api<PartialObjectMeta<IPUPartition>> = Api::all(client.clone());
    let label = format!("{JOB_UID_LABEL}={}", job.uid);
    let one = ListParams::default().labels(&label).limit(1);
    let found = partitions.list_metadata(&one).await;
    let found = found.map_err(failed_to("list the IPUPartitions of the IPUJob"))?;
    Ok(!found.items.is_empty())
}

/// The jobs of a job's namespace.
fn jobs(client: &Client, job: &ObjectRef) -> Api<PartialObjectMeta<RawJob>> {
    Api::namespaced(client.clone(), &job.namespace)
}

async fn patch_workload(
    client: &Client,
    workload: &Workload,
    patch: Value,
    action: &'static str,
) -> Result<(), RequestError> {
    let (workloads, name) = named(client, workload);
    let sent = workloads
        .patch(name, &requests::patch(), &Patch::Merge(patch))
        .await;
    sent.map(drop).map_err(failed_to(action))
}

async fn patch_status(
    client: &Client,
    workload: &Workload,
    fields: &Value,
    action: &'static str,
) -> Result<(), RequestError> {
    let (workloads, name) = named(client, workload);
    let patch = build::status(workload, fields);
    let sent = workloads
        .patch_status(name, &requests::patch(), &Patch::Merge(patch))
        .await;
    sent.map(drop).map_err(failed_to(action))
}

async fn delete(client: &Client, workload: &Workload) -> Result<(), RequestError> {
    let (workloads, name) = named(client, workload);
    let parameters = requests::delete(workload.metadata.uid.clone(), None);
    let deleted = workloads.delete(name, &parameters).await;
    deleted.map(drop).map_err(failed_to("delete the Workload"))
}

fn named<'a>(client: &Client, workload: &'a Workload) -> (Api<Workload>, &'a str) {
    let metadata = &workload.metadata;
    let namespace = metadata.namespace.as_deref().unwrap_or_default();
    let workloads = Api::namespaced(client.clone(), namespace);
    (workloads, metadata.name.as_deref().unwrap_or_default())
}

/// Removes unset fields, which a merge patch may contain and a new object may not.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(map) => map
            .into_iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(key, value)| (key, without_nulls(value)))
            .collect(),
        other => other,
    }
}
