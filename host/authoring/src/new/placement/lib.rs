//! The component: conversions between the contract and the decision in `policy`.
#![deny(unsafe_code)]

/// Bindings that `wit-bindgen` generates from the contract.
#[allow(unsafe_code, unused, clippy::all)]
mod bindings {
    wit_bindgen::generate!({ path: "wit", world: "placement" });
}
mod policy;

use bindings::exports::ipu::policy::placer::{
    Attempt, Controller, Decision, Guest, PassedOver, Request,
};

struct Component;

impl Guest for Component {
    fn validate_settings(settings: String) -> Result<(), String> {
        match serde_json::from_str(&settings) {
            Ok(serde_json::Value::Object(_)) => Ok(()),
            _ => Err("the settings are not a JSON object".to_owned()),
        }
    }

    fn place(
        request: Request,
        controllers: Vec<Controller>,
        attempts: Vec<Attempt>,
    ) -> Result<Decision, String> {
        let candidates: Vec<_> = controllers
            .into_iter()
            .map(|controller| candidate(controller, &request, &attempts))
            .collect();
        Ok(match policy::choose(request.ipus, &candidates) {
            policy::Choice::Try(name) => Decision::Try(name),
            policy::Choice::Wait(passed) => Decision::Wait(
                passed
                    .into_iter()
                    .map(|(controller, reason)| PassedOver { controller, reason })
                    .collect(),
            ),
            policy::Choice::Reject(reason) => Decision::Reject(reason),
        })
    }
}

/// Converts a controller. The operator overrules the choice of a controller that does not answer,
/// that was tried before, or whose nodes the Pods exclude.
fn candidate(controller: Controller, request: &Request, attempts: &[Attempt]) -> policy::Candidate {
    let Controller {
        label_key,
        label_value,
        ..
    } = &controller;
    let asked = request
        .node_selector
        .iter()
        .find(|(key, _)| key == label_key);
    let tried = attempts
        .iter()
        .find(|attempt| attempt.controller == controller.name);
    let excluded = if asked.is_some_and(|(_, value)| value != label_value) {
        Some("its nodes are not those that the Pods ask for".to_owned())
    } else if let Some(reason) = &controller.unreachable {
        Some(format!("it does not answer: {reason}"))
    } else if !controller.has_nodes {
        Some(format!("no node is labelled {label_key}={label_value}"))
    } else if let Some(reason) = &controller.unschedulable {
        Some(reason.clone())
    } else {
        tried.map(|attempt| format!("was tried: {}", attempt.reason))
    };
    policy::Candidate {
        name: controller.name,
        excluded,
        total: controller.total_ipus,
        largest_free: controller.largest_free,
    }
}

/// The exported functions. Their unsafe code is generated.
#[cfg(target_family = "wasm")]
#[allow(unsafe_code)]
mod exports {
    use super::Component;

    crate::bindings::export!(Component with_types_in crate::bindings);
}
