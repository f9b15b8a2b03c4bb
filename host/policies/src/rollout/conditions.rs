//! Pure: the conditions of a policy, by which `kubectl wait`, Argo CD and Flux wait for it.
//!
//! These tools read a `Stalled` that is true as a failure, and a `Reconciling` that is true as
//! progress. Both are missing while they are false.

use ipu_api::condition::renewed;
use ipu_api::ipupolicy::{IPUPolicyStatus, PolicyPhase};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::{Value, json};

/// Condition: every replica serves with the version in `spec`.
const READY: &str = "Ready";

/// Condition: the replicas are becoming ready with the version in `spec`.
const RECONCILING: &str = "Reconciling";

/// Condition: the version in `spec` does not become active by itself.
const STALLED: &str = "Stalled";

/// Returns the conditions of a status with this phase and message.
pub(super) fn of(status: &IPUPolicyStatus, is_ready: bool, now: Timestamp) -> Vec<Condition> {
    let is_stalled = matches!(status.phase, PolicyPhase::Refused | PolicyPhase::RolledBack);
    let reason = format!("{:?}", status.phase);
    let condition = |type_: &str, is_true: bool| Condition {
        observed_generation: Some(status.observed_generation),
        ..renewed(
            &status.conditions,
            type_,
            is_true,
            (&reason, status.message.clone()),
            now,
        )
    };
    let mut conditions = vec![condition(READY, is_ready)];
    if is_stalled {
        conditions.push(condition(STALLED, true));
    } else if !is_ready {
        conditions.push(condition(RECONCILING, true));
    }
    conditions
}

/// Returns the conditions of a refused policy whose status can have values of a newer version.
pub(crate) fn of_refused(status: &Value, generation: i64, message: &str, now: Timestamp) -> Value {
    let old = serde_json::from_value(status["conditions"].clone()).unwrap_or_default();
    let refused = IPUPolicyStatus {
        phase: PolicyPhase::Refused,
        message: message.to_owned(),
        observed_generation: generation,
        conditions: old,
        ..IPUPolicyStatus::default()
    };
    json!(of(&refused, false, now))
}
