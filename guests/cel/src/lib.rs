//! The CEL guest: reports the validations of the admin's settings, in the Common Expression
//! Language, that an IPUJob fails.
#![deny(unsafe_code)]

pub mod expression;
pub mod names;
pub mod request;
pub mod semantics;
pub mod settings;
pub mod verdict;

use guest_sdk::object;
use guest_sdk::validator::{self, Guest, Verdict};
use request::Request;
use settings::Settings;

/// The component: text in, text out, and the decision in `verdict`.
pub struct Component;

impl Guest for Component {
    fn validate_settings(settings: String) -> Result<(), String> {
        Settings::parse(&settings).map(drop)
    }

    fn validate(request: validator::Request) -> Result<Verdict, String> {
        let settings = Settings::parse(&request.settings)?;
        Ok(Verdict {
            violations: verdict::violations(&settings, &read(request)?),
            warnings: Vec::new(),
        })
    }
}

/// Reads the request of the contract.
fn read(request: validator::Request) -> Result<Request, String> {
    let admission = request.admission;
    Ok(Request {
        operation: admission.operation,
        user: admission.user.name,
        groups: admission.user.groups,
        is_dry_run: admission.dry_run,
        sub_resource: admission.sub_resource,
        namespace: admission.namespace.name,
        namespace_labels: admission.namespace.labels,
        object: object::parse(&request.object)?,
        old_object: object::parse_old(request.old_object.as_deref())?,
    })
}

guest_sdk::export!(Component in validation);
