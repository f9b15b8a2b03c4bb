//! Pure: the record of a request and its answer, one JSON object for each line, without the values
//! of environment variables.
//!
//! Labels and annotations stay, since policies decide by them; so do command lines.

use ipu_runtime::bounded_json::{self, BoundedJsonError, Budget};
use ipu_text::redaction::Values;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::model::{Defaulting, ModuleDigest, Slot, Violation};
use super::question::{Answer, Question, QuestionError};

/// Longest line that is read, in bytes: an update of two objects, and an answer with a third.
pub const LONGEST: u64 = 16 << 20;

/// What such a line may be as a tree: two objects and a third, some levels deeper than they are.
const BUDGET: Budget = Budget {
    memory: 96 << 20,
    depth: 110,
};

/// One request to a policy, and what it answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// Where the policy decides.
    pub hook: Slot,
    /// The request, redacted; of the form that the hook's requests have.
    pub request: Value,
    /// What came of it.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// The component that was asked.
    pub digest: ModuleDigest,
}

/// What a policy made of a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// Its answer, redacted.
    Answer(Value),
    /// Why it gave none, redacted.
    Error(String),
}

/// Why a line is no record.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// It would take too much memory.
    #[error("it {0}")]
    Large(#[source] BoundedJsonError),
    /// It is no record.
    #[error("it is no record, which has hook, request, answer or error, and digest")]
    Form(#[source] serde_json::Error),
    /// Its request is none.
    #[error(transparent)]
    Request(#[from] QuestionError),
}

impl Record {
    /// The record of a request and its answer; the error is told with its causes.
    pub fn of(question: &Question, answer: &Result<Answer, String>, digest: ModuleDigest) -> Self {
        let mut request = json!(question);
        let mut values = Values::default();
        values.take_from(&mut request);
        Self {
            hook: question.slot(),
            request,
            outcome: outcome(answer, &mut values),
            digest,
        }
    }

    /// Reads a line.
    pub fn parse(line: &str) -> Result<(Self, Question), RecordError> {
        match bounded_json::measure(line.as_bytes(), BUDGET) {
            Ok(_) | Err(BoundedJsonError::NotJson(_)) => {}
            Err(why) => return Err(RecordError::Large(why)),
        }
        let record: Self = serde_json::from_str(line).map_err(RecordError::Form)?;
        let question = Question::parse(record.hook, record.request.clone())?;
        Ok((record, question))
    }

    /// The record as a line, with its end.
    pub fn line(&self) -> String {
        let mut line = json!(self).to_string();
        line.push('\n');
        line
    }
}

/// What is recorded of an answer; `values` are those that were redacted in its request.
fn outcome(answer: &Result<Answer, String>, values: &mut Values) -> Outcome {
    match answer {
        Ok(Answer::Defaulting(Defaulting::Defaulted(defaulted))) => {
            let mut object = defaulted.object.clone();
            values.take_from(&mut object);
            let warnings = defaulted.warnings.iter();
            let warnings: Vec<_> = warnings.map(|text| values.told(text)).collect();
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
                *warning = values.told(warning);
            }
            Outcome::Answer(json!(verdict))
        }
        Ok(Answer::Decision(decision)) => Outcome::Answer(json!(decision)),
        Err(error) => Outcome::Error(values.told(error)),
    }
}

fn redacted(violations: &[Violation], values: &mut Values) -> Vec<Violation> {
    let redacted = violations.iter().map(|violation| Violation {
        field: violation.field.clone(),
        message: values.told(&violation.message),
    });
    redacted.collect()
}

#[cfg(test)]
mod tests {
    use ipu_text::redaction::LAST_APPLIED;

    use super::*;
    use crate::model::{Defaulted, Verdict};
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

    fn question(slot: Slot) -> Question {
        let request = json!({"operation": "update", "object": object(), "oldObject": object()});
        Question::parse(slot, request).unwrap()
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
            let record = Record::of(&question(Slot::Validation), &answer, digest());
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
        let asked = Question::parse(Slot::Validation, request).unwrap();
        let record = Record::of(&asked, &Err(String::new()), digest());
        assert_ne!(
            record.request["object"]["spec"],
            record.request["oldObject"]["spec"]
        );
    }

    #[test]
    fn a_broken_copy_of_the_object_is_left_out_whole() {
        let mut broken = question(Slot::Defaulting);
        let Question::Defaulting(admission) = &mut broken else {
            panic!("it is for defaulting");
        };
        admission.object["metadata"]["annotations"][LAST_APPLIED] = json!(format!("{{{SECRET}"));
        let record = Record::of(&broken, &Err(String::new()), digest());
        assert!(!record.line().contains(SECRET));
        insta::assert_json_snapshot!(record);
    }

    #[test]
    fn a_record_reads_back_and_changes_no_more() {
        for slot in Slot::ALL {
            let question = samples::question(slot);
            let record = Record::of(&question, &Err("late".to_owned()), digest());
            let (read, asked) = Record::parse(&record.line()).unwrap();
            assert_eq!((&read, &asked), (&record, &question));
        }
        let once = Record::of(&question(Slot::Validation), &Err(String::new()), digest());
        let (_, redacted) = Record::parse(&once.line()).unwrap();
        let twice = Record::of(&redacted, &Err(String::new()), digest());
        assert_eq!(once, twice);
    }

    #[test]
    fn what_is_no_record_is_told_why() {
        for (line, expected) in [
            ("", "it is no record"),
            ("{}", "it is no record"),
            (
                r#"{"hook":"placement","request":{},"answer":{},"digest":"sha256:1"}"#,
                "no request to a placement policy",
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
