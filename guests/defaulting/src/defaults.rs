//! Pure: fills the missing fields of an IPUJob. Fields that the user has set stay.

#[cfg(test)]
mod table;

use guest_sdk::message::shown;
use guest_sdk::types::Violation;
use serde_json::{Map, Value, json};

/// Failures after which a job is given up, where the user set no number.
const BACK_OFF_LIMIT: u32 = 3;

/// An object as it should be.
#[derive(Clone, Debug, PartialEq)]
pub struct Defaulted {
    /// The whole object.
    pub object: Value,
    /// Sentences for the user, each under 256 bytes.
    pub warnings: Vec<String>,
}

/// Fills the missing fields of an IPUJob, and maps the fields of alpha-5 and the misspelt field of
/// 1.0.3 to the current ones. An object that is not an IPUJob stays unchanged.
///
/// The error refuses the object.
pub fn apply(mut object: Value) -> Result<Defaulted, Violation> {
    let mut warnings = Vec::new();
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        map_misspelling(spec, &mut warnings);
        map_alpha_5(spec, &mut warnings)?;
        fill(spec, "cleanPodPolicy", || json!("None"));
        fill(spec, "restartPolicy", || json!({}));
        if let Some(policy) = spec.get_mut("restartPolicy").and_then(Value::as_object_mut) {
            fill(policy, "type", || json!("Never"));
            fill(policy, "backOffLimit", || json!(BACK_OFF_LIMIT));
        }
    }
    Ok(Defaulted { object, warnings })
}

/// The value of a field, where it is there and not null.
fn set<'a>(map: &'a Map<String, Value>, key: &str) -> Option<&'a Value> {
    map.get(key).filter(|value| !value.is_null())
}

/// Sets a field that is missing or null.
fn fill(map: &mut Map<String, Value>, key: &str, value: impl FnOnce() -> Value) {
    if set(map, key).is_none() {
        map.insert(key.to_owned(), value());
    }
}

fn map_misspelling(spec: &mut Map<String, Value>, warnings: &mut Vec<String>) {
    let Some(misspelt) = set(spec, "workerPerJobInstance").cloned() else {
        return;
    };
    warnings.push(
        "spec.workerPerJobInstance is a misspelling of spec.workersPerJobInstance; it is read as \
         that, but please rename it"
            .to_owned(),
    );
    fill(spec, "workersPerJobInstance", || misspelt);
}

/// Maps `modelReplicas` and `ipusPerModelReplica` onto the sizing fields of today.
fn map_alpha_5(spec: &mut Map<String, Value>, warnings: &mut Vec<String>) -> Result<(), Violation> {
    let keys = ["modelReplicas", "ipusPerModelReplica"];
    if keys.iter().all(|key| set(spec, key).is_none()) {
        return Ok(());
    }
    warnings.push(
        "spec.modelReplicas and spec.ipusPerModelReplica are deprecated; please use \
         spec.jobInstances, spec.ipusPerJobInstance and spec.modelReplicasPerWorker"
            .to_owned(),
    );
    if set(spec, "ipusPerJobInstance").is_some() {
        return Ok(());
    }
    let replicas = number(spec, "modelReplicas")?;
    let each = number(spec, "ipusPerModelReplica")?;
    let ipus = replicas.checked_mul(each).ok_or_else(|| {
        broken(
            "modelReplicas",
            format!(
                "\"{replicas}\" times spec.ipusPerModelReplica \"{each}\" is more than any system \
                 has; ask for fewer"
            ),
        )
    })?;
    if let Some(workers) = workers(spec) {
        if replicas % workers != 0 {
            return Err(broken(
                "modelReplicas",
                format!(
                    "\"{replicas}\" cannot be divided evenly among {workers} workers; make it a \
                     multiple of {workers}, or change the number of workers"
                ),
            ));
        }
        let per_worker = (replicas / workers).to_string();
        fill(spec, "modelReplicasPerWorker", || json!(per_worker));
    }
    fill(spec, "ipusPerJobInstance", || json!(ipus.to_string()));
    fill(spec, "jobInstances", || json!(1));
    Ok(())
}

/// Reads a positive whole number that is written as a string; 1 where it is missing.
fn number(spec: &Map<String, Value>, key: &str) -> Result<u32, Violation> {
    let Some(value) = set(spec, key) else {
        return Ok(1);
    };
    positive(value).ok_or_else(|| {
        let shown = shown(value);
        broken(
            key,
            format!("{shown} is not a whole number of at least 1 in quotes; write it like \"4\""),
        )
    })
}

/// A rule that a field of the spec breaks.
fn broken(key: &str, message: String) -> Violation {
    Violation {
        field: format!("spec.{key}"),
        message,
    }
}

/// Number of workers of each instance. `None`: the field is invalid, which the validation
/// reports.
fn workers(spec: &Map<String, Value>) -> Option<u32> {
    if let Some(named) = set(spec, "workersPerJobInstance") {
        return positive(named);
    }
    let replicas = set(spec, "workers")
        .and_then(Value::as_object)
        .and_then(|workers| set(workers, "replicas"));
    match replicas {
        None => Some(1),
        Some(replicas) => replicas
            .as_u64()
            .and_then(|replicas| u32::try_from(replicas).ok())
            .filter(|replicas| *replicas > 0),
    }
}

fn positive(value: &Value) -> Option<u32> {
    value
        .as_str()
        .filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))
        .and_then(|text| text.parse().ok())
        .filter(|number| *number > 0)
}
