//! Reviews a Pod that requests IPUs itself: shows it to the guests as an IPUJob, and makes their answers its patch.

mod patch;
mod shown;

use ipu_api::pod_request::{NewPartition, PodRequest};
use ipu_guest_host::facts::NamespaceFacts;
use ipu_guest_host::model::{Operation, Violation};
use ipu_policies::guests::Guests;
use ipu_runtime::fair_semaphore::Asker;
use json_patch::{Patch, PatchOperation};
use tokio::time::Instant;

use super::answer::{Answer, Decision};
use super::hook_chain::{ALL, Chain};
use super::request::AdmissionRequest;

/// The guests that a Pod is shown to, and what they see of its namespace.
pub(super) struct Hooks<'s> {
    /// All active guests.
    pub(super) guests: &'s Guests,
    /// What is known of the namespace.
    pub(super) facts: NamespaceFacts,
    /// The address that sent the request.
    pub(super) asker: Asker,
    /// Whether policies are rolled back and promoted by the answers.
    pub(super) counts: bool,
}

impl Hooks<'_> {
    fn chain<'a>(&'a self, request: &'a AdmissionRequest) -> Chain<'a> {
        let told = request.admission(Operation::Create, self.facts.clone());
        Chain::new(self.guests, request, told)
            .asked_by(self.asker)
            .counting(self.counts)
    }
}

/// Answers a request about a Pod. Its object becomes the IPUJob that guests see, so that a large Pod is never in memory
/// twice.
pub(super) async fn reviewed(request: &mut AdmissionRequest, hooks: &Hooks<'_>) -> Answer {
    let is_new = request.operation == Some(Operation::Create) && request.sub_resource.is_none();
    let wanted = match PodRequest::of(&request.object) {
        Ok(Some(wanted)) if is_new => wanted,
        Ok(_) => return Answer::nothing_to_say(),
        Err(error) => {
            return Answer::refused(vec![Violation {
                field: error.field,
                message: error.message,
            }]);
        }
    };
    let additions = patch::additions(&request.object, &wanted);
    match wanted {
        // It requests no IPUs, so that there is nothing that guests decide about.
        PodRequest::Existing(_) => Answer {
            decision: Decision::Patched(Patch(additions)),
            ..Answer::nothing_to_say()
        },
        PodRequest::New(new) => asked(request, &new, additions, hooks).await,
    }
}

/// The answer of the guests for a Pod that requests a new partition.
async fn asked(
    request: &mut AdmissionRequest,
    new: &NewPartition,
    additions: Vec<PatchOperation>,
    hooks: &Hooks<'_>,
) -> Answer {
    let began = Instant::now();
    request.object = shown::as_job(request.object.take(), &request.namespace, new.ipus);
    let defaulted = hooks.chain(request).defaulted().await;
    let changes = match &defaulted.decision {
        Decision::Allowed => Patch::default(),
        Decision::Patched(changes) => changes.clone(),
        Decision::Refused(_) | Decision::Failed(_) => return of_pod(defaulted, new),
    };
    if let Err(error) = json_patch::patch(&mut request.object, &changes) {
        return Answer::failed(format!("the defaults do not fit the Pod: {error}"));
    }
    let left = ALL.saturating_sub(began.elapsed());
    let validated = hooks.chain(request).within(left).validated().await;
    let is_allowed = validated.decision == Decision::Allowed;
    let mut answer = joined(defaulted, validated);
    if is_allowed {
        answer.decision = match patch::finished(additions, changes, &request.object, new) {
            Ok(patch) => Decision::Patched(patch),
            Err(error) => Decision::Failed(error.to_string()),
        };
    }
    of_pod(answer, new)
}

/// One answer of two hooks; the later one decides.
fn joined(mut defaulted: Answer, validated: Answer) -> Answer {
    defaulted.warnings.extend(validated.warnings);
    defaulted.asked.extend(validated.asked);
    defaulted.ignored.extend(validated.ignored);
    defaulted.decision = validated.decision;
    defaulted
}

/// The same answer in fields of the Pod.
fn of_pod(mut answer: Answer, new: &NewPartition) -> Answer {
    if let Decision::Refused(violations) = &mut answer.decision {
        for violation in violations {
            shown::translate(violation, new);
        }
    }
    answer
}

#[cfg(test)]
mod tests;
