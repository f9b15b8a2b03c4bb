//! Pure: the workers' Pod template and how it is rolled out.

use guest_sdk::message::shown;
use serde_json::Value;

use super::fields::{at, broken, has_launcher};
use super::{Sizing, Verdict};

/// Most containers that are looked at one by one.
pub(super) const CONTAINERS_MAX: usize = 64;

/// Checks `workers.template`, `workers.strategy` and `workers.failurePolicy`.
pub(super) fn check(spec: &Value, sizing: Option<Sizing>, verdict: &mut Verdict) {
    check_containers(spec, verdict);
    warn_of_equal_host_names(spec, sizing, verdict);
    check_strategy(spec, verdict);
    check_failure_policy(spec, verdict);
    let policy = at(spec, &["workers", "template", "spec", "restartPolicy"]);
    if let Some(policy) = policy.filter(|policy| policy.as_str() != Some("Never")) {
        verdict.warn(format!(
            "spec.workers.template.spec.restartPolicy: {} is not used: Pods of a job always get \
             Never, and spec.restartPolicy says whether the job runs again",
            shown(policy)
        ));
    }
}

fn check_containers(spec: &Value, verdict: &mut Verdict) {
    let field = "spec.workers.template.spec.containers";
    let containers = at(spec, &["workers", "template", "spec", "containers"]);
    let Some(list) = containers
        .and_then(Value::as_array)
        .filter(|list| !list.is_empty())
    else {
        verdict.violations.push(broken(
            field,
            containers.unwrap_or(&Value::Null),
            "is not a list of at least one container; say there what the workers run",
        ));
        return;
    };
    for (index, container) in list.iter().take(CONTAINERS_MAX).enumerate() {
        for key in ["name", "image"] {
            let found = at(container, &[key]);
            if found.and_then(Value::as_str).is_none_or(str::is_empty) {
                verdict.violations.push(broken(
                    &format!("{field}[{index}].{key}"),
                    found.unwrap_or(&Value::Null),
                    &format!("is not a string with something in it; give the container its {key}"),
                ));
            }
        }
    }
    warn_of_restarts(&list[0], verdict);
    if has_launcher(spec) {
        warn_of_idle_workers(&list[0], verdict);
    }
}

/// Warns of restarts of the first container inside its Pod.
fn warn_of_restarts(first: &Value, verdict: &mut Verdict) {
    let policy = at(first, &["restartPolicy"]).filter(|policy| policy.as_str() != Some("Never"));
    let rules = at(first, &["restartPolicyRules"]);
    for (key, found) in [("restartPolicy", policy), ("restartPolicyRules", rules)] {
        if found.is_some() {
            verdict.warn(format!(
                "spec.workers.template.spec.containers[0].{key} is not used: the program is never restarted inside \
                 its Pod, and spec.restartPolicy says whether the job runs again"
            ));
        }
    }
}

/// Warns of a host name that all workers of a launcher would have.
fn warn_of_equal_host_names(spec: &Value, sizing: Option<Sizing>, verdict: &mut Verdict) {
    let workers = sizing.map_or(0, Sizing::total_workers);
    if !has_launcher(spec) || workers < 2 {
        return;
    }
    let set = |key: &str| at(spec, &["workers", "template", "spec", key]).is_some();
    if let Some(key) = ["hostname", "hostnameOverride"]
        .into_iter()
        .find(|key| set(key))
    {
        verdict.warn(format!(
            "spec.workers.template.spec.{key} gives {workers} workers the same host name, by which Open MPI 5 \
             identifies them; leave it out"
        ));
    }
}

/// Warns of fields of the first container that have no effect beside a launcher.
fn warn_of_idle_workers(first: &Value, verdict: &mut Verdict) {
    let field = "spec.workers.template.spec.containers[0]";
    let set = |keys: &[&'static str]| keys.iter().copied().find(|key| at(first, &[key]).is_some());
    if let Some(key) = set(&["command", "args"]) {
        verdict.warn(format!(
            "{field}.{key} is not used: in a job with a launcher the workers wait for the \
             launcher to start processes in them"
        ));
    }
    if let Some(key) = set(&["startupProbe", "readinessProbe", "livenessProbe"]) {
        verdict.warn(format!(
            "{field}.{key} is not used: the probe checks the program, and in a job with a launcher \
             the workers are Ready before the program runs"
        ));
    }
}

fn check_failure_policy(spec: &Value, verdict: &mut Verdict) {
    let field = "spec.workers.failurePolicy";
    let Some(found) = at(spec, &["workers", "failurePolicy"]) else {
        return;
    };
    if !matches!(found.as_str(), Some("Wait" | "FailInstance")) {
        verdict.violations.push(broken(
            field,
            found,
            "is neither Wait nor FailInstance; use one of them",
        ));
    } else if has_launcher(spec) {
        verdict.warn(format!(
            "{field}: {} is not used: in a job with a launcher a failed worker always ends the run",
            shown(found)
        ));
    }
}

fn check_strategy(spec: &Value, verdict: &mut Verdict) {
    let Some(strategy) = at(spec, &["workers", "strategy"]) else {
        return;
    };
    if let Some(found) = at(strategy, &["type"]) {
        if !matches!(found.as_str(), Some("Recreate" | "RollingUpdate")) {
            verdict.violations.push(broken(
                "spec.workers.strategy.type",
                found,
                "is neither Recreate nor RollingUpdate; use one of them",
            ));
        }
    }
    let mut zeros = 0;
    for key in ["maxSurge", "maxUnavailable"] {
        let Some(found) = at(strategy, &["rollingUpdate", key]) else {
            continue;
        };
        match int_or_percent(found) {
            Some(0) => zeros += 1,
            Some(_) => {}
            None => verdict.violations.push(broken(
                &format!("spec.workers.strategy.rollingUpdate.{key}"),
                found,
                "is neither a whole number from 0 nor a percentage such as \"25%\"; correct it",
            )),
        }
    }
    if zeros == 2 {
        verdict.violate(
            "spec.workers.strategy.rollingUpdate",
            "maxSurge and maxUnavailable are both 0, so that no Pod could ever be replaced; make \
             one of them larger",
        );
    }
}

fn int_or_percent(value: &Value) -> Option<u64> {
    match value {
        Value::String(text) => text
            .strip_suffix('%')
            .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))
            .and_then(|digits| digits.parse().ok()),
        other => other.as_u64().filter(|number| *number <= 2_147_483_647),
    }
}
