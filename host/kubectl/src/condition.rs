//! Pure: a condition of an object as a page shows it.

use ipu_api::ipujob_status::JobCondition;
use ipu_text::sanitize;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PodCondition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::Serialize;

/// Longest text of an object that a page repeats, in bytes.
const TEXT_MAX: usize = 2_048;

/// A condition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ShownCondition {
    /// Its type.
    #[serde(rename = "type")]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Its reason.
    pub reason: String,
    /// Its message.
    pub message: String,
    /// Time of the last change of its status.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
}

impl ShownCondition {
    /// Whether it is this type with this status.
    pub fn is(&self, type_: &str, status: &str) -> bool {
        self.type_ == type_ && self.status == status
    }
}

impl From<&JobCondition> for ShownCondition {
    fn from(one: &JobCondition) -> Self {
        Self {
            type_: shown(&one.type_),
            status: shown(&one.status),
            reason: shown(&one.reason),
            message: shown(&one.message),
            since: one.last_transition_time.as_ref().map(|time| time.0),
        }
    }
}

impl From<&Condition> for ShownCondition {
    fn from(one: &Condition) -> Self {
        Self {
            type_: shown(&one.type_),
            status: shown(&one.status),
            reason: shown(&one.reason),
            message: shown(&one.message),
            since: Some(one.last_transition_time.0),
        }
    }
}

impl From<&PodCondition> for ShownCondition {
    fn from(one: &PodCondition) -> Self {
        Self {
            type_: shown(&one.type_),
            status: shown(&one.status),
            reason: shown(one.reason.as_deref().unwrap_or_default()),
            message: shown(one.message.as_deref().unwrap_or_default()),
            since: one.last_transition_time.as_ref().map(|time| time.0),
        }
    }
}

/// A text of an object, of bounded length and without characters that control a terminal.
pub fn shown(text: &str) -> String {
    sanitize(text, TEXT_MAX)
}
