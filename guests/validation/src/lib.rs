//! The validation guest: the built-in policy that reports the violations of an IPUJob.
#![deny(unsafe_code)]

/// Bindings of the contract that `wit-bindgen` generates.
#[allow(
    unsafe_code,
    missing_docs,
    unreachable_pub,
    clippy::all,
    clippy::pedantic
)]
#[allow(unused_imports, clippy::unwrap_used, clippy::panic)]
mod bindings {
    wit_bindgen::generate!({ path: "../../wit/0.2.0", world: "validation" });
}
pub mod rules;

use bindings::exports::ipu::policy::validator::{Guest, Request, Verdict};
use bindings::ipu::policy::types::Violation;
use rules::Settings;
use serde_json::Value;

/// The component: text in, text out, and the decision in `rules`.
struct Component;

impl Guest for Component {
    fn validate_settings(settings: String) -> Result<(), String> {
        Settings::parse(&settings).map(drop)
    }

    fn validate(request: Request) -> Result<Verdict, String> {
        let settings = Settings::parse(&request.settings)?;
        let object = parse("object", &request.object)?;
        let old = request.old_object.as_deref();
        let old = old.map(|old| parse("old object", old)).transpose()?;
        let verdict = rules::check(&object, old.as_ref(), settings);
        Ok(Verdict {
            violations: verdict
                .violations
                .into_iter()
                .map(|rules::Violation { field, message }| Violation { field, message })
                .collect(),
            warnings: verdict.warnings,
        })
    }
}

/// Reads one of the two objects of a request.
fn parse(which: &str, json: &str) -> Result<Value, String> {
    serde_json::from_str(json).map_err(|error| format!("the {which} is not JSON: {error}"))
}

/// The exported functions; their unsafe code is generated, like that of the bindings.
#[cfg(target_family = "wasm")]
#[allow(unsafe_code)]
mod exports {
    use super::Component;

    crate::bindings::export!(Component with_types_in crate::bindings);
}
