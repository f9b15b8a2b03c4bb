//! Pure: a case of `policy test`: a request and the expected result.

use std::time::Duration;

use ipu_api::guest::admission::{Defaulting, Violation};
use ipu_api::guest::placement::{Decision, PassedOver};
use ipu_api::ipupolicy::Hook;
use ipu_guest_host::GuestError;
use ipu_guest_host::policy_request::{Answer, PolicyRequest, PolicyRequestError};
use ipu_text::explain;
use json_patch::Patch;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::host_verdict::HostVerdict;

/// A case as in its file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CaseDocument {
    #[serde(default)]
    settings: Map<String, Value>,
    request: Value,
    expect: Expectation,
}

/// The expected result of a request. A missing field matches anything.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Expectation {
    /// The whole answer, exactly.
    answer: Option<Value>,
    /// The verdict of the host: allowed, patched, refused, failed, followed, overruled, notAsked.
    verdict: Option<String>,
    /// Violations that the answer must have, with part of their messages.
    violations: Option<Vec<ExpectedViolation>>,
    /// Texts that warnings must contain.
    warnings: Option<Vec<String>>,
    /// The controller that the guest must choose.
    chosen: Option<String>,
    /// Controllers that a wait must skip, with part of their reasons.
    waits: Option<Vec<ExpectedSkip>>,
    /// Part of the reason of a rejection.
    rejects: Option<String>,
    /// The JSON patch of the host, exactly.
    patch: Option<Patch>,
    /// Part of the error of the call.
    error: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExpectedViolation {
    field: String,
    #[serde(default)]
    message: String,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExpectedSkip {
    controller: String,
    #[serde(default)]
    reason: String,
}

/// A parsed case.
#[derive(Debug)]
pub(super) struct Case {
    /// Settings, as JSON.
    pub(super) settings: String,
    /// The request.
    pub(super) request: PolicyRequest,
    expect: Expectation,
}

/// Reason why a document is not a case.
#[derive(Debug, thiserror::Error)]
pub(super) enum CaseError {
    /// A field is missing, unknown, or of the wrong type.
    #[error("it is not a case: a case has settings, request and expect; at {path:?}: {source}")]
    Form {
        /// The field.
        path: String,
        /// The problem.
        source: serde_json::Error,
    },
    /// Its request is invalid.
    #[error(transparent)]
    Request(#[from] PolicyRequestError),
    /// It expects nothing, so it would always pass.
    #[error(
        "its \"expect\" is empty, so that it could not fail; give one of answer, verdict, \
         violations, warnings, chosen, waits, rejects, patch and error"
    )]
    NothingExpected,
    /// It expects a field that answers of this world do not have.
    #[error("the answer of a {hook} guest has no field {field:?}")]
    OtherWorld {
        /// The world.
        hook: Hook,
        /// The field of `expect`.
        field: &'static str,
    },
}

/// Result of one case.
pub(super) struct Outcome {
    /// Name of its file without the extension.
    pub(super) name: String,
    /// Duration of the call.
    pub(super) time: Duration,
    /// The failures; empty if the case passed.
    pub(super) failures: Vec<String>,
}

impl Case {
    /// Parses a case for a policy of `hook`.
    pub(super) fn parse(hook: Hook, value: Value) -> Result<Self, CaseError> {
        let document: CaseDocument =
            serde_path_to_error::deserialize(value).map_err(|error| CaseError::Form {
                path: error.path().to_string(),
                source: error.into_inner(),
            })?;
        document.expect.check(hook)?;
        Ok(Self {
            settings: Value::Object(document.settings).to_string(),
            request: PolicyRequest::parse(hook, document.request)?,
            expect: document.expect,
        })
    }

    /// Returns all failures; empty if the case passes.
    pub(super) fn failures(
        &self,
        answer: &Result<Answer, GuestError>,
        verdict: &HostVerdict,
    ) -> Vec<String> {
        let mut failures = self.expect.verdict_failures(verdict);
        match (answer, &self.expect.error) {
            (Ok(answer), None) => failures.extend(self.expect.answer_failures(answer)),
            (Ok(answer), Some(expected)) => {
                failures.push(format!(
                    "expected error with {expected:?}, found {}",
                    json(answer)
                ));
            }
            (Err(error), Some(expected)) if explain(error).contains(expected.as_str()) => {}
            (Err(error), Some(expected)) => {
                failures.push(format!(
                    "expected error with {expected:?}, found {:?}",
                    explain(error)
                ));
            }
            // An expected verdict alone can be about a guest that fails.
            (Err(_), None) if self.expect.only_verdict() && failures.is_empty() => {}
            (Err(error), None) => failures.push(format!("no answer: {}", explain(error))),
        }
        failures
    }
}

impl Expectation {
    fn check(&self, hook: Hook) -> Result<(), CaseError> {
        if *self == Self::default() {
            return Err(CaseError::NothingExpected);
        }
        let only = |given: bool, field, hooks: &[Hook]| {
            if given && !hooks.contains(&hook) {
                return Err(CaseError::OtherWorld { hook, field });
            }
            Ok(())
        };
        let admission = [Hook::Defaulting, Hook::Validation];
        only(self.violations.is_some(), "violations", &admission)?;
        only(self.warnings.is_some(), "warnings", &admission)?;
        only(self.patch.is_some(), "patch", &[Hook::Defaulting])?;
        only(self.chosen.is_some(), "chosen", &[Hook::Placement])?;
        only(self.waits.is_some(), "waits", &[Hook::Placement])?;
        only(self.rejects.is_some(), "rejects", &[Hook::Placement])
    }

    fn only_verdict(&self) -> bool {
        *self
            == Self {
                verdict: self.verdict.clone(),
                ..Self::default()
            }
    }

    fn verdict_failures(&self, verdict: &HostVerdict) -> Vec<String> {
        let found = serde_json::json!(verdict);
        let mut failures = Vec::new();
        if let Some(expected) = &self.verdict
            && found["verdict"] != expected.as_str()
        {
            failures.push(format!("expected verdict {expected:?}, found {found}"));
        }
        if let Some(expected) = &self.patch {
            let none = Patch::default();
            let patch = match verdict {
                HostVerdict::Patched { patch } => Some(patch),
                HostVerdict::Allowed => Some(&none),
                _ => None,
            };
            if patch != Some(expected) {
                failures.push(format!("expected patch {}, found {found}", json(expected)));
            }
        }
        failures
    }

    fn answer_failures(&self, answer: &Answer) -> Vec<String> {
        let mut failures = Vec::new();
        let found = serde_json::json!(answer);
        if let Some(expected) = &self.answer
            && found != *expected
        {
            failures.push(format!("expected answer {expected}, found {found}"));
        }
        let warnings = match answer {
            Answer::Defaulting(Defaulting::Defaulted(defaulted)) => {
                failures.extend(self.violation_failures(&[]));
                &defaulted.warnings[..]
            }
            Answer::Defaulting(Defaulting::Refused { violations }) => {
                failures.extend(self.violation_failures(violations));
                &[]
            }
            Answer::Verdict(verdict) => {
                failures.extend(self.violation_failures(&verdict.violations));
                &verdict.warnings
            }
            Answer::Decision(decision) => {
                failures.extend(self.decision_failures(decision));
                &[]
            }
        };
        for expected in self.warnings.iter().flatten() {
            if !warnings.iter().any(|warning| warning.contains(expected)) {
                failures.push(format!(
                    "expected warning with {expected:?}, found {warnings:?}"
                ));
            }
        }
        failures
    }

    fn violation_failures(&self, found: &[Violation]) -> Vec<String> {
        let Some(expected) = &self.violations else {
            return Vec::new();
        };
        if expected.is_empty() && !found.is_empty() {
            return vec![format!("expected no violation, found {}", json(&found))];
        }
        let matches = |expected: &ExpectedViolation| {
            let mut found = found.iter();
            found.any(|one| one.field == expected.field && one.message.contains(&expected.message))
        };
        let missing = expected.iter().filter(|expected| !matches(expected));
        missing
            .map(|ExpectedViolation { field, message }| {
                format!(
                    "expected violation of {field:?} with {message:?}, found {}",
                    json(&found)
                )
            })
            .collect()
    }

    fn decision_failures(&self, decision: &Decision) -> Vec<String> {
        let found = json(decision);
        let mut failures = Vec::new();
        if let Some(expected) = &self.chosen
            && *decision != Decision::Try(expected.clone())
        {
            failures.push(format!("expected controller {expected:?}, found {found}"));
        }
        if let Some(expected) = &self.rejects
            && !matches!(decision, Decision::Reject(reason) if reason.contains(expected))
        {
            failures.push(format!(
                "expected rejection with {expected:?}, found {found}"
            ));
        }
        if let Some(expected) = &self.waits {
            let Decision::Wait(passed) = decision else {
                failures.push(format!("expected to wait, found {found}"));
                return failures;
            };
            for ExpectedSkip { controller, reason } in expected {
                let matches =
                    |one: &PassedOver| one.controller == *controller && one.reason.contains(reason);
                if !passed.iter().any(matches) {
                    failures.push(format!(
                        "expected {controller:?} to be skipped with {reason:?}, found {found}"
                    ));
                }
            }
        }
        failures
    }
}

fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).expect("an answer has only keys that are text")
}

#[cfg(test)]
mod tests;
