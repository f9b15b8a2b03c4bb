//! The component: JSON in, violations out, and the decision in `policy`.
#![deny(unsafe_code)]

/// Bindings that `wit-bindgen` generates from the contract.
#[allow(unsafe_code, unused, clippy::all)]
mod bindings {
    wit_bindgen::generate!({ path: "wit", world: "validation" });
}
mod policy;

use bindings::exports::ipu::policy::validator::{Guest, Request, Verdict};
use bindings::ipu::policy::types::Violation;

struct Component;

impl Guest for Component {
    fn validate_settings(settings: String) -> Result<(), String> {
        policy::Settings::parse(&settings).map(drop)
    }

    fn validate(request: Request) -> Result<Verdict, String> {
        let settings = policy::Settings::parse(&request.settings)?;
        let object = serde_json::from_str(&request.object)
            .map_err(|error| format!("the object is not JSON: {error}"))?;
        let violations = policy::check(&object, &settings)
            .into_iter()
            .map(|(field, message)| Violation { field, message })
            .collect();
        Ok(Verdict {
            violations,
            warnings: Vec::new(),
        })
    }
}

/// The exported functions. Their unsafe code is generated.
#[cfg(target_family = "wasm")]
#[allow(unsafe_code)]
mod exports {
    use super::Component;

    crate::bindings::export!(Component with_types_in crate::bindings);
}
