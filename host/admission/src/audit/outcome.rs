//! Pure: an object of an audit, and what a guest decides about it.

use ipu_api::guest::admission::Violation;
use ipu_policies::match_input::ReviewedResource;
use serde_json::Value;

/// The object of a finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectName {
    /// API version.
    pub api_version: String,
    /// Kind.
    pub kind: &'static str,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
}

/// The outcome for one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The guest reports no violation.
    Allowed,
    /// The guest reports violations.
    Refused(Vec<Violation>),
    /// The operator would not call the guest.
    NotMatched,
    /// The operator would call the guest at an update of the object alone. Which one cannot be
    /// known.
    OnlyAtUpdates,
    /// The guest, or `spec.match`, gave no answer.
    Failed(String),
}

impl ObjectName {
    /// Reads the name of an object of the API server.
    pub fn of(object: &Value, resource: ReviewedResource) -> Self {
        let ReviewedResource {
            group,
            version,
            kind,
            ..
        } = resource;
        let api_version = match group {
            "" => version.to_owned(),
            group => format!("{group}/{version}"),
        };
        let text = |field: &str| {
            let text = object["metadata"][field].as_str();
            text.unwrap_or_default().to_owned()
        };
        Self {
            api_version,
            kind,
            namespace: text("namespace"),
            name: text("name"),
            uid: text("uid"),
        }
    }
}
