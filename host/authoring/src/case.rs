//! Pure: a case of `policy test`: a request, and what must come of it.

use ipu_guest_host::GuestError;
use ipu_guest_host::model::{Decision, Defaulting, PassedOver, Slot, Violation};
use ipu_guest_host::question::{Answer, Question, QuestionError};
use ipu_text::explain;
use json_patch::Patch;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::ruling::Ruling;

/// One case, as it stands in its file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default)]
    settings: Map<String, Value>,
    request: Value,
    expect: Expectation,
}

/// What must come of a request; what is not given may be anything.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Expectation {
    /// The whole answer, exactly.
    answer: Option<Value>,
    /// The host's verdict: allowed, patched, refused, failed, followed, overruled, notAsked.
    verdict: Option<String>,
    /// Violations that must be among those of the answer; a message is part of the one there.
    violations: Option<Vec<Wanted>>,
    /// Sentences that must be part of warnings.
    warnings: Option<Vec<String>>,
    /// The controller that the policy itself chooses.
    chosen: Option<String>,
    /// Controllers that it passes over, with part of the reason; it must wait.
    waits: Option<Vec<Passed>>,
    /// Part of the reason for which it rejects the request.
    rejects: Option<String>,
    /// The JSON patch that the host makes of the answer, exactly.
    patch: Option<Patch>,
    /// Part of the error that the call must end with.
    error: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    field: String,
    #[serde(default)]
    message: String,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Passed {
    controller: String,
    #[serde(default)]
    reason: String,
}

/// A case that was read.
#[derive(Debug)]
pub(super) struct Case {
    /// Settings, as JSON.
    pub(super) settings: String,
    /// What is asked.
    pub(super) question: Question,
    expect: Expectation,
}

/// Why a document is no case.
#[derive(Debug, thiserror::Error)]
pub(super) enum CaseError {
    /// A field is missing, unknown, or of the wrong type.
    #[error("it is no case, which has settings, request and expect: at {path:?}: {source}")]
    Form {
        /// The field.
        path: String,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// Its request is none.
    #[error(transparent)]
    Request(#[from] QuestionError),
    /// It would pass whatever is answered.
    #[error(
        "its \"expect\" is empty, so that it could not fail; give one of answer, verdict, \
         violations, warnings, chosen, waits, rejects, patch and error"
    )]
    NothingExpected,
    /// It expects what a policy of this world cannot answer.
    #[error("a {slot} policy has no {field:?} that could be expected")]
    OtherWorld {
        /// The world.
        slot: Slot,
        /// The field of `expect`.
        field: &'static str,
    },
}

impl Case {
    /// Reads a case for a policy of `slot`.
    pub(super) fn parse(slot: Slot, document: Value) -> Result<Self, CaseError> {
        let written: Written =
            serde_path_to_error::deserialize(document).map_err(|error| CaseError::Form {
                path: error.path().to_string(),
                source: error.into_inner(),
            })?;
        written.expect.check(slot)?;
        Ok(Self {
            settings: Value::Object(written.settings).to_string(),
            question: Question::parse(slot, written.request)?,
            expect: written.expect,
        })
    }

    /// Everything that is not as it should be; empty where the case passes.
    pub(super) fn failures(
        &self,
        answer: &Result<Answer, GuestError>,
        ruling: &Ruling,
    ) -> Vec<String> {
        let mut failures = self.expect.of_ruling(ruling);
        match (answer, &self.expect.error) {
            (Ok(answer), None) => failures.extend(self.expect.of_answer(answer)),
            (Ok(answer), Some(wanted)) => {
                failures.push(format!(
                    "expected error with {wanted:?}, found {}",
                    json(answer)
                ));
            }
            (Err(error), Some(wanted)) if explain(error).contains(wanted.as_str()) => {}
            (Err(error), Some(wanted)) => {
                failures.push(format!(
                    "expected error with {wanted:?}, found {:?}",
                    explain(error)
                ));
            }
            // A verdict alone may be about a policy that fails.
            (Err(_), None) if self.expect.only_verdict() && failures.is_empty() => {}
            (Err(error), None) => failures.push(format!("no answer: {}", explain(error))),
        }
        failures
    }
}

impl Expectation {
    fn check(&self, slot: Slot) -> Result<(), CaseError> {
        if *self == Self::default() {
            return Err(CaseError::NothingExpected);
        }
        let only = |given: bool, field, slots: &[Slot]| {
            if given && !slots.contains(&slot) {
                return Err(CaseError::OtherWorld { slot, field });
            }
            Ok(())
        };
        let admission = [Slot::Defaulting, Slot::Validation];
        only(self.violations.is_some(), "violations", &admission)?;
        only(self.warnings.is_some(), "warnings", &admission)?;
        only(self.patch.is_some(), "patch", &[Slot::Defaulting])?;
        only(self.chosen.is_some(), "chosen", &[Slot::Placement])?;
        only(self.waits.is_some(), "waits", &[Slot::Placement])?;
        only(self.rejects.is_some(), "rejects", &[Slot::Placement])
    }

    fn only_verdict(&self) -> bool {
        *self
            == Self {
                verdict: self.verdict.clone(),
                ..Self::default()
            }
    }

    fn of_ruling(&self, ruling: &Ruling) -> Vec<String> {
        let found = serde_json::json!(ruling);
        let mut failures = Vec::new();
        if let Some(wanted) = &self.verdict
            && found["verdict"] != wanted.as_str()
        {
            failures.push(format!("expected verdict {wanted:?}, found {found}"));
        }
        if let Some(wanted) = &self.patch {
            let none = Patch::default();
            let patch = match ruling {
                Ruling::Patched { patch } => Some(patch),
                Ruling::Allowed => Some(&none),
                _ => None,
            };
            if patch != Some(wanted) {
                failures.push(format!("expected patch {}, found {found}", json(wanted)));
            }
        }
        failures
    }

    fn of_answer(&self, answer: &Answer) -> Vec<String> {
        let mut failures = Vec::new();
        let found = serde_json::json!(answer);
        if let Some(wanted) = &self.answer
            && found != *wanted
        {
            failures.push(format!("expected answer {wanted}, found {found}"));
        }
        let warnings = match answer {
            Answer::Defaulting(Defaulting::Defaulted(defaulted)) => {
                failures.extend(self.of_violations(&[]));
                &defaulted.warnings[..]
            }
            Answer::Defaulting(Defaulting::Refused { violations }) => {
                failures.extend(self.of_violations(violations));
                &[]
            }
            Answer::Verdict(verdict) => {
                failures.extend(self.of_violations(&verdict.violations));
                &verdict.warnings
            }
            Answer::Decision(decision) => {
                failures.extend(self.of_decision(decision));
                &[]
            }
        };
        for wanted in self.warnings.iter().flatten() {
            if !warnings.iter().any(|warning| warning.contains(wanted)) {
                failures.push(format!(
                    "expected warning with {wanted:?}, found {warnings:?}"
                ));
            }
        }
        failures
    }

    fn of_violations(&self, found: &[Violation]) -> Vec<String> {
        let Some(wanted) = &self.violations else {
            return Vec::new();
        };
        if wanted.is_empty() && !found.is_empty() {
            return vec![format!("expected no violation, found {}", json(&found))];
        }
        let is = |wanted: &Wanted| {
            let mut found = found.iter();
            found.any(|one| one.field == wanted.field && one.message.contains(&wanted.message))
        };
        let missing = wanted.iter().filter(|wanted| !is(wanted));
        missing
            .map(|Wanted { field, message }| {
                format!(
                    "expected violation of {field:?} with {message:?}, found {}",
                    json(&found)
                )
            })
            .collect()
    }

    fn of_decision(&self, decision: &Decision) -> Vec<String> {
        let found = json(decision);
        let mut failures = Vec::new();
        if let Some(wanted) = &self.chosen
            && *decision != Decision::Try(wanted.clone())
        {
            failures.push(format!("expected controller {wanted:?}, found {found}"));
        }
        if let Some(wanted) = &self.rejects
            && !matches!(decision, Decision::Reject(reason) if reason.contains(wanted))
        {
            failures.push(format!("expected rejection with {wanted:?}, found {found}"));
        }
        if let Some(wanted) = &self.waits {
            let Decision::Wait(passed) = decision else {
                failures.push(format!("expected to wait, found {found}"));
                return failures;
            };
            for Passed { controller, reason } in wanted {
                let is =
                    |one: &PassedOver| one.controller == *controller && one.reason.contains(reason);
                if !passed.iter().any(is) {
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
