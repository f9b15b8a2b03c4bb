//! The condition for the return of an IPUPolicy to its previous version.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Hook, IPUPolicySpec, OnError};

/// Condition for the return to the previous version. Calls of dry runs do not count, and failures
/// count only if they are in at least three namespaces and of two users.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RollbackOptions {
    /// When the operator returns to the previous version by itself. Missing: CallsFail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<RollbackWhen>,
    /// Time after the activation of a version in which the operator can return to the previous one,
    /// in seconds. Default: 3600.
    #[schemars(range(min = 1, max = 31_536_000))]
    #[serde(default = "RollbackOptions::within_seconds")]
    pub within_seconds: u32,
    /// Percentage of failed calls among the last 100 of each replica. Default: 10.
    #[schemars(range(min = 1, max = 100))]
    #[serde(default = "RollbackOptions::failures_percent")]
    pub failures_percent: u32,
    /// Number of calls before the percentage is evaluated. Default: 10.
    #[schemars(range(min = 1, max = 100))]
    #[serde(default = "RollbackOptions::minimum_calls")]
    pub minimum_calls: u32,
}

/// When the operator returns to the previous version of a policy by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RollbackWhen {
    /// Never. The alert `IPUOperatorGuestFails` reports failing calls.
    Never,
    /// When too large a share of the calls fails.
    CallsFail,
}

impl IPUPolicySpec {
    /// Returns the condition for the return to the previous version. `None`: never.
    pub fn automatic_rollback(&self) -> Option<RollbackOptions> {
        let options = self.rollback.unwrap_or_default();
        // The previous version of a rule admits what the rule denies, so an admin decides about the
        // return to it.
        let is_rule = self.hook == Hook::Validation && self.on_error() == OnError::Fail;
        let when = options
            .when
            .unwrap_or(if self.rollback.is_none() && is_rule {
                RollbackWhen::Never
            } else {
                RollbackWhen::CallsFail
            });
        match when {
            RollbackWhen::Never => None,
            RollbackWhen::CallsFail => Some(options),
        }
    }
}

impl RollbackOptions {
    fn failures_percent() -> u32 {
        10
    }

    fn minimum_calls() -> u32 {
        10
    }

    fn within_seconds() -> u32 {
        3_600
    }
}

impl Default for RollbackOptions {
    fn default() -> Self {
        Self {
            failures_percent: Self::failures_percent(),
            minimum_calls: Self::minimum_calls(),
            when: None,
            within_seconds: Self::within_seconds(),
        }
    }
}
