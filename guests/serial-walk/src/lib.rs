//! The serial walk: the built-in policy that decides on which V-IPU controller a partition is made.
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
    wit_bindgen::generate!({ path: "../../wit/0.2.0", world: "placement" });
}
pub mod walk;

use bindings::exports::ipu::policy::placer::{self, Decision, Guest, PassedOver, Request};

/// The component: conversions, and the decision in `walk`.
struct Component;

impl Guest for Component {
    fn validate_settings(settings: String) -> Result<(), String> {
        match serde_json::from_str(&settings) {
            Ok(serde_json::Value::Object(_)) => Ok(()),
            _ => Err("the settings are not a JSON object; write {} for none".to_owned()),
        }
    }

    fn place(
        request: Request,
        controllers: Vec<placer::Controller>,
        attempts: Vec<placer::Attempt>,
    ) -> Result<Decision, String> {
        let request = walk::Request {
            ipus: request.ipus,
            node_selector: request.node_selector,
        };
        let controllers: Vec<_> = controllers.into_iter().map(seen).collect();
        let attempts: Vec<_> = attempts
            .into_iter()
            .map(|attempt| walk::Attempt {
                controller: attempt.controller,
                reason: attempt.reason,
            })
            .collect();
        Ok(match walk::place(&request, &controllers, &attempts) {
            walk::Decision::Try(controller) => Decision::Try(controller),
            walk::Decision::Wait(passed_over) => Decision::Wait(
                passed_over
                    .into_iter()
                    .map(|(controller, reason)| PassedOver { controller, reason })
                    .collect(),
            ),
            walk::Decision::Reject(reason) => Decision::Reject(reason),
        })
    }
}

/// A controller as the walk reads it.
fn seen(controller: placer::Controller) -> walk::Controller {
    walk::Controller {
        name: controller.name,
        label_key: controller.label_key,
        label_value: controller.label_value,
        has_nodes: controller.has_nodes,
        unreachable: controller.unreachable,
        unschedulable: controller.unschedulable,
        total_ipus: controller.total_ipus,
        used_ipus: controller.used_ipus,
        largest_free: controller.largest_free,
    }
}

/// The exported functions; their unsafe code is generated, like that of the bindings.
#[cfg(target_family = "wasm")]
#[allow(unsafe_code)]
mod exports {
    use super::Component;

    crate::bindings::export!(Component with_types_in crate::bindings);
}
