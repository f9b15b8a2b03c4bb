//! Pure: what goes back to the API server.

use ipu_guest_host::model::{ModuleDigest, Violation};
use ipu_guest_host::texts::{WARNING, WARNINGS};
use ipu_text::sanitize;
use json_patch::Patch;
use serde_json::{Value, json};

use super::request::AdmissionRequest;

/// The answer to one request.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// Whether the object is admitted.
    pub decision: Decision,
    /// Sentences for the user.
    pub warnings: Vec<String>,
    /// Who was asked, by name and module, for the audit log.
    pub asked: Vec<(String, ModuleDigest)>,
    /// Who gave no answer, and was passed over because its policy says so; for the audit log.
    pub ignored: Vec<String>,
}

/// Whether an object is admitted.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// As it is.
    Allowed,
    /// With these changes.
    Patched(Patch),
    /// Not at all: it breaks rules (422, and kubectl shows each on a line of its own).
    Refused(Vec<Violation>),
    /// Not now, for a reason that is not the object's (500).
    Failed(String),
}

impl Decision {
    /// The decision in a word.
    pub fn verdict(&self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Patched(_) => "patched",
            Self::Refused(_) => "refused",
            Self::Failed(_) => "failed",
        }
    }
}

impl Answer {
    /// Admitted as it is, without asking anybody.
    pub fn nothing_to_say() -> Self {
        Self::of(Decision::Allowed)
    }

    /// Not now, because no policy answered.
    pub fn failed(message: impl Into<String>) -> Self {
        Self::of(Decision::Failed(message.into()))
    }

    /// Not at all, without asking anybody.
    pub fn refused(violations: Vec<Violation>) -> Self {
        Self::of(Decision::Refused(violations))
    }

    fn of(decision: Decision) -> Self {
        Self {
            decision,
            warnings: Vec::new(),
            asked: Vec::new(),
            ignored: Vec::new(),
        }
    }

    /// The AdmissionReview that answers `request`, in the version that it was asked in.
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
        }
        if !self.warnings.is_empty() {
            let warnings = self.warnings.iter().take(WARNINGS);
            let warnings: Vec<String> =
                warnings.map(|warning| sanitize(warning, WARNING)).collect();
            response["warnings"] = json!(warnings);
        }
        if !self.asked.is_empty() {
            let asked: Vec<String> = self.asked.iter().map(told).collect();
            response["auditAnnotations"]["policy"] = json!(asked.join(", "));
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
            Decision::Refused(_) | Decision::Failed(_) => false,
        }
    }
}

/// A module by its digest, and by its policy where it is none of our own.
fn told((name, digest): &(String, ModuleDigest)) -> String {
    if name == ipu_api::ipupolicy::BUILT_IN {
        digest.to_string()
    } else {
        format!("{name}@{digest}")
    }
}

/// The status of a refusal: one sentence with all of it for programs that show only that, and each
/// violation as a cause.
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

fn base64(patch: &Patch) -> k8s_openapi::ByteString {
    let bytes = serde_json::to_vec(patch).expect("a patch is made of JSON values");
    k8s_openapi::ByteString(bytes)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Answer, Decision};
    use crate::request::ReviewVersion;
    use crate::request::tests::request;
    use ipu_guest_host::model::{ModuleDigest, Violation};

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
            asked: vec![
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
            ..Answer::nothing_to_say()
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
            ..Answer::nothing_to_say()
        };
        let rendered = answer.render(&request(|_| {}));
        let warnings = rendered["response"]["warnings"].as_array().unwrap();
        assert_eq!(warnings.len(), 16);
        let first = warnings[0].as_str().unwrap();
        assert_eq!(first, format!("{}…", "é".repeat(126)));
    }
}
