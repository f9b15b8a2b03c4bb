//! Writes what Kueue grants to an IPUJob, and what it takes back: an admission in the status of the job, and `spec.suspend`.

use ipu_api::ipujob_status::{JobAdmission, PodSetUpdate};
use kube::Client;
use kube::api::Patch;

use super::{RequestError, failed_to, jobs, parameters};
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
        write(client, job, Some(&admission), action).await?
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
    write(client, job, Some(&admission), action).await.map(drop)
}

/// Stops a job. Its admission goes first, and its controller, which takes that for a suspension, may write the status
/// before the job is suspended.
pub(super) async fn stop(client: &Client, job: &QueuedJob) -> Result<(), RequestError> {
    let action = "suspend the IPUJob";
    if job.admission.is_some() {
        write(client, job, None, action).await?;
    }
    suspend(client, job, (true, None), action).await
}

/// Writes the admission of a job, or takes it back. Returns the new version of the job.
async fn write(
    client: &Client,
    job: &QueuedJob,
    admission: Option<&JobAdmission>,
    action: &'static str,
) -> Result<Option<String>, RequestError> {
    let patch = Patch::Merge(build::admission(job, admission));
    let sent = jobs(client, &job.reference)
        .patch_status(&job.reference.name, &parameters(), &patch)
        .await;
    let written = sent.map_err(failed_to(action))?;
    Ok(written.metadata.resource_version)
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
        .patch(&job.reference.name, &parameters(), &patch)
        .await;
    sent.map(drop).map_err(failed_to(action))
}
