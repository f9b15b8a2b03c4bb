//! Writes the admission and the eviction of Kueue to an IPUJob: the admission in the status of the
//! job, and `spec.suspend`.

use ipu_api::ipujob_status::{JobAdmission, PodSetUpdate};
use ipu_jobs::raw::RawJob;
use ipu_runtime::requests;
use kube::Client;
use kube::api::{Api, Patch};
use serde_json::Value;

use super::{RequestError, failed_to, jobs};
use crate::build;
use crate::job::QueuedJob;

/// Starts a job. Its admission comes first: without one its controller creates nothing.
pub(super) async fn start(
    client: &Client,
    job: &QueuedJob,
    updates: &[PodSetUpdate],
) -> Result<(), RequestError> {
    let action = "start the admitted IPUJob";
    let admission = build::started(job, updates);
    let is_written = job.is_elsewhere || job.admission.as_ref() == Some(&admission);
    let version = if is_written {
        Some(job.resource_version.clone())
    } else {
        grant(client, job, &admission, action).await?
    };
    suspend(client, job, (false, version.as_deref()), action).await
}

/// Creates the partitions of a suspended job.
pub(super) async fn reserve(
    client: &Client,
    job: &QueuedJob,
    updates: &[PodSetUpdate],
) -> Result<(), RequestError> {
    let action = "request the partitions of the IPUJob";
    let admission = build::reserved(updates);
    grant(client, job, &admission, action).await.map(drop)
}

/// Stops a job. Its admission goes first, and its controller, which takes that for a suspension,
/// may write the status before the job is suspended. A job that runs without an admission is
/// stopped in the same way.
pub(super) async fn stop(client: &Client, job: &QueuedJob) -> Result<(), RequestError> {
    let action = "suspend the IPUJob";
    if job.admission.is_some() || job.runs_unadmitted() {
        write(client, job, build::stopped(job), action).await?;
    }
    suspend(client, job, (true, None), action).await
}

/// Writes the admission of a job, and fails if the API server has not stored it: the job would
/// never start, and hold its quota. Returns the new version of the job.
async fn grant(
    client: &Client,
    job: &QueuedJob,
    admission: &JobAdmission,
    action: &'static str,
) -> Result<Option<String>, RequestError> {
    let written = write(client, job, build::admission(job, admission), action).await?;
    if !build::has_admission(&written) {
        return Err(RequestError::NotStored(action));
    }
    Ok(written.metadata.resource_version)
}

/// Writes fields of the status of a job. Returns the job.
async fn write(
    client: &Client,
    job: &QueuedJob,
    patch: Value,
    action: &'static str,
) -> Result<RawJob, RequestError> {
    let reference = &job.reference;
    let jobs: Api<RawJob> = Api::namespaced(client.clone(), &reference.namespace);
    let sent = jobs
        .patch_status(&reference.name, &requests::patch(), &Patch::Merge(patch))
        .await;
    sent.map_err(failed_to(action))
}

/// Suspends a job, or resumes it, if it still has this version.
async fn suspend(
    client: &Client,
    job: &QueuedJob,
    (is_suspended, version): (bool, Option<&str>),
    action: &'static str,
) -> Result<(), RequestError> {
    let patch = Patch::Merge(build::suspension(job, is_suspended, version));
    let sent = jobs(client, &job.reference)
        .patch(&job.reference.name, &requests::patch(), &patch)
        .await;
    sent.map(drop).map_err(failed_to(action))
}
