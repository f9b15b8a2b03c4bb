//! Pure: the message to the user about a policy that failed.

use ipu_text::explain;

use ipu_guest_host::GuestError;

/// Formats the message about a failure of `subject`, a policy. It states that the object is not the cause.
pub fn message(subject: &str, error: &GuestError) -> String {
    format!(
        "{subject} gave no answer that can be used: {}; nothing is known to be wrong with the object itself, \
         so try again, and if that does not help ask an admin to look at the operator's log",
        explain(error)
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::message;
    use ipu_guest_host::GuestError;

    #[test]
    fn a_policy_that_fails_is_named_and_the_object_is_not_blamed() {
        let late = GuestError::Deadline(Duration::from_secs(1));
        let own = GuestError::Failed("spec.a: the price list is not JSON".to_owned());
        for (error, why) in [
            (late, "deadline of 1s"),
            (own, "the policy failed: spec.a: the price"),
        ] {
            let message = message("the validation policy", &error);
            for part in [
                "the validation policy gave",
                why,
                "nothing is known to be wrong",
            ] {
                assert!(message.contains(part), "{part}: {message}");
            }
        }
    }
}
