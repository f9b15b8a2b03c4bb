//! Pure: the answer to the API server.

use ipu_api::guest::admission::Violation;
use ipu_api::guest::digest::ModuleDigest;
use ipu_guest_host::texts::{WARNING, WARNINGS};
use ipu_text::sanitize;
use json_patch::Patch;
use serde_json::{Value, json};

use super::request::AdmissionRequest;

/// Time after which a client repeats a request, in seconds. Clients of Kubernetes do so by
/// themselves, some times.
const RETRY_AFTER_SECONDS: u32 = 2;

/// The answer to one request.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// Whether the object is admitted.
    pub decision: Decision,
    /// Warnings for the user.
    pub warnings: Vec<String>,
    /// The called policies, by name and module, for the audit log.
    pub called: Vec<(String, ModuleDigest)>,
    /// The policies that failed and have `onError: Ignore`, for the audit log.
    pub ignored: Vec<String>,
}

/// Whether an object is admitted. The names of the variants are the verdicts in the metrics.
#[derive(Clone, Debug, PartialEq, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum Decision {
    /// It is admitted.
    Allowed,
    /// It is admitted with these changes.
    Patched(Patch),
    /// It is refused for these violations (422; kubectl shows each on a line of its own).
    Refused(Vec<Violation>),
    /// The operator failed, independent of the object (500).
    Failed(String),
    /// The operator is too busy to decide, and the same request can succeed later (429).
    Busy(String),
    /// A new policy that decides about it is not active yet, and the same request can succeed later
    /// (429).
    Waiting(String),
}

impl Answer {
    /// Admits the object without calling a policy.
    pub fn allowed() -> Self {
        Self::of(Decision::Allowed)
    }

    /// Fails with this message.
    pub fn failed(message: impl Into<String>) -> Self {
        Self::of(Decision::Failed(message.into()))
    }

    /// Refused without a call of any policy.
    pub fn refused(violations: Vec<Violation>) -> Self {
        Self::of(Decision::Refused(violations))
    }

    fn of(decision: Decision) -> Self {
        Self {
            decision,
            warnings: Vec::new(),
            called: Vec::new(),
            ignored: Vec::new(),
        }
    }

    /// Renders the AdmissionReview in the version of `request`.
    pub fn render(&self, request: &AdmissionRequest) -> Value {
        let mut response = json!({ "uid": request.uid, "allowed": self.is_allowed() });
        match &self.decision {
            Decision::Allowed => {}
            Decision::Patched(patch) => {
                response["patchType"] = json!("JSONPatch");
                response["patch"] = json!(base64(patch));
            }
            Decision::Refused(violations) => response["status"] = refused(request, violations),
            Decision::Failed(message) => {
                response["status"] = json!({
                    "status": "Failure",
                    "code": 500,
                    "reason": "InternalError",
                    "message": message,
                });
            }
            Decision::Busy(message) | Decision::Waiting(message) => {
                response["status"] = retryable(message);
            }
        }
        if !self.warnings.is_empty() {
            let warnings = self.warnings.iter().take(WARNINGS);
            let warnings: Vec<String> =
                warnings.map(|warning| sanitize(warning, WARNING)).collect();
            response["warnings"] = json!(warnings);
        }
        if !self.called.is_empty() {
            let called: Vec<String> = self.called.iter().map(audit_text).collect();
            response["auditAnnotations"]["policy"] = json!(called.join(", "));
        }
        if !self.ignored.is_empty() {
            response["auditAnnotations"]["policy-ignored"] = json!(self.ignored.join(", "));
        }
        json!({
            "apiVersion": request.version.api_version(),
            "kind": "AdmissionReview",
            "response": response,
        })
    }

    fn is_allowed(&self) -> bool {
        match self.decision {
            Decision::Allowed | Decision::Patched(_) => true,
            Decision::Refused(_)
            | Decision::Failed(_)
            | Decision::Busy(_)
            | Decision::Waiting(_) => false,
        }
    }
}

/// Formats a called policy for the audit log: its digest, with its name unless it is built in.
fn audit_text((name, digest): &(String, ModuleDigest)) -> String {
    if name == ipu_api::ipupolicy::BUILT_IN {
        digest.to_string()
    } else {
        format!("{name}@{digest}")
    }
}

/// Builds the status of a refusal: all violations in the message, and each as a cause.
fn refused(request: &AdmissionRequest, violations: &[Violation]) -> Value {
    let sentences: Vec<String> = violations
        .iter()
        .map(|violation| format!("{}: {}", violation.field, violation.message))
        .collect();
    let causes: Vec<Value> = violations
        .iter()
        .map(|violation| {
            json!({
                "reason": "FieldValueInvalid",
                "field": violation.field,
                "message": violation.message,
            })
        })
        .collect();
    json!({
        "status": "Failure",
        "code": 422,
        "reason": "Invalid",
        "message": sentences.join("; "),
        "details": {
            "group": request.reviewed.group(),
            "kind": request.reviewed.kind(),
            "name": request.name,
            "causes": causes,
        },
    })
}

/// Builds the status of a refusal that clients repeat by themselves.
fn retryable(message: &str) -> Value {
    json!({
        "status": "Failure",
        "code": 429,
        "reason": "TooManyRequests",
        "message": message,
        "details": { "retryAfterSeconds": RETRY_AFTER_SECONDS },
    })
}

fn base64(patch: &Patch) -> k8s_openapi::ByteString {
    let bytes = serde_json::to_vec(patch).expect("a patch is made of JSON values");
    k8s_openapi::ByteString(bytes)
}

#[cfg(test)]
mod tests {
    use ipu_api::guest::admission::Violation;
    use ipu_api::guest::digest::ModuleDigest;
    use serde_json::json;

    use super::{Answer, Decision};
    use crate::request::ReviewVersion;
    use crate::request::tests::request;

    fn violation(field: &str, message: &str) -> Violation {
        Violation {
            field: field.to_owned(),
            message: message.to_owned(),
        }
    }

    #[test]
    fn a_refusal_names_every_violation() {
        let answer = Answer {
            decision: Decision::Refused(vec![
                violation("spec.ipusPerJobInstance", "\"3\" is not a power of two"),
                violation("spec.launcher", "excludes spec.interactive"),
            ]),
            warnings: vec!["careful".to_owned()],
            called: vec![
                ("built-in".to_owned(), ModuleDigest::new("sha256:77")),
                ("quota".to_owned(), ModuleDigest::new("sha256:88")),
            ],
            ignored: vec!["broken".to_owned()],
        };
        let expected = json!({
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "response": {
                "uid": "0c9a8d74",
                "allowed": false,
                "status": {
                    "status": "Failure",
                    "code": 422,
                    "reason": "Invalid",
                    "message": "spec.ipusPerJobInstance: \"3\" is not a power of two; \
                                spec.launcher: excludes spec.interactive",
                    "details": {
                        "group": "graphcore.ai",
                        "kind": "IPUJob",
                        "name": "mnist",
                        "causes": [
                            {
                                "reason": "FieldValueInvalid",
                                "field": "spec.ipusPerJobInstance",
                                "message": "\"3\" is not a power of two",
                            },
                            {
                                "reason": "FieldValueInvalid",
                                "field": "spec.launcher",
                                "message": "excludes spec.interactive",
                            },
                        ],
                    },
                },
                "warnings": ["careful"],
                "auditAnnotations": {
                    "policy": "sha256:77, quota@sha256:88",
                    "policy-ignored": "broken",
                },
            },
        });
        assert_eq!(answer.render(&request(|_| {})), expected);
    }

    #[test]
    fn a_patch_goes_in_base64_and_in_the_version_of_the_question() {
        let patch = json!([{ "op": "add", "path": "/spec/cleanPodPolicy", "value": "None" }]);
        let answer = Answer {
            decision: Decision::Patched(serde_json::from_value(patch.clone()).unwrap()),
            ..Answer::allowed()
        };
        let mut request = request(|_| {});
        request.version = ReviewVersion::V1Beta1;
        let rendered = answer.render(&request);
        assert_eq!(rendered["apiVersion"], json!("admission.k8s.io/v1beta1"));
        let response = &rendered["response"];
        assert_eq!(response["allowed"], json!(true));
        assert_eq!(response["patchType"], json!("JSONPatch"));
        let bytes: k8s_openapi::ByteString =
            serde_json::from_value(response["patch"].clone()).unwrap();
        let sent: serde_json::Value = serde_json::from_slice(&bytes.0).unwrap();
        assert_eq!(sent, patch);
    }

    #[test]
    fn a_failure_is_not_the_objects_fault() {
        let rendered = Answer::failed("the policy is late").render(&request(|_| {}));
        assert_eq!(rendered["response"]["allowed"], json!(false));
        assert_eq!(rendered["response"]["status"]["code"], json!(500));
        assert_eq!(
            rendered["response"]["status"]["message"],
            json!("the policy is late")
        );
    }

    #[test]
    fn warnings_are_bounded_between_characters() {
        let answer = Answer {
            warnings: vec!["é".repeat(200); 40],
            ..Answer::allowed()
        };
        let rendered = answer.render(&request(|_| {}));
        let warnings = rendered["response"]["warnings"].as_array().unwrap();
        assert_eq!(warnings.len(), 16);
        let first = warnings[0].as_str().unwrap();
        assert_eq!(first, format!("{}…", "é".repeat(126)));
    }
}
