//! The fragmentation-aware policy: decides on which V-IPU controller a partition is made so that
//! large blocks of IPUs stay together.
#![deny(unsafe_code)]

pub mod choice;

use guest_sdk::placement::Requirements;
use guest_sdk::placer::{Attempt, Controller, Decision, Guest, Request};
use guest_sdk::settings;

/// The component, whose decision is in `choice`.
pub struct Component;

impl Guest for Component {
    fn validate_settings(settings: String) -> Result<(), String> {
        settings::ignore(&settings)
    }

    fn place(
        request: Request,
        controllers: Vec<Controller>,
        attempts: Vec<Attempt>,
    ) -> Result<Decision, String> {
        let requirements = Requirements::from(&request);
        Ok(choice::choose(requirements, &controllers, &attempts))
    }
}

guest_sdk::export!(Component in placement);
