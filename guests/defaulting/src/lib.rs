//! The defaulting guest: the built-in policy that fills in what the user of an IPUJob left open.
#![deny(unsafe_code)]

pub mod defaults;

use guest_sdk::defaulter::{Answer, Defaulted, Guest, Request};
use guest_sdk::{object, settings};

/// The component: text in, text out, and the decision in `defaults`.
pub struct Component;

impl Guest for Component {
    fn validate_settings(settings: String) -> Result<(), String> {
        settings::ignore(&settings)
    }

    fn apply_defaults(request: Request) -> Result<Answer, String> {
        let object = object::parse(&request.object)?;
        Ok(match defaults::apply(object) {
            Ok(defaulted) => Answer::Defaulted(Defaulted {
                object: defaulted.object.to_string(),
                warnings: defaulted.warnings,
            }),
            Err(violation) => Answer::Refused(vec![violation]),
        })
    }
}

guest_sdk::export!(Component in defaulting);
