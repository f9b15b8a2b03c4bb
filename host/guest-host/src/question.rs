//! Pure: one request to a policy and its answer as JSON, whichever world they are of.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::dispose;
use super::facts::{Admission, NamespaceFacts, User};
use super::model::{
    ControllerView, Decision, Defaulting, Operation, PlaceAttempt, PlaceRequest, Slot, Verdict,
};

/// A request to a policy.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Question {
    /// To a defaulting policy.
    Defaulting(Review),
    /// To a validation policy.
    Validation(Review),
    /// To a placement policy.
    Placement(Placing),
}

/// What is asked about an object on its way into the API server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Review {
    /// What is being done.
    pub operation: Operation,
    /// The object as it shall be.
    pub object: Value,
    /// The object as it was, on an update.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old_object: Option<Value>,
    /// Who does it.
    #[serde(default)]
    pub user: User,
    /// Whether nothing will be stored.
    #[serde(default)]
    pub dry_run: bool,
    /// The part of the object that is written; none for the object itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sub_resource: Option<String>,
    /// Namespace of the object; by default the one that it names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// What is known of the namespace.
    #[serde(default)]
    pub facts: NamespaceFacts,
}

impl Review {
    /// A question about an object that comes into the API server like this.
    pub fn of(admission: Admission, object: Value, old_object: Option<Value>) -> Self {
        Self {
            operation: admission.operation,
            object,
            old_object,
            user: admission.user,
            dry_run: admission.dry_run,
            sub_resource: admission.sub_resource,
            namespace: Some(admission.namespace),
            facts: admission.facts,
        }
    }

    /// How the object comes into the API server.
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
            facts: self.facts.clone(),
        }
    }
}

/// What is asked about a wanted partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Placing {
    /// The partition.
    pub request: PlaceRequest,
    /// The controllers, in the order of the admin's list.
    pub controllers: Vec<ControllerView>,
    /// The tries so far.
    #[serde(default)]
    pub attempts: Vec<PlaceAttempt>,
}

/// The answer of a policy, before the host has judged it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Answer {
    /// Of a defaulting policy.
    Defaulting(Defaulting),
    /// Of a validation policy.
    Verdict(Verdict),
    /// Of a placement policy.
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

/// Why a value is no request.
#[derive(Debug, thiserror::Error)]
pub enum QuestionError {
    /// A field is missing, unknown, or of the wrong type.
    #[error(
        "it is no request to a {slot} policy, which has the form {form}: at {path:?}: {source}"
    )]
    Form {
        /// The world.
        slot: Slot,
        /// Its requests' form.
        form: &'static str,
        /// The field.
        path: String,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// An update has no object that it changes, or something else has one.
    #[error(
        "the field \"oldObject\" belongs to operation \"update\" and only there: it is the object \
         before the change"
    )]
    OldObject,
}

impl Question {
    /// Reads a request to a policy of `slot`. For the admission worlds a whole AdmissionReview, as
    /// API servers send it, is taken as well.
    pub fn parse(slot: Slot, value: Value) -> Result<Self, QuestionError> {
        Ok(match slot {
            Slot::Defaulting => Self::Defaulting(review(slot, value)?),
            Slot::Validation => Self::Validation(review(slot, value)?),
            Slot::Placement => Self::Placement(read(slot, value)?),
        })
    }

    /// The world that it is asked of.
    pub fn slot(&self) -> Slot {
        match self {
            Self::Defaulting(_) => Slot::Defaulting,
            Self::Validation(_) => Slot::Validation,
            Self::Placement(_) => Slot::Placement,
        }
    }
}

impl Placing {
    /// The decision, if it is one that the host would carry out; otherwise why not.
    pub fn disposed(&self, decision: Decision) -> Result<Decision, String> {
        dispose::checked(decision, &self.request, &self.controllers, &self.attempts)
    }
}

fn review(slot: Slot, mut value: Value) -> Result<Review, QuestionError> {
    if value["kind"] == "AdmissionReview" {
        value = essentials(value["request"].take());
    }
    let review: Review = read(slot, value)?;
    if review.old_object.is_some() != (review.operation == Operation::Update) {
        return Err(QuestionError::OldObject);
    }
    Ok(review)
}

/// What a policy sees of the request in an AdmissionReview.
fn essentials(request: Value) -> Value {
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

fn read<T: serde::de::DeserializeOwned>(slot: Slot, value: Value) -> Result<T, QuestionError> {
    serde_path_to_error::deserialize(value).map_err(|error| QuestionError::Form {
        slot,
        form: match slot {
            Slot::Defaulting | Slot::Validation => {
                r#"{"operation": "create" or "update", "object": {…}, "oldObject": {…} (update)}"#
            }
            Slot::Placement => r#"{"request": {…}, "controllers": […], "attempts": […]}"#,
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
    fn every_sample_reads_back_as_it_was_written() {
        for slot in Slot::ALL {
            let sample = samples::question(slot);
            let written = serde_json::to_value(&sample).unwrap();
            assert_eq!(Question::parse(slot, written).unwrap(), sample);
            assert_eq!(sample.slot(), slot);
        }
    }

    #[test]
    fn an_admission_review_is_a_request_too() {
        let review = json!({
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "request": {"uid": "1", "operation": "CREATE", "object": {"a": 1}, "oldObject": null},
        });
        let question = Question::parse(Slot::Validation, review).unwrap();
        let plain = json!({"operation": "create", "object": {"a": 1}});
        assert_eq!(question, Question::parse(Slot::Validation, plain).unwrap());
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        let controller = json!({"name": "a", "totalIpus": "many", "usedIpus": 0, "largestFree": 0});
        let request = json!({"namespace": "n", "owner": "o", "ipus": 1, "gcds": 1});
        let cases = [
            (Slot::Validation, json!([]), "\"operation\": \"create\""),
            (
                Slot::Validation,
                json!({"object": {}}),
                "missing field `operation`",
            ),
            (
                Slot::Defaulting,
                json!({"operation": "delete", "object": {}}),
                "at \"operation\": unknown variant `delete`",
            ),
            (
                Slot::Defaulting,
                json!({"operation": "update", "object": {}}),
                "\"oldObject\" belongs to operation \"update\"",
            ),
            (
                Slot::Defaulting,
                json!({"operation": "create", "object": {}, "oldObject": {}}),
                "\"oldObject\" belongs to operation \"update\"",
            ),
            (
                Slot::Placement,
                json!({"request": request, "controllers": [controller]}),
                "at \"controllers[0].totalIpus\"",
            ),
            (
                Slot::Placement,
                json!({"request": request, "controllers": [], "attempt": []}),
                "unknown field `attempt`",
            ),
        ];
        for (slot, value, expected) in cases {
            let error = Question::parse(slot, value).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
