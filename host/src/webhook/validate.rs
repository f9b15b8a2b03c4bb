//! Pure: the answer of the validating webhook, from the verdict of the validation policy.

use super::answer::{Answer, Decision};
use crate::wasm::model::{Served, Verdict};

/// The answer to a request that the validation policy was asked about.
pub fn answer(served: Served<Verdict>) -> Answer {
    let Served { answer, digest } = served;
    Answer {
        decision: if answer.violations.is_empty() {
            Decision::Allowed
        } else {
            Decision::Refused(answer.violations)
        },
        warnings: answer.warnings,
        digest: Some(digest),
    }
}

#[cfg(test)]
mod tests {
    use super::answer;
    use crate::wasm::model::{ModuleDigest, Served, Verdict, Violation};
    use crate::webhook::answer::Decision;

    #[test]
    fn only_violations_refuse() {
        let served = |violations: Vec<Violation>| Served {
            answer: Verdict {
                violations,
                warnings: vec!["old spelling".to_owned()],
            },
            digest: ModuleDigest::new("sha256:77"),
        };
        let allowed = answer(served(vec![]));
        assert_eq!(allowed.decision, Decision::Allowed);
        assert_eq!(allowed.warnings, ["old spelling"]);
        let violation = Violation {
            field: "spec".to_owned(),
            message: "wrong".to_owned(),
        };
        let refused = answer(served(vec![violation.clone()]));
        assert_eq!(refused.decision, Decision::Refused(vec![violation]));
        assert_eq!(refused.digest, Some(ModuleDigest::new("sha256:77")));
    }
}
