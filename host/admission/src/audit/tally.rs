//! Pure: the outcomes of all existing objects, as the status of the policy in mode Shadow.

use ipu_api::ipupolicy::{ExistingObjects, RefusedObject};
use ipu_text::sanitize;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::outcome::{ObjectName, Outcome};

/// Most samples in a status.
const SAMPLES: usize = 10;

/// Longest message of a sample, in bytes.
const MESSAGE: usize = 256;

/// The outcomes so far.
#[derive(Debug, Default)]
pub struct Tally {
    reviewed: i64,
    refused: i64,
    failed: i64,
    samples: Vec<RefusedObject>,
}

impl Tally {
    /// Adds the outcome of one object.
    pub fn add(&mut self, object: ObjectName, outcome: Outcome) {
        match outcome {
            Outcome::Allowed => self.reviewed += 1,
            Outcome::Refused(violations) => {
                self.reviewed += 1;
                self.refused += 1;
                if self.samples.len() < SAMPLES {
                    let mut messages = violations
                        .iter()
                        .map(|violation| format!("{}: {}", violation.field, violation.message));
                    let message = messages.next().unwrap_or_default();
                    self.samples.push(RefusedObject {
                        kind: object.kind.to_owned(),
                        namespace: object.namespace,
                        name: object.name,
                        message: sanitize(&message, MESSAGE),
                    });
                }
            }
            Outcome::Failed(_) => self.failed += 1,
            Outcome::NotMatched | Outcome::OnlyAtUpdates => {}
        }
    }

    /// Returns the status of the version of this generation, whose review has ended.
    pub fn ended(self, generation: i64, now: Timestamp) -> ExistingObjects {
        ExistingObjects {
            generation,
            reviewed: self.reviewed,
            refused: self.refused,
            failed: self.failed,
            samples: self.samples,
            // The API server keeps whole seconds.
            at: Time(Timestamp::from_second(now.as_second()).unwrap_or(now)),
        }
    }
}

#[cfg(test)]
mod tests {
    use ipu_api::guest::admission::Violation;

    use super::*;

    fn job(number: usize) -> ObjectName {
        ObjectName {
            api_version: "graphcore.ai/v1alpha1".to_owned(),
            kind: "IPUJob",
            namespace: "team".to_owned(),
            name: format!("job-{number}"),
            uid: format!("uid-{number}"),
        }
    }

    fn refused(message: &str) -> Outcome {
        let violation = |field: &str| Violation {
            field: field.to_owned(),
            message: message.to_owned(),
        };
        Outcome::Refused(vec![
            violation("spec.ipusPerJobInstance"),
            violation("spec"),
        ])
    }

    #[test]
    fn every_answer_counts_and_objects_without_a_call_do_not() {
        let mut tally = Tally::default();
        for (number, outcome) in [
            refused("is more than 16"),
            Outcome::Allowed,
            Outcome::NotMatched,
            Outcome::OnlyAtUpdates,
            Outcome::Failed("the deadline of 1 s passed".to_owned()),
        ]
        .into_iter()
        .enumerate()
        {
            tally.add(job(number), outcome);
        }
        let ended = tally.ended(3, Timestamp::UNIX_EPOCH);
        let counts = (ended.reviewed, ended.refused, ended.failed);
        assert_eq!((ended.generation, counts), (3, (2, 1, 1)));
        let expected = RefusedObject {
            kind: "IPUJob".to_owned(),
            namespace: "team".to_owned(),
            name: "job-0".to_owned(),
            message: "spec.ipusPerJobInstance: is more than 16".to_owned(),
        };
        assert_eq!(ended.samples, [expected]);
    }

    #[test]
    fn samples_are_few_short_and_plain() {
        let mut tally = Tally::default();
        for number in 0..40 {
            tally.add(
                job(number),
                refused(&format!("\u{1b}[2J{}", "é".repeat(4_000))),
            );
        }
        let ended = tally.ended(1, Timestamp::UNIX_EPOCH);
        assert_eq!((ended.refused, ended.samples.len()), (40, SAMPLES));
        let message = &ended.samples[9].message;
        assert!(
            message.len() <= MESSAGE && !message.contains('\u{1b}'),
            "{message}"
        );
    }
}
