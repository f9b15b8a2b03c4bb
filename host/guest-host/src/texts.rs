//! Pure: sanitizes the texts in the answers and errors of guests. Every answer passes through it.

use ipu_api::guest::admission::{Verdict, Violation};
use ipu_api::guest::placement::{Decision, PassedOver};
use ipu_text::{explain, sanitize};

use super::bindings::DefaultingText;
use super::guest_error::GuestError;

/// Longest message for the user, in bytes: a violation, a rejection, an error about settings.
pub const MESSAGE: usize = 1024;

/// Longest path of a field, in bytes.
pub const FIELD: usize = 253;

/// Most violations of one answer.
pub const VIOLATIONS: usize = 32;

/// Longest warning, in bytes. API servers cut longer ones.
pub const WARNING: usize = 256;

/// Most warnings of one answer. API servers cut all warnings of a request at 4,096 bytes.
pub const WARNINGS: usize = 16;

/// Longest reason of a wait, in bytes.
pub const REASON: usize = 512;

/// Longest name of a controller, in bytes: a DNS name and a port.
pub const CONTROLLER: usize = 320;

/// An answer of a guest, as copied from its memory.
pub(super) trait FromGuest {
    /// Returns the size of all its texts, in bytes.
    fn size(&self) -> usize;

    /// Returns the answer with sanitized texts.
    fn sanitized(self) -> Self;
}

impl FromGuest for () {
    fn size(&self) -> usize {
        0
    }

    fn sanitized(self) -> Self {}
}

impl FromGuest for DefaultingText {
    fn size(&self) -> usize {
        match self {
            Self::Defaulted { object, warnings } => object.len() + length(warnings),
            Self::Refused(violations) => size_of_all(violations),
        }
    }

    fn sanitized(self) -> Self {
        match self {
            Self::Defaulted {
                object,
                warnings: texts,
            } => Self::Defaulted {
                object,
                warnings: warnings(&texts),
            },
            Self::Refused(violations) => Self::Refused(bounded(&violations)),
        }
    }
}

impl FromGuest for Verdict {
    fn size(&self) -> usize {
        size_of_all(&self.violations) + length(&self.warnings)
    }

    fn sanitized(self) -> Self {
        Self {
            violations: bounded(&self.violations),
            warnings: warnings(&self.warnings),
        }
    }
}

impl FromGuest for Decision {
    fn size(&self) -> usize {
        match self {
            Self::Try(text) | Self::Reject(text) => text.len(),
            Self::Wait(reasons) => reasons
                .iter()
                .map(|passed| passed.controller.len() + passed.reason.len())
                .sum(),
        }
    }

    /// A name that sanitizing changes is not the name of a controller, and does not become one.
    fn sanitized(self) -> Self {
        match self {
            Self::Try(name) => Self::Try(sanitize(&name, CONTROLLER)),
            Self::Reject(why) => Self::Reject(sanitize(&why, MESSAGE)),
            Self::Wait(passed_over) => Self::Wait(
                passed_over
                    .iter()
                    .map(|passed| PassedOver {
                        controller: sanitize(&passed.controller, CONTROLLER),
                        reason: sanitize(&passed.reason, REASON),
                    })
                    .collect(),
            ),
        }
    }
}

/// Returns at most [`VIOLATIONS`] violations, and one with the number of the others.
pub fn bounded(violations: &[Violation]) -> Vec<Violation> {
    let more = violations.len().saturating_sub(VIOLATIONS);
    let shown = violations.iter().take(VIOLATIONS).map(|one| Violation {
        field: sanitize(&one.field, FIELD),
        message: sanitize(&one.message, MESSAGE),
    });
    let rest = (more > 0).then(|| Violation {
        field: "spec".to_owned(),
        message: format!("{more} more rules are broken"),
    });
    shown.chain(rest).collect()
}

/// Returns the error with sanitized texts.
pub(super) fn sanitized(error: GuestError) -> GuestError {
    match error {
        GuestError::Settings(why) => GuestError::Settings(sanitize(&why, MESSAGE)),
        GuestError::Failed(why) => GuestError::Failed(sanitize(&why, MESSAGE)),
        GuestError::BadAnswer(why) => GuestError::BadAnswer(sanitize(&why, MESSAGE)),
        // A backtrace has the names of the guest's functions.
        GuestError::Call(source) => GuestError::Call(Box::new(SanitizedError::of(&*source))),
        error @ (GuestError::Missing(_)
        | GuestError::NotReady(_)
        | GuestError::MatchFailed(_)
        | GuestError::MatchBusy(_)
        | GuestError::OutOfTime(_)
        | GuestError::Busy { .. }
        | GuestError::Deadline(_)
        | GuestError::Starved { .. }
        | GuestError::Memory(_)
        | GuestError::Trap(_)
        | GuestError::UnsupportedWasi(_)
        | GuestError::OutputTooLarge { .. }) => error,
    }
}

/// An error with texts of a guest, sanitized.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct SanitizedError(String);

impl SanitizedError {
    /// Formats the error and all its causes in one line.
    pub(super) fn of(error: &(dyn std::error::Error + 'static)) -> Self {
        Self(sanitize(&explain(error), MESSAGE))
    }
}

fn warnings(warnings: &[String]) -> Vec<String> {
    let shown = warnings.iter().take(WARNINGS);
    shown.map(|warning| sanitize(warning, WARNING)).collect()
}

fn size_of_all(violations: &[Violation]) -> usize {
    let violations = violations.iter();
    violations
        .map(|one| one.field.len() + one.message.len())
        .sum()
}

fn length(texts: &[String]) -> usize {
    texts.iter().map(String::len).sum()
}

#[cfg(test)]
mod tests {
    use ipu_text::is_plain;

    use super::*;

    /// A text with control characters and a change of direction, far too long.
    fn hostile() -> String {
        format!("\u{1b}[31m\u{7}\n\r\0\u{202e}{}", "é".repeat(1 << 20))
    }

    fn is_fit(text: &str, most: usize) -> bool {
        text.len() <= most && text.chars().all(is_plain)
    }

    #[test]
    fn no_answer_keeps_a_hostile_text() {
        let violation = Violation {
            field: hostile(),
            message: hostile(),
        };
        let refused = DefaultingText::Refused(vec![violation.clone(); 100]);
        let verdict = Verdict {
            violations: vec![violation; 100],
            warnings: vec![hostile(); 100],
        };
        let Verdict {
            violations,
            warnings,
        } = verdict.sanitized();
        let shown = violations.iter();
        assert!(
            shown
                .clone()
                .all(|one| is_fit(&one.field, FIELD) && is_fit(&one.message, MESSAGE))
        );
        assert_eq!(shown.len(), VIOLATIONS + 1);
        assert_eq!(violations[VIOLATIONS].message, "68 more rules are broken");
        assert!(warnings.iter().all(|one| is_fit(one, WARNING)));
        assert_eq!(warnings.len(), WARNINGS);

        let defaulted = DefaultingText::Defaulted {
            object: "{}".to_owned(),
            warnings: vec![hostile(); 100],
        };
        for answer in [defaulted, refused] {
            match answer.sanitized() {
                DefaultingText::Defaulted {
                    warnings: shown, ..
                } => assert_eq!(shown, warnings),
                DefaultingText::Refused(shown) => assert_eq!(shown, violations),
            }
        }

        let passed = PassedOver {
            controller: hostile(),
            reason: hostile(),
        };
        for decision in [
            Decision::Try(hostile()),
            Decision::Reject(hostile()),
            Decision::Wait(vec![passed]),
        ] {
            match decision.sanitized() {
                Decision::Try(name) => assert!(is_fit(&name, CONTROLLER)),
                Decision::Reject(why) => assert!(is_fit(&why, MESSAGE)),
                Decision::Wait(passed) => assert!(
                    is_fit(&passed[0].controller, CONTROLLER) && is_fit(&passed[0].reason, REASON)
                ),
            }
        }
    }

    #[test]
    fn no_error_keeps_a_hostile_text() {
        let words = || Box::new(std::io::Error::other(hostile()));
        for error in [
            GuestError::Settings(hostile()),
            GuestError::Failed(hostile()),
            GuestError::BadAnswer(hostile()),
            GuestError::Call(words()),
        ] {
            let shown = explain(&sanitized(error));
            assert!(is_fit(&shown, 2 * MESSAGE), "{}", shown.len());
        }
    }
}
