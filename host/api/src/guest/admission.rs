//! Pure: the requests of the defaulting and the validating webhook to their guests, without the
//! object, and the answers.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::namespace::NamespaceContext;

/// Most groups of a user in the context of a request.
pub const GROUPS_MAX: usize = 256;

/// The operation of an admission request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    /// The object is being created.
    #[serde(alias = "CREATE")]
    Create,
    /// The object is being updated.
    #[serde(alias = "UPDATE")]
    Update,
}

/// The user of a request to the API server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// Name of the user or the ServiceAccount.
    pub name: String,
    /// The user's groups, at most [`GROUPS_MAX`].
    pub groups: Vec<String>,
}

/// An admission request, without the object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Admission {
    /// The operation.
    pub operation: Operation,
    /// The user.
    pub user: User,
    /// Whether the API server will store nothing.
    pub dry_run: bool,
    /// The subresource. `None` for the object itself.
    pub sub_resource: Option<String>,
    /// Namespace of the object.
    pub namespace: String,
    /// Context of the namespace.
    #[serde(rename = "facts")]
    pub context: NamespaceContext,
}

impl Admission {
    /// Creates an admission request with this operation and no context.
    pub fn of(operation: Operation) -> Self {
        Self {
            operation,
            user: User::default(),
            dry_run: false,
            sub_resource: None,
            namespace: String::new(),
            context: NamespaceContext::default(),
        }
    }
}

/// An object with its defaults.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Defaulted {
    /// The whole object, before the host compares it with the original.
    pub object: Value,
    /// Warnings for the user.
    pub warnings: Vec<String>,
}

/// The answer of a defaulting guest.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Defaulting {
    /// The object with its defaults.
    Defaulted(Defaulted),
    /// The object is refused.
    Refused {
        /// Every violation; at least one.
        violations: Vec<Violation>,
    },
}

impl Defaulting {
    /// Returns the object with its defaults. `None` if it is refused.
    pub fn defaulted(self) -> Option<Defaulted> {
        match self {
            Self::Defaulted(defaulted) => Some(defaulted),
            Self::Refused { .. } => None,
        }
    }
}

/// A violation of a rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Violation {
    /// Path of the field, such as `spec.ipusPerJobInstance`.
    pub field: String,
    /// The value, the rule and the remedy.
    pub message: String,
}

/// The answer of a validation guest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Verdict {
    /// Every violation. If empty, the object is admitted.
    pub violations: Vec<Violation>,
    /// Warnings for the user.
    pub warnings: Vec<String>,
}
