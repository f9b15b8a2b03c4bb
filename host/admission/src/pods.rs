//! Reviews a Pod that requests IPUs itself: shows it to the guests as an IPUJob, and makes their
//! answers its patch.
//!
//! Defaults are set before other webhooks have changed the Pod. Rules are about the Pod that is
//! stored, and about changes of it.

mod copied;
mod patch;
mod recreated;
mod shown;

use ipu_api::guest::admission::{Operation, Violation};
use ipu_api::guest::namespace::NamespaceContext;
use ipu_api::pod_request::{NewPartition, PodRequest};
use ipu_policies::active_policies::ActivePolicies;
use ipu_runtime::fair_semaphore::Asker;
use json_patch::{Patch, PatchOperation};
use serde_json::Value;

use super::answer::{Answer, Decision};
use super::chain_run::ChainRun;
use super::request::AdmissionRequest;
use copied::Removals;

pub use self::recreated::{PodFields, RecreatedPod};

/// The guests for Pods, and their view of the namespace.
pub(super) struct Hooks<'s> {
    /// All active guests.
    pub(super) active: &'s ActivePolicies,
    /// The operation of the request.
    pub(super) operation: Operation,
    /// Labels and usage of the namespace.
    pub(super) context: NamespaceContext,
    /// The address that sent the request.
    pub(super) caller: Asker,
    /// Whether policies are rolled back and promoted by the answers.
    pub(super) is_trusted: bool,
}

impl Hooks<'_> {
    fn run<'a>(&'a self, request: &'a AdmissionRequest) -> ChainRun<'a> {
        let admission = request.admission(self.operation, self.context.clone());
        ChainRun::new(self.active, request, admission)
            .for_caller(self.caller)
            .trusted(self.is_trusted)
    }
}

/// Answers the mutating webhook. The object becomes the IPUJob that guests see, so that a large Pod
/// is never in memory twice.
pub(super) async fn defaulted(request: &mut AdmissionRequest, hooks: &Hooks<'_>) -> Answer {
    let is_new = request.operation == Some(Operation::Create) && request.sub_resource.is_none();
    if !is_new {
        return Answer::allowed();
    }
    let Removals {
        mut operations,
        warning,
    } = copied::removals(&request.object);
    if let Err(error) = json_patch::patch(&mut request.object, &operations) {
        return Answer::failed(format!(
            "the parts of an earlier Pod cannot be removed: {error}"
        ));
    }
    let wanted = match PodRequest::of(&request.object) {
        Ok(wanted) => wanted,
        Err(error) => return refused(error.field, error.message),
    };
    if wanted.is_some() && has_node(&request.object) {
        return refused(NODE_NAME.to_owned(), ON_A_NODE.to_owned());
    }
    if let Some(wanted) = &wanted {
        operations.extend(patch::additions(&request.object, wanted));
    }
    let mut answer = match wanted {
        Some(PodRequest::New(new)) => run_guests(request, &new, operations, hooks).await,
        // Of the defaults a Pod gets the size, the labels and the annotations. One that shares a
        // partition has no size.
        Some(PodRequest::Existing(_)) | None => patched(operations),
    };
    answer.warnings.extend(warning);
    answer
}

/// The field that a Pod with a scheduling gate cannot have.
const NODE_NAME: &str = "spec.nodeName";

/// The reason for which a Pod that requests IPUs is denied a node.
const ON_A_NODE: &str = "a Pod that requests IPUs gets its node after its partition, so it cannot name one; remove the \
                         field, and select nodes with spec.nodeSelector or spec.affinity";

fn has_node(pod: &Value) -> bool {
    let node = pod["spec"]["nodeName"].as_str();
    node.is_some_and(|node| !node.is_empty())
}

fn refused(field: String, message: String) -> Answer {
    Answer::refused(vec![Violation { field, message }])
}

/// Admits a Pod with these changes.
fn patched(operations: Vec<PatchOperation>) -> Answer {
    if operations.is_empty() {
        return Answer::allowed();
    }
    Answer {
        decision: Decision::Patched(Patch(operations)),
        ..Answer::allowed()
    }
}

/// The defaults of the guests for a Pod that requests a new partition.
async fn run_guests(
    request: &mut AdmissionRequest,
    new: &NewPartition,
    additions: Vec<PatchOperation>,
    hooks: &Hooks<'_>,
) -> Answer {
    request.object = shown::as_job(request.object.take(), &request.namespace, new.ipus);
    let mut answer = hooks.run(request).run_defaulting().await;
    let changes = match &answer.decision {
        Decision::Allowed => Patch::default(),
        Decision::Patched(changes) => changes.clone(),
        Decision::Refused(_) | Decision::Failed(_) | Decision::Busy(_) | Decision::Waiting(_) => {
            return of_pod(answer, &PodRequest::New(new.clone()));
        }
    };
    if let Err(error) = json_patch::patch(&mut request.object, &changes) {
        return Answer::failed(format!("the defaults do not fit the Pod: {error}"));
    }
    answer.decision = match patch::finished(additions, changes, &request.object, new) {
        Ok(patch) => Decision::Patched(patch),
        Err(error) => Decision::Failed(error.to_string()),
    };
    answer
}

/// Answers the validating webhook: the guests see the Pod as it will be stored, and as it was
/// before.
pub(super) async fn validated(request: &mut AdmissionRequest, hooks: &Hooks<'_>) -> Answer {
    if request.sub_resource.is_some() {
        return Answer::allowed();
    }
    let wanted = match PodRequest::of(&request.object) {
        Ok(wanted) => wanted,
        // What a Pod requests cannot change, so that no update is the cause.
        Err(_) if hooks.operation == Operation::Update => return Answer::allowed(),
        Err(error) => return refused(error.field, error.message),
    };
    let Some(wanted) = wanted else {
        return Answer::allowed();
    };
    let as_job = |pod: Value| recreated::as_job(pod, &request.namespace, &wanted);
    let object = as_job(request.object.take());
    let old = request.old_object.take().map(as_job);
    (request.object, request.old_object) = (object, old);
    of_pod(hooks.run(request).run_validation().await, &wanted)
}

/// The same answer in fields of the Pod.
fn of_pod(mut answer: Answer, request: &PodRequest) -> Answer {
    if let Decision::Refused(violations) = &mut answer.decision {
        for violation in violations {
            shown::translate(violation, request);
        }
    }
    answer
}

#[cfg(test)]
mod tests;
