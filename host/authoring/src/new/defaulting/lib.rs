//! The component: JSON in and out, and the decision in `policy`.
#![deny(unsafe_code)]

/// Bindings that `wit-bindgen` generates from the contract.
#[allow(unsafe_code, unused, clippy::all)]
mod bindings {
    wit_bindgen::generate!({ path: "wit", world: "defaulting" });
}
mod policy;

use bindings::exports::ipu::policy::defaulter::{Answer, Defaulted, Guest, Request};

struct Component;

impl Guest for Component {
    fn validate_settings(settings: String) -> Result<(), String> {
        policy::Settings::parse(&settings).map(drop)
    }

    fn apply_defaults(request: Request) -> Result<Answer, String> {
        let settings = policy::Settings::parse(&request.settings)?;
        let mut object = serde_json::from_str(&request.object)
            .map_err(|error| format!("the object is not JSON: {error}"))?;
        policy::apply(&mut object, &settings);
        Ok(Answer::Defaulted(Defaulted {
            object: object.to_string(),
            warnings: Vec::new(),
        }))
    }
}

/// The exported functions. Their unsafe code is generated.
#[cfg(target_family = "wasm")]
#[allow(unsafe_code)]
mod exports {
    use super::Component;

    crate::bindings::export!(Component with_types_in crate::bindings);
}
