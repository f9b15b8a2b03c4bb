//! Pure: the verdict of the host on the answer of a guest, by the rules of the operator.

use ipu_admission::answer::Decision as Admitted;
use ipu_admission::request::{AdmissionRequest, DEFAULTED, RULED, ReviewVersion, Reviewed};
use ipu_admission::shared_partition::{SizeTrial, review_with_size, shares_partition};
use ipu_admission::{failure, mutate, validate};
use ipu_api::guest::admission::{Defaulting, Verdict, Violation};
use ipu_api::guest::placement::{Decision, PlacementRequest};
use ipu_guest_host::GuestError;
use ipu_guest_host::policy_request::{Answer, PolicyRequest, Review};
use ipu_placement::decision_check::check_decision;
use ipu_placement::serial_walk::serial_walk;
use json_patch::Patch;
use serde::Serialize;

/// Error of an answer of another world than its request.
const WRONG_WORLD: &str = "the answer is of another world than the request";

/// The verdict of the host on an answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "verdict", rename_all = "camelCase")]
pub(super) enum HostVerdict {
    /// The object is admitted unchanged.
    Allowed,
    /// The object is admitted with changes.
    Patched {
        /// The changes.
        patch: Patch,
    },
    /// The object is not admitted.
    Refused {
        /// The violations.
        violations: Vec<Violation>,
    },
    /// The object is not admitted, because the guest failed.
    Failed {
        /// The message to the user.
        reason: String,
    },
    /// The decision is carried out.
    Followed {
        /// The decision.
        decision: Decision,
    },
    /// The built-in serial walk decides instead.
    Overruled {
        /// The reason.
        reason: String,
        /// The decision of the built-in serial walk.
        decision: Decision,
    },
    /// The operator would not call the guest.
    NotAsked {
        /// The reason.
        reason: &'static str,
    },
}

/// Returns the verdict of the host on the answer to a request. It may `ask` the guest again.
pub(super) fn host_verdict(
    request: &PolicyRequest,
    answer: &Result<Answer, GuestError>,
    ask: impl Fn(&PolicyRequest) -> Result<Answer, GuestError>,
) -> HostVerdict {
    match request {
        PolicyRequest::Defaulting(admission) => admitted(admission, DEFAULTED, answer, ask),
        PolicyRequest::Validation(admission) => admitted(admission, RULED, answer, ask),
        PolicyRequest::Placement(placement) => placed(placement, answer),
    }
}

/// Returns the verdict of a validation guest that holds: of a Pod without a size, what other sizes
/// have too.
pub(super) fn held(
    verdict: Verdict,
    review: &Review,
    ask: impl Fn(&PolicyRequest) -> Result<Answer, GuestError>,
) -> Result<Verdict, GuestError> {
    let mut trial = SizeTrial::of_review(verdict, review);
    while let Some(ipus) = trial.next_size() {
        let sized = review_with_size(review, ipus);
        match ask(&PolicyRequest::Validation(sized))? {
            Answer::Verdict(other) => trial.note(other),
            Answer::Defaulting(_) | Answer::Decision(_) => {
                return Err(GuestError::BadAnswer(WRONG_WORLD.to_owned()));
            }
        }
    }
    Ok(trial.verdict())
}

/// Returns the verdict at a webhook that decides on these parts of an object.
fn admitted(
    admission: &Review,
    parts: &[&str],
    answer: &Result<Answer, GuestError>,
    ask: impl Fn(&PolicyRequest) -> Result<Answer, GuestError>,
) -> HostVerdict {
    let request = admission_request(admission);
    if !request.needs_policies(parts) {
        return HostVerdict::NotAsked {
            reason: "the operator calls no policy for an object that is being deleted, or for an update that changes \
                     neither the spec nor, for a validation guest, a label or an annotation",
        };
    }
    let decision = match answer {
        Ok(Answer::Defaulting(Defaulting::Refused { violations })) => {
            Admitted::Refused(violations.clone())
        }
        Ok(Answer::Defaulting(Defaulting::Defaulted(defaulted))) => {
            match mutate::check(&request, &request.object, &defaulted.object) {
                Ok(()) => mutate::decision(&request.object, &defaulted.object),
                Err(overreach) => failed(&GuestError::BadAnswer(overreach.to_string())),
            }
        }
        Ok(Answer::Verdict(verdict)) => match held(verdict.clone(), admission, ask) {
            Ok(verdict) => validate::decision(verdict).0,
            Err(error) => failed(&error),
        },
        Ok(Answer::Decision(_)) => failed(&GuestError::BadAnswer(WRONG_WORLD.to_owned())),
        Err(error) => failed(error),
    };
    match decision {
        Admitted::Allowed => HostVerdict::Allowed,
        Admitted::Patched(patch) => HostVerdict::Patched { patch },
        Admitted::Refused(violations) => HostVerdict::Refused { violations },
        Admitted::Failed(reason) | Admitted::Busy(reason) | Admitted::Waiting(reason) => {
            HostVerdict::Failed { reason }
        }
    }
}

/// Returns the decision on a guest that failed.
fn failed(error: &GuestError) -> Admitted {
    Admitted::Failed(failure::message("the guest", error))
}

/// Builds the request of the webhook.
fn admission_request(review: &Review) -> AdmissionRequest {
    let admission = review.admission();
    let name = review.object["metadata"]["name"].as_str();
    let reviewed = if shares_partition(&review.object) {
        Reviewed::Pod
    } else {
        Reviewed::IPUJob
    };
    AdmissionRequest {
        version: ReviewVersion::V1,
        reviewed,
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

fn placed(placement: &PlacementRequest, answer: &Result<Answer, GuestError>) -> HostVerdict {
    match placement_verdict(placement, answer) {
        (decision, None) => HostVerdict::Followed { decision },
        (decision, Some(reason)) => HostVerdict::Overruled { reason, decision },
    }
}

/// Returns the decision that the host carries out, and why it is not the policy's own.
pub(super) fn placement_verdict(
    placement: &PlacementRequest,
    answer: &Result<Answer, GuestError>,
) -> (Decision, Option<String>) {
    let checked = match answer {
        Ok(Answer::Decision(decision)) => check_decision(
            decision.clone(),
            &placement.request,
            &placement.controllers,
            &placement.attempts,
        ),
        Ok(_) => Err(WRONG_WORLD.to_owned()),
        Err(error) => Err(ipu_text::explain(error)),
    };
    let walked = |reason| {
        let PlacementRequest {
            request,
            controllers,
            attempts,
        } = placement;
        (serial_walk(request, controllers, attempts), Some(reason))
    };
    checked.map_or_else(walked, |decision| (decision, None))
}

#[cfg(test)]
mod tests {
    use ipu_api::guest::admission::{Defaulted, Verdict};
    use ipu_api::ipupolicy::Hook;
    use serde_json::{Value, json};

    use super::*;

    fn verdict_json(hook: Hook, request: Value, answer: &Result<Answer, GuestError>) -> Value {
        let request = PolicyRequest::parse(hook, request).unwrap();
        let ask = |_: &PolicyRequest| panic!("it is asked once");
        serde_json::to_value(host_verdict(&request, answer, ask)).unwrap()
    }

    #[test]
    fn a_rule_about_sizes_does_not_hold_for_a_pod_without_one() {
        let object = json!({
            "metadata": {
                "labels": {"graphcore.ai/native-pod": "true"},
                "annotations": {"graphcore.ai/partition": "shared"},
            },
            "spec": {"ipusPerJobInstance": "0"},
        });
        let request = json!({"operation": "create", "object": object});
        let request = PolicyRequest::parse(Hook::Validation, request).unwrap();
        let about_size = |message: &str| {
            let violation = Violation {
                field: "spec.ipusPerJobInstance".to_owned(),
                message: message.to_owned(),
            };
            Ok(Answer::Verdict(Verdict {
                violations: vec![violation],
                warnings: vec![],
            }))
        };
        let at_least_4 = |request: &PolicyRequest| {
            let PolicyRequest::Validation(review) = request else {
                panic!("{request:?}");
            };
            match review.object["spec"]["ipusPerJobInstance"].as_str() {
                Some("0" | "1" | "2") => about_size("is too small"),
                _ => Ok(Answer::Verdict(Verdict::default())),
            }
        };
        let verdict = host_verdict(&request, &at_least_4(&request), at_least_4);
        assert_eq!(verdict, HostVerdict::Allowed);
        let never = |_: &PolicyRequest| about_size("no IPUs here");
        let verdict = host_verdict(&request, &never(&request), never);
        assert!(
            matches!(verdict, HostVerdict::Refused { .. }),
            "{verdict:?}"
        );
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
                verdict_json(
                    Hook::Validation,
                    update,
                    &Ok(Answer::Verdict(Verdict::default())),
                ),
                "notAsked",
            ),
            (
                verdict_json(
                    Hook::Defaulting,
                    create.clone(),
                    &defaulted(json!({"spec": {"b": 2}, "metadata": {}})),
                ),
                "patched",
            ),
            (
                verdict_json(
                    Hook::Defaulting,
                    create.clone(),
                    &defaulted(json!({"spec": {}, "metadata": {"name": "x"}})),
                ),
                "failed",
            ),
            (
                verdict_json(
                    Hook::Validation,
                    create,
                    &Ok(Answer::Verdict(Verdict::default())),
                ),
                "allowed",
            ),
        ];
        for (found, expected) in cases {
            assert_eq!(found["verdict"], json!(expected), "{found}");
        }
    }

    #[test]
    fn a_refusal_differs_from_a_failure() {
        let create = json!({"operation": "create", "object": {"spec": {}, "metadata": {}}});
        let violation = Violation {
            field: "spec.a".to_owned(),
            message: "no".to_owned(),
        };
        let refused = Defaulting::Refused {
            violations: vec![violation],
        };
        assert_eq!(
            verdict_json(
                Hook::Defaulting,
                create.clone(),
                &Ok(Answer::Defaulting(refused))
            ),
            json!({"verdict": "refused", "violations": [{"field": "spec.a", "message": "no"}]})
        );
        let failed = Err(GuestError::Failed("spec.a: no".to_owned()));
        let host_verdict = verdict_json(Hook::Validation, create, &failed);
        assert_eq!(host_verdict["verdict"], json!("failed"), "{host_verdict}");
    }

    #[test]
    fn an_invalid_decision_is_overruled() {
        let request = json!({
            "request": {"namespace": "n", "owner": "o", "ipus": 4, "gcds": 1},
            "controllers": [{"name": "a", "totalIpus": 8, "usedIpus": 0, "largestFree": 8}],
        });
        let decide = |name: &str| Ok(Answer::Decision(Decision::Try(name.to_owned())));
        let host_verdict = verdict_json(Hook::Placement, request.clone(), &decide("a"));
        assert_eq!(
            host_verdict,
            json!({"verdict": "followed", "decision": {"try": "a"}})
        );
        let host_verdict = verdict_json(Hook::Placement, request, &decide("mars"));
        assert_eq!(host_verdict["verdict"], json!("overruled"));
        assert_eq!(host_verdict["decision"], json!({"try": "a"}));
    }
}
