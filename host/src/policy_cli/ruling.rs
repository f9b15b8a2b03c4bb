//! Pure: what the host makes of a policy's answer, by the same rules as in the operator.

use json_patch::Patch;
use serde::Serialize;

use crate::wasm::model::{Decision, ModuleDigest, Operation, Served, Violation};
use crate::wasm::question::{Admission, Answer, Placing, Question};
use crate::wasm::{GuestError, serial_walk};
use crate::webhook::answer::{self, Decision as Admitted};
use crate::webhook::request::{AdmissionRequest, ReviewVersion};
use crate::webhook::{failure, mutate, validate};

/// What the host makes of an answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "verdict", rename_all = "camelCase")]
pub(super) enum Ruling {
    /// The object is admitted as it is.
    Allowed,
    /// The object is admitted with changes.
    Patched {
        /// The changes.
        patch: Patch,
    },
    /// The object is not admitted.
    Refused {
        /// What is wrong with it.
        violations: Vec<Violation>,
    },
    /// The object is not admitted, for a reason that is not its own.
    Failed {
        /// What the user is told.
        reason: String,
    },
    /// The decision is carried out.
    Followed {
        /// The decision.
        decision: Decision,
    },
    /// The built-in serial walk decides instead.
    Overruled {
        /// Why.
        reason: String,
        /// What the built-in walk decides.
        decision: Decision,
    },
    /// The operator would not have asked.
    NotAsked {
        /// Why not.
        reason: &'static str,
    },
}

/// What the host makes of the answer to a question.
pub(super) fn ruling(
    question: &Question,
    answer: &Result<Answer, GuestError>,
    digest: &ModuleDigest,
) -> Ruling {
    match question {
        Question::Defaulting(admission) | Question::Validation(admission) => {
            admitted(question, admission, answer, digest)
        }
        Question::Placement(placing) => placed(placing, answer),
    }
}

fn admitted(
    question: &Question,
    admission: &Admission,
    answer: &Result<Answer, GuestError>,
    digest: &ModuleDigest,
) -> Ruling {
    let request = request(admission);
    if !request.concerns_policies() {
        return Ruling::NotAsked {
            reason: "the operator asks no policy about an object that is being deleted, nor about \
                     an update that leaves the spec as it was",
        };
    }
    let digest = digest.clone();
    let answer = match answer {
        Ok(Answer::Defaulted(defaulted)) => mutate::answer(
            &request,
            Served {
                answer: defaulted.clone(),
                digest,
            },
        ),
        Ok(Answer::Verdict(verdict)) => validate::answer(Served {
            answer: verdict.clone(),
            digest,
        }),
        Ok(Answer::Decision(_)) => answer::Answer::failed("it is no answer to this question"),
        Err(error) => failure::answer(question.slot(), error),
    };
    match answer.decision {
        Admitted::Allowed => Ruling::Allowed,
        Admitted::Patched(patch) => Ruling::Patched { patch },
        Admitted::Refused(violations) => Ruling::Refused { violations },
        Admitted::Failed(reason) => Ruling::Failed { reason },
    }
}

/// The request as the webhook would have it.
fn request(admission: &Admission) -> AdmissionRequest {
    let metadata = |key: &str| {
        let text = admission.object["metadata"][key].as_str();
        text.unwrap_or_default().to_owned()
    };
    AdmissionRequest {
        version: ReviewVersion::V1,
        uid: String::new(),
        operation: Some(admission.operation),
        name: metadata("name"),
        namespace: metadata("namespace"),
        object: admission.object.clone(),
        old_object: match admission.operation {
            Operation::Create => None,
            Operation::Update => admission.old_object.clone(),
        },
    }
}

fn placed(placing: &Placing, answer: &Result<Answer, GuestError>) -> Ruling {
    let checked = match answer {
        Ok(Answer::Decision(decision)) => placing.disposed(decision.clone()),
        Ok(_) => Err("it is no answer to this question".to_owned()),
        Err(error) => Err(crate::agent::explain(error)),
    };
    match checked {
        Ok(decision) => Ruling::Followed { decision },
        Err(reason) => Ruling::Overruled {
            reason,
            decision: serial_walk(&placing.request, &placing.controllers, &placing.attempts),
        },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::wasm::model::{Slot, Verdict};

    fn ruled(slot: Slot, question: Value, answer: &Result<Answer, GuestError>) -> Value {
        let question = Question::parse(slot, question).unwrap();
        let digest = ModuleDigest::new("sha256:77");
        serde_json::to_value(ruling(&question, answer, &digest)).unwrap()
    }

    #[test]
    fn the_rules_of_the_webhooks_decide() {
        let update = json!({
            "operation": "update",
            "object": {"spec": {"a": 1}, "metadata": {}},
            "oldObject": {"spec": {"a": 1}},
        });
        let create = json!({"operation": "create", "object": {"spec": {}, "metadata": {}}});
        let defaulted = |object: Value| {
            Ok(Answer::Defaulted(crate::wasm::model::Defaulted {
                object,
                warnings: vec![],
            }))
        };
        let cases = [
            (
                ruled(
                    Slot::Validation,
                    update,
                    &Ok(Answer::Verdict(Verdict::default())),
                ),
                "notAsked",
            ),
            (
                ruled(
                    Slot::Defaulting,
                    create.clone(),
                    &defaulted(json!({"spec": {"b": 2}, "metadata": {}})),
                ),
                "patched",
            ),
            (
                ruled(
                    Slot::Defaulting,
                    create.clone(),
                    &defaulted(json!({"spec": {}, "metadata": {"name": "x"}})),
                ),
                "failed",
            ),
            (
                ruled(
                    Slot::Defaulting,
                    create.clone(),
                    &Err(GuestError::Refused("spec.a: no".to_owned())),
                ),
                "refused",
            ),
            (
                ruled(
                    Slot::Validation,
                    create,
                    &Ok(Answer::Verdict(Verdict::default())),
                ),
                "allowed",
            ),
        ];
        for (ruling, verdict) in cases {
            assert_eq!(ruling["verdict"], json!(verdict), "{ruling}");
        }
    }

    #[test]
    fn a_placement_that_cannot_be_is_overruled() {
        let question = json!({
            "request": {"namespace": "n", "owner": "o", "ipus": 4, "gcds": 1},
            "controllers": [{"name": "a", "totalIpus": 8, "usedIpus": 0, "largestFree": 8}],
        });
        let decide = |name: &str| Ok(Answer::Decision(Decision::Try(name.to_owned())));
        let ruling = ruled(Slot::Placement, question.clone(), &decide("a"));
        assert_eq!(
            ruling,
            json!({"verdict": "followed", "decision": {"try": "a"}})
        );
        let ruling = ruled(Slot::Placement, question, &decide("mars"));
        assert_eq!(ruling["verdict"], json!("overruled"));
        assert_eq!(ruling["decision"], json!({"try": "a"}));
    }
}
