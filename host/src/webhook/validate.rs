//! Pure: the answer of the validating webhook, from what the validation policies found. What they write
//! reaches users and logs, so that it is bounded and cleaned.

use super::answer::Decision;
use crate::wasm::model::{Verdict, Violation};

/// Most violations that are told.
const VIOLATIONS: usize = 32;

/// Longest path of a field, and longest sentence, in characters.
const FIELD: usize = 253;
const MESSAGE: usize = 1024;

/// The decision on an object of which all policies together say this, and their sentences for the
/// user.
pub fn decision(verdict: Verdict) -> (Decision, Vec<String>) {
    let found = verdict.violations.len();
    let mut violations: Vec<Violation> = verdict
        .violations
        .into_iter()
        .take(VIOLATIONS)
        .map(|violation| Violation {
            field: cleaned(&violation.field, FIELD),
            message: cleaned(&violation.message, MESSAGE),
        })
        .collect();
    if found > VIOLATIONS {
        violations.push(Violation {
            field: "spec".to_owned(),
            message: format!("{} more rules are broken", found - VIOLATIONS),
        });
    }
    let warnings = verdict.warnings.iter();
    let warnings = warnings.map(|text| cleaned(text, MESSAGE)).collect();
    if violations.is_empty() {
        (Decision::Allowed, warnings)
    } else {
        (Decision::Refused(violations), warnings)
    }
}

/// The start of a text, on one line.
fn cleaned(text: &str, most: usize) -> String {
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().take(most).map(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(violations: Vec<Violation>) -> Verdict {
        Verdict {
            violations,
            warnings: vec!["old spelling".to_owned()],
        }
    }

    fn violation(message: &str) -> Violation {
        Violation {
            field: "spec".to_owned(),
            message: message.to_owned(),
        }
    }

    #[test]
    fn only_violations_refuse() {
        let (allowed, warnings) = decision(verdict(vec![]));
        assert_eq!(allowed, Decision::Allowed);
        assert_eq!(warnings, ["old spelling"]);
        let refused = decision(verdict(vec![violation("wrong")])).0;
        assert_eq!(refused, Decision::Refused(vec![violation("wrong")]));
    }

    #[test]
    fn what_a_policy_writes_is_bounded_and_stays_on_its_line() {
        let long = format!("a\u{1b}[31m\n{}", "é".repeat(2000));
        let Decision::Refused(told) = decision(verdict(vec![violation(&long); 40])).0 else {
            panic!("it is refused");
        };
        assert_eq!(told.len(), VIOLATIONS + 1);
        assert_eq!(told[0].message.chars().count(), MESSAGE);
        assert!(
            told[0].message.starts_with("a [31m é"),
            "{}",
            told[0].message
        );
        assert_eq!(told[VIOLATIONS].message, "8 more rules are broken");
    }
}
