//! Pure: the answer where a policy gave none.

use super::answer::{Answer, Decision};
use crate::agent::explain;
use crate::wasm::GuestError;
use crate::wasm::model::Violation;

/// The answer to a request that a policy, called `who`, failed on. A refusal is the policy's word to the user; all
/// else is no fault of the object, and says so.
pub fn answer(who: &str, error: &GuestError) -> Answer {
    if let GuestError::Refused(text) = error {
        return Answer {
            decision: Decision::Refused(vec![violation(text)]),
            ..Answer::nothing_to_say()
        };
    }
    Answer::failed(format!(
        "{who} gave no answer that can be used: {}; nothing is known to be wrong with the object itself, \
         so try again, and if that does not help ask an admin to look at the operator's log",
        explain(error)
    ))
}

/// A policy's sentence starts with the field that it speaks of; where it does not, the whole spec
/// is meant.
fn violation(text: &str) -> Violation {
    let (field, message) = text
        .split_once(": ")
        .filter(|(field, _)| field.starts_with("spec") && !field.contains(char::is_whitespace))
        .unwrap_or(("spec", text));
    Violation {
        field: field.to_owned(),
        message: message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::answer;
    use crate::wasm::GuestError;
    use crate::wasm::model::Violation;
    use crate::webhook::answer::Decision;

    #[test]
    fn a_refusal_names_its_field_where_it_says_one() {
        for (text, field, message) in [
            (
                "spec.modelReplicas: \"3\" is odd",
                "spec.modelReplicas",
                "\"3\" is odd",
            ),
            ("not on Fridays: sorry", "spec", "not on Fridays: sorry"),
            ("", "spec", ""),
        ] {
            let refused = answer(
                "the defaulting policy",
                &GuestError::Refused(text.to_owned()),
            );
            let violation = Violation {
                field: field.to_owned(),
                message: message.to_owned(),
            };
            assert_eq!(refused.decision, Decision::Refused(vec![violation]));
        }
    }

    #[test]
    fn a_late_policy_is_named_and_the_object_is_not_blamed() {
        let late = GuestError::Deadline(Duration::from_secs(1));
        let Decision::Failed(message) = answer("the validation policy", &late).decision else {
            panic!("it must not pass");
        };
        for part in [
            "validation",
            "deadline of 1s",
            "nothing is known to be wrong",
        ] {
            assert!(message.contains(part), "{part}: {message}");
        }
    }
}
