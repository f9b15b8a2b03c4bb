//! The CEL guest: reports the validations of the admin's settings, in the Common Expression Language, that an IPUJob
//! fails.
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
pub mod expression;
pub mod names;
pub mod request;
pub mod semantics;
pub mod settings;
pub mod verdict;

use bindings::exports::ipu::policy::validator::{self, Guest, Verdict};
use bindings::ipu::policy::types::{self, Violation};
use request::{Operation, Request};
use serde_json::Value;
use settings::Settings;

/// The component: text in, text out, and the decision in `verdict`.
struct Component;

impl Guest for Component {
    fn validate_settings(settings: String) -> Result<(), String> {
        Settings::parse(&settings).map(drop)
    }

    fn validate(request: validator::Request) -> Result<Verdict, String> {
        let settings = Settings::parse(&request.settings)?;
        let violations = verdict::violations(&settings, &read(request)?);
        Ok(Verdict {
            violations: violations
                .into_iter()
                .map(|verdict::Violation { field, message }| Violation { field, message })
                .collect(),
            warnings: Vec::new(),
        })
    }
}

/// Reads the request of the contract.
fn read(request: validator::Request) -> Result<Request, String> {
    let admission = request.admission;
    let old = request.old_object.as_deref();
    Ok(Request {
        operation: match admission.operation {
            types::Operation::Create => Operation::Create,
            types::Operation::Update => Operation::Update,
        },
        user: admission.user.name,
        groups: admission.user.groups,
        is_dry_run: admission.dry_run,
        sub_resource: admission.sub_resource,
        namespace: admission.namespace.name,
        namespace_labels: admission.namespace.labels,
        object: parse("object", &request.object)?,
        old_object: old.map(|old| parse("old object", old)).transpose()?,
    })
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
