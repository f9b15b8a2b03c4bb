//! The defaulting guest: the built-in policy that fills in what the user of an IPUJob left open.
#![deny(unsafe_code)]

pub mod defaults;
pub mod network;

use guest_sdk::defaulter::{Answer, Defaulted, Guest, Request};
use guest_sdk::object;
use network::Settings;

/// The component: text in, text out, and the decisions in `defaults` and `network`.
pub struct Component;

impl Guest for Component {
    fn validate_settings(settings: String) -> Result<(), String> {
        Settings::parse(&settings).map(drop)
    }

    fn apply_defaults(request: Request) -> Result<Answer, String> {
        let settings = Settings::parse(&request.settings)?;
        let object = object::parse(&request.object)?;
        let old = object::parse_old(request.old_object.as_deref())?;
        let defaulted = defaults::apply(object).and_then(|defaulted| {
            let object = network::apply(defaulted.object, old.as_ref(), &settings)?;
            Ok(Defaulted {
                object: object.to_string(),
                warnings: defaulted.warnings,
            })
        });
        Ok(match defaulted {
            Ok(defaulted) => Answer::Defaulted(defaulted),
            Err(violation) => Answer::Refused(vec![violation]),
        })
    }
}

guest_sdk::export!(Component in defaulting);
