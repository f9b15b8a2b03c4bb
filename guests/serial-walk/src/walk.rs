//! Pure: the serial walk. Controllers are tried in the admin's order, and the first that fits wins.

#[cfg(test)]
mod table;

use guest_sdk::placement::{Blocker, Skipped};

pub use guest_sdk::placement::Requirements;
pub use guest_sdk::placer::{Attempt, Controller, Decision, Outcome, PassedOver};

/// Answers the first controller that can serve the request now. Without one, the request waits as
/// long as a controller could serve it later, and is rejected when none ever can.
pub fn place(
    requirements: Requirements<'_>,
    controllers: &[Controller],
    attempts: &[Attempt],
) -> Decision {
    let mut skipped = Skipped::default();
    for controller in controllers {
        match blocker(requirements, controller, attempts) {
            None => return Decision::Try(controller.name.clone()),
            Some(blocker) => skipped.add(controller, blocker),
        }
    }
    skipped.decision(requirements)
}

/// An unreachable controller may come back larger, so its size is no reason to reject the request.
fn blocker(
    requirements: Requirements<'_>,
    controller: &Controller,
    attempts: &[Attempt],
) -> Option<Blocker> {
    Blocker::of_label(controller, requirements)
        .or_else(|| Blocker::of_state(controller))
        .or_else(|| Blocker::of_emptiness(controller))
        .or_else(|| Blocker::of_size(controller, requirements))
        .or_else(|| Blocker::of_attempts(controller, attempts))
        .or_else(|| Blocker::of_usage(controller, requirements))
}
