//! Best fit: the fullest V-IPU controller with enough free capacity, so that large partitions fit
//! later.
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
    wit_bindgen::generate!({ path: "wit", world: "placement" });
}
pub mod fit;

use bindings::exports::ipu::policy::placer::{
    Attempt, Controller, Decision, Guest, PassedOver, Request,
};

/// The component: conversions, and the decision in `fit`.
struct Component;

impl Guest for Component {
    fn validate_settings(_settings: String) -> Result<(), String> {
        Ok(())
    }

    fn place(
        request: Request,
        controllers: Vec<Controller>,
        attempts: Vec<Attempt>,
    ) -> Result<Decision, String> {
        let refused = |name: &str| {
            let attempt = attempts.iter().find(|attempt| attempt.controller == name);
            attempt.map(|attempt| attempt.reason.clone())
        };
        let candidates: Vec<_> = controllers
            .into_iter()
            .map(|controller| fit::Candidate {
                obstacle: obstacle(&request, &controller).or_else(|| refused(&controller.name)),
                name: controller.name,
                total: controller.total_ipus,
                used: controller.used_ipus,
                largest_free: controller.largest_free,
            })
            .collect();
        Ok(match fit::choose(request.ipus, &candidates) {
            fit::Choice::Try(name) => Decision::Try(name),
            fit::Choice::Wait(reasons) => Decision::Wait(
                reasons
                    .into_iter()
                    .map(|(controller, reason)| PassedOver { controller, reason })
                    .collect(),
            ),
            fit::Choice::Reject(reason) => Decision::Reject(reason),
        })
    }
}

/// Returns why a controller cannot serve the request whatever is free on it.
fn obstacle(request: &Request, controller: &Controller) -> Option<String> {
    if let Some(reason) = &controller.unreachable {
        return Some(format!("it does not answer: {reason}"));
    }
    if !controller.has_nodes {
        return Some("no node reaches it".to_owned());
    }
    if let Some(reason) = &controller.unschedulable {
        return Some(reason.clone());
    }
    let mut wanted = request.node_selector.iter();
    let wanted = wanted.find(|(key, _)| *key == controller.label_key);
    let wanted = wanted.filter(|(_, value)| *value != controller.label_value);
    wanted.map(|(key, value)| format!("the Pods ask for nodes with {key}={value}"))
}

/// The exported functions; their unsafe code is generated, like that of the bindings.
#[cfg(target_family = "wasm")]
#[allow(unsafe_code)]
mod exports {
    use super::Component;

    crate::bindings::export!(Component with_types_in crate::bindings);
}
