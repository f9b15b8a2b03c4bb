//! The validation guest: the built-in policy that says what is wrong with an IPUJob.
#![deny(unsafe_code)]

/// What `wit-bindgen` makes of the contract.
#[allow(
    unsafe_code,
    missing_docs,
    unreachable_pub,
    clippy::all,
    clippy::pedantic
)]
#[allow(unused_imports, clippy::unwrap_used, clippy::panic)]
mod bindings {
    wit_bindgen::generate!({ path: "../../wit", world: "validation" });
}
pub mod rules;

use std::sync::OnceLock;

use bindings::exports::ipu::policy::validator::{Guest, Request, Verdict, Violation};
use rules::Settings;
use serde_json::Value;

/// What the admin has set; written by `configure`, the first call to an instance.
static SETTINGS: OnceLock<Settings> = OnceLock::new();

/// The component: text in, text out, and the decision in `rules`.
struct Component;

impl Guest for Component {
    fn configure(settings: String) -> Result<(), String> {
        let settings = Settings::parse(&settings)?;
        SETTINGS
            .set(settings)
            .map_err(|_| "configure was called twice on one instance".to_owned())
    }

    fn validate(request: Request) -> Verdict {
        let settings = SETTINGS.get().copied().unwrap_or_default();
        let verdict = parse("object", &request.object).and_then(|object| {
            let old = request
                .old_object
                .map(|old| parse("old object", &old))
                .transpose()?;
            Ok(rules::check(&object, old.as_ref(), settings))
        });
        verdict.map_or_else(
            |violation| Verdict {
                violations: vec![violation],
                warnings: Vec::new(),
            },
            |verdict| Verdict {
                violations: verdict
                    .violations
                    .into_iter()
                    .map(|rules::Violation { field, message }| Violation { field, message })
                    .collect(),
                warnings: verdict.warnings,
            },
        )
    }
}

/// Reads one of the two objects of a request.
fn parse(which: &str, json: &str) -> Result<Value, Violation> {
    serde_json::from_str(json).map_err(|error| Violation {
        field: String::new(),
        message: format!("the {which} is not JSON: {error}"),
    })
}

/// The exported functions; their unsafe code is generated, like that of the bindings.
#[cfg(target_family = "wasm")]
#[allow(unsafe_code)]
mod exports {
    use super::Component;

    crate::bindings::export!(Component with_types_in crate::bindings);
}
