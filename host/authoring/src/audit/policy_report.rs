//! Pure: the findings of each namespace as a policy report of the Kubernetes Policy Working Group,
//! which its viewers show.

use serde_json::{Value, json};

use super::report::{Counts, Finding, Line, Report};

/// Name of the engine in the reports.
const SOURCE: &str = "ipu-operator";

/// Longest name of a policy in the name of a report, in bytes. Kubernetes allows 253 for the whole
/// name.
const NAME: usize = 200;

/// The API of the reports. Both have the same fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Api {
    /// `wgpolicyk8s.io/v1alpha2`.
    WgPolicy,
    /// `openreports.io/v1alpha1`.
    OpenReports,
}

/// Returns one report for each namespace with objects. The next audit of the same policy replaces
/// it.
pub(super) fn objects(report: &Report, api: Api) -> Vec<Value> {
    let namespaces = report.namespaces.iter();
    namespaces
        .map(|(namespace, counts)| object(report, namespace, *counts, api))
        .collect()
}

fn object(report: &Report, namespace: &str, counts: Counts, api: Api) -> Value {
    let (api_version, kind) = match api {
        Api::WgPolicy => ("wgpolicyk8s.io/v1alpha2", "PolicyReport"),
        Api::OpenReports => ("openreports.io/v1alpha1", "Report"),
    };
    let lines = report.lines.iter();
    let lines = lines.filter(|line| line.object.namespace == namespace);
    let results = lines.map(|line| result(line, &report.policy));
    let mut object = json!({
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {
            "name": name(&report.policy),
            "namespace": namespace,
            "labels": {"app.kubernetes.io/managed-by": SOURCE},
        },
        "results": results.collect::<Vec<_>>(),
        "summary": {
            "pass": counts.allowed,
            "fail": counts.refused,
            "warn": 0,
            "error": counts.failed,
            "skip": counts.not_matched,
        },
    });
    if api == Api::OpenReports {
        object["source"] = json!(SOURCE);
    }
    object
}

fn result(line: &Line, policy: &str) -> Value {
    let object = &line.object;
    let mut result = json!({
        "source": SOURCE,
        "policy": policy,
        "result": match line.finding {
            Finding::Violation => "fail",
            Finding::Failure => "error",
        },
        "message": line.message,
        "resources": [{
            "apiVersion": object.api_version,
            "kind": object.kind,
            "namespace": object.namespace,
            "name": object.name,
            "uid": object.uid,
        }],
    });
    if let Some(field) = &line.field {
        result["properties"] = json!({"field": field});
    }
    result
}

/// The name of the report of a policy. A component's file can have a name that no object may have.
fn name(policy: &str) -> String {
    let lower = policy.to_ascii_lowercase();
    let allowed = |character: char| character.is_ascii_alphanumeric() || "-.".contains(character);
    let clean: String = lower
        .chars()
        .map(|character| if allowed(character) { character } else { '-' })
        .take(NAME)
        .collect();
    let clean = clean.trim_matches(['-', '.']);
    format!(
        "ipupolicy-{}",
        if clean.is_empty() { "audit" } else { clean }
    )
}

#[cfg(test)]
mod tests {
    use ipu_api::dns1123::is_subdomain;

    use super::super::report::tests::report;
    use super::*;

    #[test]
    fn a_namespace_has_one_report_of_its_objects() {
        let objects = objects(&report(), Api::OpenReports);
        let names: Vec<_> = objects
            .iter()
            .map(|object| object["metadata"]["namespace"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["team-a", "team-b"]);
        assert_eq!(objects[0]["source"], json!("ipu-operator"));
        assert_eq!(objects[0]["results"].as_array().unwrap().len(), 3);
        assert_eq!(
            objects[0]["summary"],
            json!({"pass": 1, "fail": 2, "warn": 0, "error": 0, "skip": 0})
        );
        assert_eq!(objects[1]["results"][0]["result"], json!("error"));
    }

    #[test]
    fn every_policy_has_a_report_with_a_valid_name() {
        for (policy, expected) in [
            ("rule.v1", "ipupolicy-rule.v1"),
            ("My rule_2", "ipupolicy-my-rule-2"),
            ("é", "ipupolicy-audit"),
        ] {
            assert_eq!(name(policy), expected);
        }
        assert!(is_subdomain(&name(&"x".repeat(999))));
    }
}
