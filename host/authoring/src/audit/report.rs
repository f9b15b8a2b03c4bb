//! Pure: the findings of an audit, and their numbers.

use std::collections::BTreeMap;

use ipu_admission::audit::{ObjectName, Outcome};

use super::AuditError;
use super::served::Served;

/// Numbers of objects by their outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Objects without a violation.
    pub(super) allowed: usize,
    /// Objects with violations.
    pub(super) refused: usize,
    /// Objects for which the operator would not call the guest.
    pub(super) not_matched: usize,
    /// Number of these for which it calls the guest at updates alone.
    pub(super) only_at_updates: usize,
    /// Objects without an answer.
    pub(super) failed: usize,
}

/// The kind of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finding {
    /// The guest would refuse the object.
    Violation,
    /// There is no answer about the object.
    Failure,
}

/// One line of the report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// The object.
    pub(super) object: ObjectName,
    /// The kind of the finding.
    pub(super) finding: Finding,
    /// Path of the field. `None` for a failure.
    pub(super) field: Option<String>,
    /// The message of the guest, or the reason of the failure.
    pub(super) message: String,
}

/// A list that the user may not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unlisted {
    /// The resource.
    pub(super) resource: &'static str,
    /// The namespace. `None`: the namespaces are not known either.
    pub(super) namespace: Option<String>,
}

/// All findings of an audit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Report {
    /// Name of the policy.
    pub(super) policy: String,
    /// Digest of its component.
    pub(super) digest: String,
    /// The findings, in the order of the lists.
    pub(super) lines: Vec<Line>,
    /// The numbers of objects, by their namespace.
    pub(super) namespaces: BTreeMap<String, Counts>,
    /// The lists that the user may not read.
    pub(super) unlisted: Vec<Unlisted>,
    /// The audited namespaces.
    pub(super) audited: Served,
}

impl Report {
    /// The report of a policy before the first object.
    pub(super) fn of(policy: String, digest: String, audited: Served) -> Self {
        Self {
            policy,
            digest,
            audited,
            ..Self::default()
        }
    }

    /// Adds the outcome for an object.
    pub(super) fn add(&mut self, object: ObjectName, outcome: Outcome) {
        let counts = self.namespaces.entry(object.namespace.clone());
        let counts = counts.or_default();
        match outcome {
            Outcome::Allowed => counts.allowed += 1,
            Outcome::NotMatched => counts.not_matched += 1,
            Outcome::OnlyAtUpdates => {
                counts.not_matched += 1;
                counts.only_at_updates += 1;
            }
            Outcome::Refused(violations) => {
                counts.refused += 1;
                self.lines
                    .extend(violations.into_iter().map(|violation| Line {
                        object: object.clone(),
                        finding: Finding::Violation,
                        field: Some(violation.field),
                        message: violation.message,
                    }));
            }
            Outcome::Failed(message) => {
                counts.failed += 1;
                self.lines.push(Line {
                    object,
                    finding: Finding::Failure,
                    field: None,
                    message,
                });
            }
        }
    }

    /// Returns the numbers of all objects.
    pub(super) fn total(&self) -> Counts {
        let counts = self.namespaces.values().copied();
        counts.reduce(Counts::plus).unwrap_or_default()
    }

    /// Returns whether the audit fails: an object would be refused, or not every object was judged.
    pub(super) fn conclusion(&self) -> Result<(), AuditError> {
        let total = self.total();
        if total.refused > 0 {
            return Err(AuditError::Refused {
                refused: total.refused,
                objects: total.objects(),
            });
        }
        if total.failed > 0 || !self.unlisted.is_empty() {
            return Err(AuditError::Incomplete {
                failed: total.failed,
                unlisted: self.unlisted.len(),
            });
        }
        Ok(())
    }
}

impl Counts {
    /// Returns the number of objects.
    pub(super) fn objects(self) -> usize {
        self.allowed + self.refused + self.not_matched + self.failed
    }

    fn plus(self, other: Self) -> Self {
        Self {
            allowed: self.allowed + other.allowed,
            refused: self.refused + other.refused,
            not_matched: self.not_matched + other.not_matched,
            only_at_updates: self.only_at_updates + other.only_at_updates,
            failed: self.failed + other.failed,
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use ipu_api::guest::admission::Violation;

    use super::*;

    /// An object of this kind.
    pub(in crate::audit) fn object(kind: &'static str, namespace: &str, name: &str) -> ObjectName {
        let api_version = match kind {
            "Pod" => "v1",
            _ => "graphcore.ai/v1alpha1",
        };
        ObjectName {
            api_version: api_version.to_owned(),
            kind,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            uid: format!("uid-of-{name}"),
        }
    }

    /// A violation at a field.
    pub(in crate::audit) fn violation(field: &str, message: &str) -> Violation {
        Violation {
            field: field.to_owned(),
            message: message.to_owned(),
        }
    }

    /// A report with every outcome.
    pub(in crate::audit) fn report() -> Report {
        let audited = ["team-a", "team-b", "team-c"].map(str::to_owned);
        let audited = Served::Namespaces(audited.into());
        let mut report = Report::of("require-team".to_owned(), "sha256:1".to_owned(), audited);
        let both = vec![
            violation("metadata.labels.team", "name your team"),
            violation("spec.ipusPerJobInstance", "\"64\" is more than 16"),
        ];
        let one = vec![violation(
            "metadata.annotations[graphcore.ai/ipu]",
            "is more than 16",
        )];
        for (object, outcome) in [
            (object("IPUJob", "team-a", "mnist"), Outcome::Refused(both)),
            (object("IPUJob", "team-a", "bert"), Outcome::Allowed),
            (
                object("IPUJob", "team-b", "large"),
                Outcome::Failed("the deadline of 1 s passed".to_owned()),
            ),
            (object("IPUJob", "team-b", "other"), Outcome::NotMatched),
            (object("IPUJob", "team-b", "sealed"), Outcome::OnlyAtUpdates),
            (object("Pod", "team-a", "web"), Outcome::Refused(one)),
        ] {
            report.add(object, outcome);
        }
        report.unlisted = vec![
            Unlisted {
                resource: "pods",
                namespace: Some("team-c".to_owned()),
            },
            Unlisted {
                resource: "pods",
                namespace: None,
            },
        ];
        report
    }

    #[test]
    fn every_object_counts_once() {
        let report = report();
        let expected = Counts {
            allowed: 1,
            refused: 2,
            not_matched: 2,
            only_at_updates: 1,
            failed: 1,
        };
        assert_eq!(report.total(), expected);
        assert_eq!(report.total().objects(), 6);
        assert_eq!(report.namespaces["team-b"].objects(), 3);
        assert_eq!(report.lines.len(), 4);
    }

    #[test]
    fn a_refusal_takes_precedence_over_a_missing_answer() {
        let conclusion = |outcomes: Vec<Outcome>, unlisted: Vec<Unlisted>| {
            let mut report = Report::default();
            for outcome in outcomes {
                report.add(object("IPUJob", "a", "b"), outcome);
            }
            report.unlisted = unlisted;
            report.conclusion()
        };
        let refused = Outcome::Refused(vec![violation("spec", "no")]);
        let failed = Outcome::Failed("late".to_owned());
        let hidden = Unlisted {
            resource: "pods",
            namespace: None,
        };
        assert!(conclusion(vec![], vec![]).is_ok());
        assert!(conclusion(vec![Outcome::Allowed, Outcome::NotMatched], vec![]).is_ok());
        assert!(matches!(
            conclusion(vec![refused, failed.clone()], vec![hidden.clone()]),
            Err(AuditError::Refused {
                refused: 1,
                objects: 2
            })
        ));
        for (outcomes, unlisted) in [(vec![failed], vec![]), (vec![], vec![hidden])] {
            let result = conclusion(outcomes, unlisted);
            assert!(
                matches!(result, Err(AuditError::Incomplete { .. })),
                "{result:?}"
            );
        }
    }
}
