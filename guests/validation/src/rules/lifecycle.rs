//! Pure: how a job starts, ends, starts again and is cleaned up.

use serde_json::Value;

use super::Verdict;
use super::fields::{at, broken, whole};

const RESTART_TYPES: [&str; 4] = ["Always", "OnFailure", "Never", "ExitCode"];
const CLEAN_POLICIES: [&str; 3] = ["None", "Workers", "All"];

/// Checks `launcher`, `interactive`, `restartPolicy`, `cleanPodPolicy`, and the fields with the
/// meaning of those of a Kubernetes Job.
pub(super) fn check(spec: &Value, verdict: &mut Verdict) {
    check_launcher(spec, verdict);
    check_interactive(spec, verdict);
    check_restart_policy(spec, verdict);
    check_job_fields(spec, verdict);
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

fn check_job_fields(spec: &Value, verdict: &mut Verdict) {
    for (key, least) in [("activeDeadlineSeconds", 1), ("ttlSecondsAfterFinished", 0)] {
        let read = whole(spec, &[key], &format!("spec.{key}"), least);
        verdict.violations.extend(read.err());
    }
    if let Some(found) = at(spec, &["suspend"]).filter(|found| !found.is_boolean()) {
        let rule = "is neither true nor false; write one of them without quotes";
        verdict.violations.push(broken("spec.suspend", found, rule));
    }
    let manager = at(spec, &["managedBy"]);
    if let Some(found) = manager.filter(|found| !found.as_str().is_some_and(is_manager)) {
        verdict.violations.push(broken(
            "spec.managedBy",
            found,
            "is not a domain and a path of at most 63 characters, such as example.com/controller; \
             correct it, or remove it to let this operator carry the job out",
        ));
    }
}

/// Whether the text is `<domain>/<path>`, as a Kubernetes Job has it.
fn is_manager(text: &str) -> bool {
    let is_plain = |part: &str| {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        !part.is_empty() && part.bytes().all(allowed)
    };
    let parts = text.split_once('/');
    text.len() <= 63 && parts.is_some_and(|(domain, path)| is_plain(domain) && is_plain(path))
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
    let words = command.and_then(Value::as_array).into_iter().flatten();
    let instances = at(spec, &["jobInstances"]).and_then(Value::as_u64);
    if let (Some(instances @ 2..), true) =
        (instances, words.filter_map(Value::as_str).any(runs_poprun))
    {
        verdict.warn(format!(
            "spec.launcher.command: poprun gives every rank the launcher's IPUOF_* variables, which name \
             the partition of instance 0, and spec.jobInstances is {instances}; use one instance, or mpirun"
        ));
    }
    check_account(spec, verdict);
    if at(spec, &["interactive"]).is_some() {
        verdict.violate(
            "spec.interactive",
            "excludes spec.launcher, and both are set; remove one of them",
        );
    }
}

/// Whether a word of a command, which may be a script, names the program poprun.
fn runs_poprun(word: &str) -> bool {
    let is_end = |letter: char| letter.is_whitespace() || ";&|()<>\"'`".contains(letter);
    let mut words = word.split(is_end);
    words.any(|word| word.rsplit('/').next() == Some("poprun"))
}

/// Pods that name no ServiceAccount have `default`, and would get the launcher's right to execute
/// commands in workers.
fn check_account(spec: &Value, verdict: &mut Verdict) {
    let account = at(spec, &["launcher", "serviceAccountName"]);
    let is_valid = |name: &str| !name.is_empty() && name != "default";
    if let Some(found) = account.filter(|found| !found.as_str().is_some_and(is_valid)) {
        verdict.violations.push(broken(
            "spec.launcher.serviceAccountName",
            found,
            "is not the name of a ServiceAccount for launchers; every Pod of the namespace may have \
             default: name another one, or remove the field",
        ));
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
            "is missing; say how many seconds the interactive job lasts, such as 3600",
        ),
        Err(violation) => verdict.violations.push(violation),
    }
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
