//! The existing objects that a policy in mode Shadow would refuse.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Review of the existing objects by the guest of a Validation policy in mode Shadow, as if their
/// users created them again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ExistingObjects {
    /// The `metadata.generation` of the version that reviewed them.
    pub generation: i64,
    /// IPUJobs and native Pods that match the policy, and about which its guest gave a valid
    /// answer.
    pub reviewed: i64,
    /// Number of these that the guest would refuse.
    pub refused: i64,
    /// Objects without a valid answer.
    pub failed: i64,
    /// Examples of objects that it would refuse.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10))]
    pub samples: Vec<RefusedObject>,
    /// Time at which the review ended.
    pub at: Time,
}

/// An existing object that a guest would refuse.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RefusedObject {
    /// Its kind: IPUJob or Pod.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The first field that breaks a rule, and the message of the guest.
    pub message: String,
}
