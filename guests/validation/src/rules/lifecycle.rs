//! Pure: how a job starts, ends, starts again and is cleaned up.

use serde_json::Value;

use super::Verdict;
use super::fields::{at, broken, whole};

const RESTART_TYPES: [&str; 4] = ["Always", "OnFailure", "Never", "ExitCode"];
const CLEAN_POLICIES: [&str; 3] = ["None", "Workers", "All"];

/// Checks `launcher`, `interactive`, `restartPolicy` and `cleanPodPolicy`.
pub(super) fn check(spec: &Value, verdict: &mut Verdict) {
    check_launcher(spec, verdict);
    check_interactive(spec, verdict);
    check_restart_policy(spec, verdict);
    if let Some(policy) = at(spec, &["cleanPodPolicy"]) {
        if !is_one_of(policy, &CLEAN_POLICIES) {
            let violation = broken(
                "spec.cleanPodPolicy",
                policy,
                "is none of None, Workers and All; use one of them",
            );
            verdict.violations.push(violation);
        }
    }
}

fn is_one_of(value: &Value, names: &[&str]) -> bool {
    value.as_str().is_some_and(|name| names.contains(&name))
}

fn check_launcher(spec: &Value, verdict: &mut Verdict) {
    if at(spec, &["launcher"]).is_none() {
        return;
    }
    let command = at(spec, &["launcher", "command"]);
    let is_command = command
        .and_then(Value::as_array)
        .is_some_and(|words| !words.is_empty() && words.iter().all(Value::is_string));
    if !is_command {
        verdict.violations.push(broken(
            "spec.launcher.command",
            command.unwrap_or(&Value::Null),
            "is not a list of at least one string; write the command that starts the job, such \
             as [mpirun, …]",
        ));
    }
    if at(spec, &["interactive"]).is_some() {
        verdict.violate(
            "spec.interactive",
            "excludes spec.launcher, and both are set; remove one of them",
        );
    }
}

fn check_interactive(spec: &Value, verdict: &mut Verdict) {
    if at(spec, &["interactive"]).is_none() {
        return;
    }
    match whole(spec, &["interactive", "ttl"], "spec.interactive.ttl", 1) {
        Ok(Some(_)) => {}
        Ok(None) => verdict.violate(
            "spec.interactive.ttl",
            "is missing; say how many seconds the session lasts, such as 3600",
        ),
        Err(violation) => verdict.violations.push(violation),
    }
    verdict.violate(
        "spec.interactive",
        "is set, and interactive jobs are not carried out by this version yet; use spec.launcher \
         with a command that sleeps, such as [sleep, \"3600\"], and `kubectl exec` into it",
    );
}

fn check_restart_policy(spec: &Value, verdict: &mut Verdict) {
    let Some(policy) = at(spec, &["restartPolicy"]) else {
        return;
    };
    let field = "spec.restartPolicy.type";
    match at(policy, &["type"]) {
        None => verdict.violate(
            field,
            "is missing; use one of Always, OnFailure, Never and ExitCode",
        ),
        Some(found) if !is_one_of(found, &RESTART_TYPES) => verdict.violations.push(broken(
            field,
            found,
            "is none of Always, OnFailure, Never and ExitCode; use one of them",
        )),
        Some(found) if found.as_str() != Some("Never") => verdict.violations.push(broken(
            field,
            found,
            "is not carried out by this version yet; use Never, and create the job again if it \
             fails",
        )),
        Some(_) => {}
    }
    let limit = whole(
        policy,
        &["backOffLimit"],
        "spec.restartPolicy.backOffLimit",
        0,
    );
    verdict.violations.extend(limit.err());
    if let Some(codes) = at(policy, &["exitCodes"]) {
        if !codes.as_str().is_some_and(are_exit_codes) {
            verdict.violations.push(broken(
                "spec.restartPolicy.exitCodes",
                codes,
                "is not a list of exit codes and ranges; write it like 3,7,128-255",
            ));
        }
    }
}

/// Whether the text matches `^([0-9]+(-[0-9]+)?)(,([0-9]+(-[0-9]+)?))*$`.
fn are_exit_codes(text: &str) -> bool {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    text.split(',').all(|item| match item.split_once('-') {
        Some((first, last)) => is_number(first) && is_number(last),
        None => is_number(item),
    })
}
