//! Pure: a request to a guest and its answer as JSON, for all worlds.

use ipu_api::guest::admission::{Admission, Defaulting, Operation, User, Verdict};
use ipu_api::guest::namespace::NamespaceContext;
use ipu_api::guest::placement::{Decision, PlacementRequest};
use ipu_api::ipupolicy::Hook;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// A request to a guest.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum PolicyRequest {
    /// To a defaulting guest.
    Defaulting(Review),
    /// To a validation guest.
    Validation(Review),
    /// To a placement guest.
    Placement(PlacementRequest),
}

/// A request to an admission policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Review {
    /// The operation.
    pub operation: Operation,
    /// The object.
    pub object: Value,
    /// The previous object, on an update.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old_object: Option<Value>,
    /// The user.
    #[serde(default)]
    pub user: User,
    /// Whether the API server will store nothing.
    #[serde(default)]
    pub dry_run: bool,
    /// The subresource. `None` for the object itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sub_resource: Option<String>,
    /// Namespace of the object; by default `metadata.namespace`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Context of the namespace.
    #[serde(default, rename = "facts")]
    pub context: NamespaceContext,
}

impl Review {
    /// Combines an admission request with its objects.
    pub fn of(admission: Admission, object: Value, old_object: Option<Value>) -> Self {
        Self {
            operation: admission.operation,
            object,
            old_object,
            user: admission.user,
            dry_run: admission.dry_run,
            sub_resource: admission.sub_resource,
            namespace: Some(admission.namespace),
            context: admission.context,
        }
    }

    /// Returns the admission request without the objects.
    pub fn admission(&self) -> Admission {
        let named = || {
            self.object["metadata"]["namespace"]
                .as_str()
                .map(str::to_owned)
        };
        Admission {
            operation: self.operation,
            user: self.user.clone(),
            dry_run: self.dry_run,
            sub_resource: self.sub_resource.clone(),
            namespace: self.namespace.clone().or_else(named).unwrap_or_default(),
            context: self.context.clone(),
        }
    }
}

/// The answer of a guest, before the host checks it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Answer {
    /// Of a defaulting guest.
    Defaulting(Defaulting),
    /// Of a validation guest.
    Verdict(Verdict),
    /// Of a placement guest.
    Decision(Decision),
}

impl From<Defaulting> for Answer {
    fn from(defaulting: Defaulting) -> Self {
        Self::Defaulting(defaulting)
    }
}

impl From<Verdict> for Answer {
    fn from(verdict: Verdict) -> Self {
        Self::Verdict(verdict)
    }
}

impl From<Decision> for Answer {
    fn from(decision: Decision) -> Self {
        Self::Decision(decision)
    }
}

/// Reason why a value is not a request.
#[derive(Debug, thiserror::Error)]
pub enum PolicyRequestError {
    /// A field is missing, unknown, or of the wrong type.
    #[error("it is no request to a {hook} guest, which has the form {form}: at {path:?}: {source}")]
    Form {
        /// The world.
        hook: Hook,
        /// Its requests' form.
        form: &'static str,
        /// The field.
        path: String,
        /// The problem.
        source: serde_json::Error,
    },
    /// An update without a previous object, or another operation with one.
    #[error(
        "the field \"oldObject\" belongs to operation \"update\" and only there: it is the object \
         before the change"
    )]
    OldObject,
}

impl PolicyRequest {
    /// Parses a request to a guest of `hook`. For admission guests it can be an AdmissionReview of
    /// an API server.
    pub fn parse(hook: Hook, value: Value) -> Result<Self, PolicyRequestError> {
        Ok(match hook {
            Hook::Defaulting => Self::Defaulting(review(hook, value)?),
            Hook::Validation => Self::Validation(review(hook, value)?),
            Hook::Placement => Self::Placement(read(hook, value)?),
        })
    }

    /// Returns the hook of the request.
    pub fn hook(&self) -> Hook {
        match self {
            Self::Defaulting(_) => Hook::Defaulting,
            Self::Validation(_) => Hook::Validation,
            Self::Placement(_) => Hook::Placement,
        }
    }
}

fn review(hook: Hook, mut value: Value) -> Result<Review, PolicyRequestError> {
    if value["kind"] == "AdmissionReview" {
        value = review_fields(value["request"].take());
    }
    let review: Review = read(hook, value)?;
    if review.old_object.is_some() != (review.operation == Operation::Update) {
        return Err(PolicyRequestError::OldObject);
    }
    Ok(review)
}

/// Extracts the fields for policies from the request of an AdmissionReview.
fn review_fields(request: Value) -> Value {
    let Value::Object(mut request) = request else {
        return request;
    };
    let user = request.remove("userInfo").unwrap_or_default();
    request.retain(|key, value| {
        let fields = [
            "operation",
            "object",
            "oldObject",
            "dryRun",
            "subResource",
            "namespace",
        ];
        fields.contains(&key.as_str()) && !value.is_null()
    });
    let groups = user.get("groups").filter(|groups| groups.is_array());
    let user = json!({
        "name": user["username"].as_str().unwrap_or_default(),
        "groups": groups.unwrap_or(&json!([])),
    });
    request.insert("user".to_owned(), user);
    Value::Object(request)
}

fn read<T: serde::de::DeserializeOwned>(hook: Hook, value: Value) -> Result<T, PolicyRequestError> {
    serde_path_to_error::deserialize(value).map_err(|error| PolicyRequestError::Form {
        hook,
        form: match hook {
            Hook::Defaulting | Hook::Validation => {
                r#"{"operation": "create" or "update", "object": {…}, "oldObject": {…} (update)}"#
            }
            Hook::Placement => r#"{"request": {…}, "controllers": […], "attempts": […]}"#,
        },
        path: error.path().to_string(),
        source: error.into_inner(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    #[test]
    fn every_sample_survives_a_round_trip() {
        for hook in Hook::ALL {
            let sample = samples::request(hook);
            let written = serde_json::to_value(&sample).unwrap();
            assert_eq!(PolicyRequest::parse(hook, written).unwrap(), sample);
            assert_eq!(sample.hook(), hook);
        }
    }

    #[test]
    fn an_admission_review_is_a_request() {
        let review = json!({
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "request": {"uid": "1", "operation": "CREATE", "object": {"a": 1}, "oldObject": null},
        });
        let request = PolicyRequest::parse(Hook::Validation, review).unwrap();
        let plain = json!({"operation": "create", "object": {"a": 1}});
        assert_eq!(
            request,
            PolicyRequest::parse(Hook::Validation, plain).unwrap()
        );
    }

    #[test]
    fn an_error_has_the_path_of_the_field() {
        let controller = json!({"name": "a", "totalIpus": "many", "usedIpus": 0, "largestFree": 0});
        let request = json!({"namespace": "n", "owner": "o", "ipus": 1, "gcds": 1});
        let cases = [
            (Hook::Validation, json!([]), "\"operation\": \"create\""),
            (
                Hook::Validation,
                json!({"object": {}}),
                "missing field `operation`",
            ),
            (
                Hook::Defaulting,
                json!({"operation": "delete", "object": {}}),
                "at \"operation\": unknown variant `delete`",
            ),
            (
                Hook::Defaulting,
                json!({"operation": "update", "object": {}}),
                "\"oldObject\" belongs to operation \"update\"",
            ),
            (
                Hook::Defaulting,
                json!({"operation": "create", "object": {}, "oldObject": {}}),
                "\"oldObject\" belongs to operation \"update\"",
            ),
            (
                Hook::Placement,
                json!({"request": request, "controllers": [controller]}),
                "at \"controllers[0].totalIpus\"",
            ),
            (
                Hook::Placement,
                json!({"request": request, "controllers": [], "attempt": []}),
                "unknown field `attempt`",
            ),
        ];
        for (hook, value, expected) in cases {
            let error = PolicyRequest::parse(hook, value).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
