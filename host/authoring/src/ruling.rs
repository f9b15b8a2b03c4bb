//! Pure: what the host makes of a policy's answer, by the same rules as in the operator.

use json_patch::Patch;
use serde::Serialize;

use ipu_admission::answer::Decision as Admitted;
use ipu_admission::request::{AdmissionRequest, ReviewVersion, Reviewed};
use ipu_admission::{failure, mutate, validate};
use ipu_guest_host::model::{Decision, Defaulting, Violation};
use ipu_guest_host::question::{Answer, Placing, Question, Review};
use ipu_guest_host::{GuestError, serial_walk};

/// What is wrong with an answer of another world than its question.
const MISFIT: &str = "it answers another question";

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
pub(super) fn ruling(question: &Question, answer: &Result<Answer, GuestError>) -> Ruling {
    match question {
        Question::Defaulting(admission) | Question::Validation(admission) => {
            admitted(admission, answer)
        }
        Question::Placement(placing) => placed(placing, answer),
    }
}

fn admitted(admission: &Review, answer: &Result<Answer, GuestError>) -> Ruling {
    let request = request(admission);
    if !request.concerns_policies() {
        return Ruling::NotAsked {
            reason: "the operator asks no policy about an object that is being deleted, nor about \
                     an update that leaves the spec as it was",
        };
    }
    let decision = match answer {
        Ok(Answer::Defaulting(Defaulting::Refused { violations })) => {
            Admitted::Refused(violations.clone())
        }
        Ok(Answer::Defaulting(Defaulting::Defaulted(defaulted))) => {
            match mutate::checked(&request, &request.object, &defaulted.object) {
                Ok(()) => mutate::decision(&request.object, &defaulted.object),
                Err(overreach) => failed(&GuestError::BadAnswer(overreach.to_string())),
            }
        }
        Ok(Answer::Verdict(verdict)) => validate::decision(verdict.clone()).0,
        Ok(Answer::Decision(_)) => failed(&GuestError::BadAnswer(MISFIT.to_owned())),
        Err(error) => failed(error),
    };
    match decision {
        Admitted::Allowed => Ruling::Allowed,
        Admitted::Patched(patch) => Ruling::Patched { patch },
        Admitted::Refused(violations) => Ruling::Refused { violations },
        Admitted::Failed(reason) => Ruling::Failed { reason },
    }
}

/// What is decided where the policy gave no answer that can be used.
fn failed(error: &GuestError) -> Admitted {
    Admitted::Failed(failure::message("the policy", error))
}

/// The request as the webhook would have it.
fn request(review: &Review) -> AdmissionRequest {
    let admission = review.admission();
    let name = review.object["metadata"]["name"].as_str();
    AdmissionRequest {
        version: ReviewVersion::V1,
        reviewed: Reviewed::IPUJob,
        uid: String::new(),
        operation: Some(admission.operation),
        name: name.unwrap_or_default().to_owned(),
        namespace: admission.namespace,
        user: admission.user,
        dry_run: admission.dry_run,
        sub_resource: admission.sub_resource,
        object: review.object.clone(),
        old_object: review.old_object.clone(),
    }
}

fn placed(placing: &Placing, answer: &Result<Answer, GuestError>) -> Ruling {
    let checked = match answer {
        Ok(Answer::Decision(decision)) => placing.disposed(decision.clone()),
        Ok(_) => Err(MISFIT.to_owned()),
        Err(error) => Err(ipu_text::explain(error)),
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
    use ipu_guest_host::model::{Defaulted, Slot, Verdict};

    fn ruled(slot: Slot, question: Value, answer: &Result<Answer, GuestError>) -> Value {
        let question = Question::parse(slot, question).unwrap();
        serde_json::to_value(ruling(&question, answer)).unwrap()
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
            Ok(Answer::Defaulting(Defaulting::Defaulted(Defaulted {
                object,
                warnings: vec![],
            })))
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
    fn a_refusal_is_told_apart_from_a_policy_that_fails() {
        let create = json!({"operation": "create", "object": {"spec": {}, "metadata": {}}});
        let violation = Violation {
            field: "spec.a".to_owned(),
            message: "no".to_owned(),
        };
        let refused = Defaulting::Refused {
            violations: vec![violation],
        };
        assert_eq!(
            ruled(
                Slot::Defaulting,
                create.clone(),
                &Ok(Answer::Defaulting(refused))
            ),
            json!({"verdict": "refused", "violations": [{"field": "spec.a", "message": "no"}]})
        );
        let failed = Err(GuestError::Failed("spec.a: no".to_owned()));
        let ruling = ruled(Slot::Validation, create, &failed);
        assert_eq!(ruling["verdict"], json!("failed"), "{ruling}");
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
