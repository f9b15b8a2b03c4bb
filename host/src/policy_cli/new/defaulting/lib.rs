//! The component: JSON in and out, and the decision in `policy`.
#![deny(unsafe_code)]

/// What `wit-bindgen` makes of the contract.
#[allow(unsafe_code, unused, clippy::all)]
mod bindings {
    wit_bindgen::generate!({ path: "wit", world: "defaulting" });
}
mod policy;

use std::cell::RefCell;

use bindings::exports::ipu::policy::defaulter::{Defaulted, Guest, Request};

thread_local! {
    // Every request meets a fresh instance, which is told the settings first.
    static SETTINGS: RefCell<policy::Settings> = RefCell::default();
}

struct Component;

impl Guest for Component {
    fn configure(settings: String) -> Result<(), String> {
        let settings = policy::Settings::parse(&settings)?;
        SETTINGS.with(|known| known.replace(settings));
        Ok(())
    }

    fn apply_defaults(request: Request) -> Result<Defaulted, String> {
        let mut object = serde_json::from_str(&request.object)
            .map_err(|error| format!("the object is not JSON: {error}"))?;
        SETTINGS.with_borrow(|settings| policy::apply(&mut object, settings));
        Ok(Defaulted {
            object: object.to_string(),
            warnings: Vec::new(),
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
