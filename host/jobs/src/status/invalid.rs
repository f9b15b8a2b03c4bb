//! Pure: builds the status of an invalid job that has not started.

use ipu_api::ipujob_status::{IPUJobStatus, JobState};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::Value;

use super::conditions::Conditions;
use crate::job_conditions::{FAILED, PENDING, RUNNING};
use crate::validate::ValidateError;

/// Builds the status of an invalid job. `object` is the job.
///
/// It has no completion time, because the job continues when it is corrected.
pub fn build(
    object: &Value,
    error: &ValidateError,
    old: &IPUJobStatus,
    now: Timestamp,
) -> IPUJobStatus {
    let observed_generation = object
        .pointer("/metadata/generation")
        .and_then(Value::as_i64);
    let mut conditions = Conditions::new(&old.conditions, now);
    let message = error.to_string();
    conditions.set(FAILED, true, error.reason(), &message);
    conditions.set_false(PENDING);
    conditions.set_false(RUNNING);
    conditions.describe_for_tools(JobState::Failed);
    IPUJobStatus {
        launcher_status: JobState::Failed,
        current_replicas: Some(0),
        desired_replicas: object
            .pointer("/spec/jobInstances")
            .and_then(Value::as_i64)
            .and_then(|instances| instances.try_into().ok())
            .unwrap_or(0),
        last_message: message,
        start_time: old.start_time.clone().or(Some(Time(now))),
        observed_generation,
        conditions: conditions.into_vec(),
        ..old.clone()
    }
}
