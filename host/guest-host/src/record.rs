//! Pure: the record of a request and its answer, one JSON object a line, without the values of
//! environment variables.
//!
//! Labels, annotations and command lines stay, because guests decide by them.

use ipu_api::guest::admission::{Defaulting, Violation};
use ipu_api::guest::digest::ModuleDigest;
use ipu_api::ipupolicy::Hook;
use ipu_runtime::bounded_json::{self, BoundedJsonError, Budget};
use ipu_text::redaction::Values;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::policy_request::{Answer, PolicyRequest, PolicyRequestError};
use super::world_name;

/// Longest line, in bytes: an update with two objects, and an answer with a third.
pub const LONGEST: u64 = 16 << 20;

/// Limits of a parsed line: three objects, and some more levels.
const BUDGET: Budget = Budget {
    memory: 96 << 20,
    depth: 110,
};

/// One request to a guest, and its answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// The hook of the policy.
    #[serde(with = "world_name")]
    pub hook: Hook,
    /// The redacted request.
    pub request: Value,
    /// The answer or the error.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// Digest of the component.
    pub digest: ModuleDigest,
}

/// The answer of a guest, or its error.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// The redacted answer.
    Answer(Value),
    /// The redacted error.
    Error(String),
}

/// Reason why a line is not a record.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// It exceeds the limits.
    #[error("it {0}")]
    Large(#[source] BoundedJsonError),
    /// It is not a record.
    #[error("it is not a record: a record has hook, request, answer or error, and digest")]
    Form(#[source] serde_json::Error),
    /// Its request is invalid.
    #[error(transparent)]
    Request(#[from] PolicyRequestError),
}

impl Record {
    /// Records a request and its answer, or the error with its causes.
    pub fn of(
        request: &PolicyRequest,
        answer: &Result<Answer, String>,
        digest: ModuleDigest,
    ) -> Self {
        let mut redacted = json!(request);
        let mut values = Values::default();
        values.redact_object(&mut redacted);
        Self {
            hook: request.hook(),
            request: redacted,
            outcome: outcome(answer, &mut values),
            digest,
        }
    }

    /// Parses a line.
    pub fn parse(line: &str) -> Result<(Self, PolicyRequest), RecordError> {
        match bounded_json::measure(line.as_bytes(), BUDGET) {
            Ok(_) | Err(BoundedJsonError::NotJson(_)) => {}
            Err(why) => return Err(RecordError::Large(why)),
        }
        let record: Self = serde_json::from_str(line).map_err(RecordError::Form)?;
        let request = PolicyRequest::parse(record.hook, record.request.clone())?;
        Ok((record, request))
    }

    /// Returns the record as a line, with a newline.
    pub fn line(&self) -> String {
        let mut line = json!(self).to_string();
        line.push('\n');
        line
    }
}

/// Redacts an answer. `values` are the redacted values of its request.
fn outcome(answer: &Result<Answer, String>, values: &mut Values) -> Outcome {
    match answer {
        Ok(Answer::Defaulting(Defaulting::Defaulted(defaulted))) => {
            let mut object = defaulted.object.clone();
            values.redact_object(&mut object);
            let warnings = defaulted.warnings.iter();
            let warnings: Vec<_> = warnings.map(|text| values.redact(text)).collect();
            Outcome::Answer(json!({ "object": object, "warnings": warnings }))
        }
        Ok(Answer::Defaulting(Defaulting::Refused { violations })) => {
            let violations = redacted(violations, values);
            Outcome::Answer(json!({ "violations": violations }))
        }
        Ok(Answer::Verdict(verdict)) => {
            let mut verdict = verdict.clone();
            verdict.violations = redacted(&verdict.violations, values);
            for warning in &mut verdict.warnings {
                *warning = values.redact(warning);
            }
            Outcome::Answer(json!(verdict))
        }
        Ok(Answer::Decision(decision)) => Outcome::Answer(json!(decision)),
        Err(error) => Outcome::Error(values.redact(error)),
    }
}

fn redacted(violations: &[Violation], values: &mut Values) -> Vec<Violation> {
    let redacted = violations.iter().map(|violation| Violation {
        field: violation.field.clone(),
        message: values.redact(&violation.message),
    });
    redacted.collect()
}

#[cfg(test)]
mod tests {
    use ipu_api::guest::admission::{Defaulted, Verdict};
    use ipu_text::redaction::LAST_APPLIED;

    use super::*;
    use crate::samples;

    const SECRET: &str = "hunter2-hunter2";

    fn object() -> Value {
        let env = json!([
            {"name": "TOKEN", "value": SECRET},
            {"name": "LEVEL", "value": "3"},
            {"name": "FROM", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
            SECRET.len(),
        ]);
        let template = json!({"spec": {"containers": [{"name": "worker", "env": env}]}});
        let mut object = json!({
            "metadata": {"labels": {"team": "vision"}, "annotations": {"note": "stays"}},
            "spec": {"workers": {"template": template}},
        });
        let applied = object.to_string();
        object["metadata"]["annotations"][LAST_APPLIED] = json!(applied);
        object
    }

    fn request(hook: Hook) -> PolicyRequest {
        let request = json!({"operation": "update", "object": object(), "oldObject": object()});
        PolicyRequest::parse(hook, request).unwrap()
    }

    fn digest() -> ModuleDigest {
        ModuleDigest::new("sha256:77")
    }

    #[test]
    fn no_value_of_an_environment_variable_is_recorded() {
        let violation = Violation {
            field: "spec".to_owned(),
            message: format!("the token {SECRET} is weak at level 3"),
        };
        let answers = [
            Ok(Answer::Verdict(Verdict {
                violations: vec![violation.clone()],
                warnings: vec![SECRET.to_owned()],
            })),
            Ok(Answer::Defaulting(Defaulting::Defaulted(Defaulted {
                object: object(),
                warnings: vec![format!("see {SECRET}")],
            }))),
            Ok(Answer::Defaulting(Defaulting::Refused {
                violations: vec![violation],
            })),
            Err(format!("no {SECRET}")),
        ];
        for answer in answers {
            let record = Record::of(&request(Hook::Validation), &answer, digest());
            let line = record.line();
            assert!(!line.contains(SECRET), "{line}");
            assert!(
                line.contains("secretKeyRef") && line.contains("vision"),
                "{line}"
            );
            assert!(line.contains("stays"), "{line}");
        }
    }

    #[test]
    fn a_changed_value_is_still_a_change() {
        let mut changed = object();
        changed["spec"]["workers"]["template"]["spec"]["containers"][0]["env"][1]["value"] =
            json!("4");
        let request = json!({"operation": "update", "object": changed, "oldObject": object()});
        let asked = PolicyRequest::parse(Hook::Validation, request).unwrap();
        let record = Record::of(&asked, &Err(String::new()), digest());
        assert_ne!(
            record.request["object"]["spec"],
            record.request["oldObject"]["spec"]
        );
    }

    #[test]
    fn a_broken_copy_of_the_object_is_left_out_whole() {
        let mut broken = request(Hook::Defaulting);
        let PolicyRequest::Defaulting(admission) = &mut broken else {
            panic!("it is for defaulting");
        };
        admission.object["metadata"]["annotations"][LAST_APPLIED] = json!(format!("{{{SECRET}"));
        let record = Record::of(&broken, &Err(String::new()), digest());
        assert!(!record.line().contains(SECRET));
        insta::assert_json_snapshot!(record);
    }

    #[test]
    fn a_record_survives_a_round_trip() {
        for hook in Hook::ALL {
            let request = samples::request(hook);
            let record = Record::of(&request, &Err("late".to_owned()), digest());
            let (read, asked) = Record::parse(&record.line()).unwrap();
            assert_eq!((&read, &asked), (&record, &request));
        }
        let once = Record::of(&request(Hook::Validation), &Err(String::new()), digest());
        let (_, redacted) = Record::parse(&once.line()).unwrap();
        let twice = Record::of(&redacted, &Err(String::new()), digest());
        assert_eq!(once, twice);
    }

    #[test]
    fn an_invalid_line_is_refused_with_the_reason() {
        for (line, expected) in [
            ("", "it is not a record"),
            ("{}", "it is not a record"),
            (
                r#"{"hook":"placement","request":{},"answer":{},"digest":"sha256:1"}"#,
                "no request to a placement guest",
            ),
            (
                &format!(
                    r#"{{"hook":"validation","request":[{}0]}}"#,
                    r#"{"":0},"#.repeat(1 << 18)
                ),
                "it has so many members",
            ),
        ] {
            let error = Record::parse(line).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
