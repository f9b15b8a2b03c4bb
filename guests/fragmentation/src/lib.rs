//! The fragmentation-aware policy: decides on which V-IPU controller a partition is made so that large blocks of IPUs
//! stay together.
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
pub mod choice;

use bindings::exports::ipu::policy::placer::{self, Decision, Guest, PassedOver, Request};

/// The component: conversions, and the decision in `choice`.
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
        let controllers: Vec<_> = controllers
            .into_iter()
            .map(|controller| seen(controller, &request, &attempts))
            .collect();
        Ok(match choice::choose(request.ipus, &controllers) {
            choice::Choice::Try(controller) => Decision::Try(controller),
            choice::Choice::Wait(passed_over) => Decision::Wait(
                passed_over
                    .into_iter()
                    .map(|(controller, reason)| PassedOver { controller, reason })
                    .collect(),
            ),
            choice::Choice::Reject(reason) => Decision::Reject(reason),
        })
    }
}

/// A controller as the decision reads it. The words of the reasons are those of the serial walk, which
/// `kubectl ipu why` knows.
fn seen(
    controller: placer::Controller,
    request: &Request,
    attempts: &[placer::Attempt],
) -> choice::Controller {
    let placer::Controller {
        label_key,
        label_value,
        ..
    } = &controller;
    let mut selected = request.node_selector.iter();
    let selected = selected.find(|(key, _)| key == label_key);
    let mut tried = attempts.iter().rev();
    let tried = tried.find(|attempt| attempt.controller == controller.name);
    let blocker = if let Some((_, value)) = selected.filter(|(_, value)| value != label_value) {
        Some(choice::Blocker::Lasting(format!(
            "its nodes are labelled {label_key}={label_value}, and the Pods ask for \
             {label_key}={value}"
        )))
    } else if let Some(reason) = &controller.unreachable {
        Some(choice::Blocker::Passing(format!(
            "does not answer: {reason}"
        )))
    } else if !controller.has_nodes {
        Some(choice::Blocker::Passing(format!(
            "no node is labelled {label_key}={label_value}; label those that reach its IPUs"
        )))
    } else if let Some(reason) = &controller.unschedulable {
        Some(choice::Blocker::Passing(reason.clone()))
    } else {
        tried.map(|attempt| choice::Blocker::Passing(format!("was tried: {}", attempt.reason)))
    };
    let blocks = controller.free_blocks.iter();
    choice::Controller {
        blocker,
        total: controller.total_ipus,
        used: controller.used_ipus,
        largest_free: controller.largest_free,
        blocks: blocks.map(|block| block.ipus).collect(),
        name: controller.name,
    }
}

/// The exported functions; their unsafe code is generated, like that of the bindings.
#[cfg(target_family = "wasm")]
#[allow(unsafe_code)]
mod exports {
    use super::Component;

    crate::bindings::export!(Component with_types_in crate::bindings);
}
