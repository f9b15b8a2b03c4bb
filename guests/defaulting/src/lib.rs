//! The defaulting guest: the built-in policy that fills in what the user of an IPUJob left open.
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
    wit_bindgen::generate!({ path: "../../wit/0.2.0", world: "defaulting" });
}
pub mod defaults;

use bindings::exports::ipu::policy::defaulter::{Answer, Defaulted, Guest, Request};
use bindings::ipu::policy::types::Violation;

/// The component: text in, text out, and the decision in `defaults`.
struct Component;

impl Guest for Component {
    fn validate_settings(settings: String) -> Result<(), String> {
        match serde_json::from_str(&settings) {
            Ok(serde_json::Value::Object(_)) => Ok(()),
            _ => Err("the settings are not a JSON object; write {} for none".to_owned()),
        }
    }

    fn apply_defaults(request: Request) -> Result<Answer, String> {
        let object = serde_json::from_str(&request.object)
            .map_err(|error| format!("the object is not JSON: {error}"))?;
        Ok(match defaults::apply(object) {
            Ok(defaulted) => Answer::Defaulted(Defaulted {
                object: defaulted.object.to_string(),
                warnings: defaulted.warnings,
            }),
            Err(defaults::Violation { field, message }) => {
                Answer::Refused(vec![Violation { field, message }])
            }
        })
    }
}

/// The exported functions; their unsafe code is generated, like that of the bindings.
#[cfg(target_family = "wasm")]
#[allow(unsafe_code)]
mod exports {
    use super::Component;

    crate::bindings::export!(Component with_types_in crate::bindings);
}
