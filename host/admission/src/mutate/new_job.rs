//! Pure: what the operator itself sets on a new job, after the defaulting policies. Each saves a
//! write of the controller, or a start before Kueue admits the job.

use ipu_api::guest::admission::Operation;
use ipu_api::ipujob::is_managed_by_another;
use ipu_api::labels::JOB_FINALIZER;
use ipu_api::queueing;
use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, Patch, PatchOperation};
use serde_json::{Value, json};

use crate::answer::Decision;
use crate::request::{AdmissionRequest, Reviewed};

/// Adds the fields of the operator to the decision, if the request creates a job.
pub fn completed(
    request: &AdmissionRequest,
    defaulted: &Value,
    decision: Decision,
    is_kueue_served: bool,
) -> Decision {
    let is_new = request.reviewed == Reviewed::IPUJob
        && request.operation == Some(Operation::Create)
        && request.sub_resource.is_none();
    if !is_new {
        return decision;
    }
    let mut added: Vec<PatchOperation> = finalizer(defaulted).into_iter().collect();
    if is_kueue_served && queueing::is_queued(defaulted) {
        added.extend(suspension(defaulted));
        added.extend(clean_up(&request.object, defaulted));
    }
    match decision {
        Decision::Allowed if added.is_empty() => Decision::Allowed,
        Decision::Allowed => Decision::Patched(Patch(added)),
        Decision::Patched(mut patch) => {
            patch.0.extend(added);
            Decision::Patched(patch)
        }
        refused => refused,
    }
}

/// Returns the operation that adds the finalizer. A job of another controller would keep the
/// finalizer for ever.
fn finalizer(job: &Value) -> Option<PatchOperation> {
    if is_managed_by_another(job) {
        return None;
    }
    let metadata = job.get("metadata")?.as_object()?;
    let (tokens, value) = match metadata.get("finalizers") {
        Some(Value::Array(all)) if all.iter().any(|one| one == JOB_FINALIZER) => return None,
        Some(Value::Array(_)) => (
            ["metadata", "finalizers", "-"].as_slice(),
            json!(JOB_FINALIZER),
        ),
        Some(_) | None => (
            ["metadata", "finalizers"].as_slice(),
            json!([JOB_FINALIZER]),
        ),
    };
    Some(add(tokens, value))
}

/// Returns the operation that suspends a job until Kueue admits it.
fn suspension(job: &Value) -> Option<PatchOperation> {
    let spec = job.get("spec")?.as_object()?;
    (spec.get("suspend") != Some(&json!(true))).then(|| add(&["spec", "suspend"], json!(true)))
}

/// Returns the operation that deletes the workers at the end of a job with a launcher. Otherwise
/// they would keep the partition, and with it the quota, until the job is deleted. A policy that
/// the user has chosen stays.
fn clean_up(original: &Value, job: &Value) -> Option<PatchOperation> {
    let chosen = |job: &Value| {
        job["spec"]
            .get("cleanPodPolicy")
            .is_some_and(|policy| !policy.is_null())
    };
    let has_launcher = job["spec"].get("launcher").is_some_and(Value::is_object);
    let is_needed = has_launcher && !chosen(original);
    is_needed.then(|| add(&["spec", "cleanPodPolicy"], json!("Workers")))
}

fn add(tokens: &[&str], value: Value) -> PatchOperation {
    PatchOperation::Add(AddOperation {
        path: PointerBuf::from_tokens(tokens.iter().copied()),
        value,
    })
}
