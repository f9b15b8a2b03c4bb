//! The validation guest: the built-in policy that reports the violations of an IPUJob.
#![deny(unsafe_code)]

pub mod rules;

use guest_sdk::object;
use guest_sdk::validator::{Guest, Request, Verdict};
use rules::Settings;

/// The component: text in, text out, and the decision in `rules`.
pub struct Component;

impl Guest for Component {
    fn validate_settings(settings: String) -> Result<(), String> {
        Settings::parse(&settings).map(drop)
    }

    fn validate(request: Request) -> Result<Verdict, String> {
        let settings = Settings::parse(&request.settings)?;
        let object = object::parse(&request.object)?;
        let old = object::parse_old(request.old_object.as_deref())?;
        let verdict = rules::check(&object, old.as_ref(), settings);
        Ok(Verdict {
            violations: verdict.violations,
            warnings: verdict.warnings,
        })
    }
}

guest_sdk::export!(Component in validation);
