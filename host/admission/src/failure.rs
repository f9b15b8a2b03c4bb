//! Pure: the message to the user about a guest that failed.

use ipu_text::explain;

use ipu_guest_host::GuestError;

/// Formats the message about a failure of `subject`, a guest. It states that the object is not the
/// cause.
pub fn message(subject: &str, error: &GuestError) -> String {
    format!(
        "{subject} gave no usable answer: {}. The object is not the cause. Try again; if it fails again, ask an admin \
         to read the operator's log.",
        explain(error)
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::message;
    use ipu_guest_host::GuestError;

    #[test]
    fn a_guest_that_fails_is_named_and_the_object_is_not_blamed() {
        let late = GuestError::Deadline(Duration::from_secs(1));
        let own = GuestError::Failed("spec.a: the price list is not JSON".to_owned());
        for (error, why) in [
            (late, "deadline of 1s"),
            (own, "the guest failed: spec.a: the price"),
        ] {
            let message = message("the built-in validation guest", &error);
            for part in [
                "the built-in validation guest gave",
                why,
                "The object is not the cause",
            ] {
                assert!(message.contains(part), "{part}: {message}");
            }
        }
    }
}
