//! The component: JSON in, violations out, and the decision in `policy`.
#![deny(unsafe_code)]

/// What `wit-bindgen` makes of the contract.
#[allow(unsafe_code, unused, clippy::all)]
mod bindings {
    wit_bindgen::generate!({ path: "wit", world: "validation" });
}
mod policy;

use std::cell::RefCell;

use bindings::exports::ipu::policy::validator::{Guest, Request, Verdict, Violation};

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

    fn validate(request: Request) -> Verdict {
        let found = match serde_json::from_str(&request.object) {
            Ok(object) => SETTINGS.with_borrow(|settings| policy::check(&object, settings)),
            Err(error) => vec![(String::new(), format!("the object is not JSON: {error}"))],
        };
        Verdict {
            violations: found
                .into_iter()
                .map(|(field, message)| Violation { field, message })
                .collect(),
            warnings: Vec::new(),
        }
    }
}

/// The exported functions; their unsafe code is generated, like that of the bindings.
#[cfg(target_family = "wasm")]
#[allow(unsafe_code)]
mod exports {
    use super::Component;

    crate::bindings::export!(Component with_types_in crate::bindings);
}
