//! Pure: the answer of the validating webhook, from the verdicts of the validation policies.

use ipu_guest_host::model::Verdict;
use ipu_guest_host::texts;

use super::answer::Decision;
use super::pods;
use super::request::{AdmissionRequest, Reviewed};

/// Returns the verdict on a request without violations of fields that its object does not have.
pub fn applicable(verdict: Verdict, request: &AdmissionRequest) -> Verdict {
    let is_pod = request.reviewed == Reviewed::Pod;
    if is_pod && pods::shares_partition(&request.object) {
        return pods::without_size(verdict);
    }
    verdict
}

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
    use super::*;
    use crate::request::tests::request;
    use ipu_guest_host::model::Violation;
    use serde_json::json;

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
    fn only_pods_that_share_a_partition_have_no_size() {
        let mut asked = request(|review| {
            let metadata = &mut review["object"]["metadata"];
            metadata["labels"] = json!({"graphcore.ai/native-pod": "true"});
            metadata["annotations"] = json!({"graphcore.ai/partition": "shared"});
            review["object"]["spec"]["ipusPerJobInstance"] = json!("0");
        });
        let size = Violation {
            field: "spec.ipusPerJobInstance".to_owned(),
            message: "is too small".to_owned(),
        };
        let both = verdict(vec![size, violation("wrong")]);
        // The owner of an IPUJob writes its labels and annotations himself.
        assert_eq!(applicable(both.clone(), &asked), both);
        asked.reviewed = Reviewed::Pod;
        let expected = verdict(vec![violation("wrong")]);
        assert_eq!(applicable(both, &asked), expected);
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
