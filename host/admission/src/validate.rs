//! Pure: the answer of the validating webhook, from the verdicts of the validation policies.

use ipu_api::guest::admission::Verdict;
use ipu_guest_host::texts;

use super::answer::Decision;

/// Returns the decision on the merged verdict of all policies, and the warnings.
pub fn decision(verdict: Verdict) -> (Decision, Vec<String>) {
    let violations = texts::bounded(&verdict.violations);
    if violations.is_empty() {
        (Decision::Allowed, verdict.warnings)
    } else {
        (Decision::Refused(violations), verdict.warnings)
    }
}

#[cfg(test)]
mod tests {
    use ipu_api::guest::admission::Violation;

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
    fn the_first_violations_and_the_number_of_others_are_reported() {
        let Decision::Refused(shown) = decision(verdict(vec![violation("wrong"); 40])).0 else {
            panic!("it is refused");
        };
        assert_eq!(shown.len(), texts::VIOLATIONS + 1);
        assert_eq!(shown[texts::VIOLATIONS].message, "8 more rules are broken");
    }
}
