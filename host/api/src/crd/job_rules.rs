//! The rules of an IPUJob that hold also where no webhook answers: the API server checks them
//! itself.
//!
//! They compare and nothing more: a rule that reads a field fails on one of another type, and then
//! nothing could take the finalizer off such a job.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::ValidationRule;

/// Rules of the spec.
pub(super) fn of_the_spec() -> Vec<ValidationRule> {
    vec![instances_stay_with_a_launcher(), manager_stays()]
}

/// `kubectl scale` and HorizontalPodAutoscalers write a Scale, and the webhook for IPUJobs does not
/// review it. So the definition contains this rule.
fn instances_stay_with_a_launcher() -> ValidationRule {
    rule(
        "jobInstances",
        "!(has(oldSelf.launcher) || has(oldSelf.interactive)) \
         || self.jobInstances == oldSelf.jobInstances",
        "jobInstances cannot change in a job with a launcher or in an interactive job, \
         because the launcher was started with the workers that the job had; \
         delete the job and create it again",
    )
}

/// As in a Kubernetes Job: two controllers must never believe that a job is theirs.
fn manager_stays() -> ValidationRule {
    rule(
        "managedBy",
        "has(self.managedBy) == has(oldSelf.managedBy) \
         && (!has(self.managedBy) || self.managedBy == oldSelf.managedBy)",
        "managedBy cannot change once the job exists; delete the job and create it again",
    )
}

fn rule(field: &str, rule: &str, message: &str) -> ValidationRule {
    ValidationRule {
        rule: rule.to_owned(),
        message: Some(message.to_owned()),
        field_path: Some(format!(".{field}")),
        reason: Some("FieldValueForbidden".to_owned()),
        ..ValidationRule::default()
    }
}
