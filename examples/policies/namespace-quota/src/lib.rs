//! Namespace quota: no more than N IPUs in a namespace. It is enforced at placement, where two
//! requests cannot race; at admission it gives a warning. One component for both worlds.
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
mod placement {
    wit_bindgen::generate!({ path: "wit", world: "placement" });
}
pub mod quota;
/// Bindings of the contract that `wit-bindgen` generates.
#[allow(
    unsafe_code,
    missing_docs,
    unreachable_pub,
    clippy::all,
    clippy::pedantic
)]
#[allow(unused_imports, clippy::unwrap_used, clippy::panic)]
mod validation {
    wit_bindgen::generate!({ path: "wit", world: "validation" });
}

use placement::exports::ipu::policy::placer::{self, Decision, PassedOver};
use quota::{Namespace, Settings};
use validation::exports::ipu::policy::validator::{self, Verdict};

/// The component: conversions, and the decisions in `quota`.
struct Component;

impl placer::Guest for Component {
    fn validate_settings(settings: String) -> Result<(), String> {
        Settings::parse(&settings).map(drop)
    }

    fn place(
        request: placer::Request,
        controllers: Vec<placer::Controller>,
        attempts: Vec<placer::Attempt>,
    ) -> Result<Decision, String> {
        let settings = Settings::parse(&request.settings)?;
        let gang = request.options.gang.map(|gang| (gang.size, gang.held));
        let wanted = quota::wanted(request.ipus, gang);
        let namespace = Namespace {
            name: &request.namespace.name,
            labels: request.namespace.labels.as_deref(),
            used: request.namespace.usage.map(|usage| usage.ipus),
        };
        if let Err(why) = quota::allowed(&settings, namespace, wanted) {
            let passed_over = controllers.into_iter().map(|controller| PassedOver {
                controller: controller.name,
                reason: why.clone(),
            });
            return Ok(Decision::Wait(passed_over.collect()));
        }
        Ok(first_fit(&request, controllers, &attempts))
    }
}

impl validator::Guest for Component {
    fn validate_settings(settings: String) -> Result<(), String> {
        Settings::parse(&settings).map(drop)
    }

    fn validate(request: validator::Request) -> Result<Verdict, String> {
        let settings = Settings::parse(&request.settings)?;
        let known = &request.admission.namespace;
        let namespace = Namespace {
            name: &known.name,
            labels: known.labels.as_deref(),
            used: known.usage.map(|usage| usage.ipus),
        };
        let object = serde_json::from_str(&request.object).unwrap_or_default();
        let old = request.old_object.as_deref();
        let old = old.and_then(|old| serde_json::from_str(old).ok());
        let more = quota::of_job(&object).saturating_sub(old.as_ref().map_or(0, quota::of_job));
        let checked = quota::allowed(&settings, namespace, more);
        Ok(Verdict {
            violations: Vec::new(),
            warnings: checked.err().into_iter().collect(),
        })
    }
}

/// The first controller with enough free capacity.
fn first_fit(
    request: &placer::Request,
    controllers: Vec<placer::Controller>,
    attempts: &[placer::Attempt],
) -> Decision {
    let mut passed_over = Vec::new();
    for controller in controllers {
        let asks = request.node_selector.iter();
        let contradicts = asks
            .filter(|(key, _)| *key == controller.label_key)
            .any(|(_, value)| *value != controller.label_value);
        let tried = attempts
            .iter()
            .find(|one| one.controller == controller.name);
        let reason = if let Some(tried) = tried {
            tried.reason.clone()
        } else if controller.unreachable.is_some() {
            "it does not answer".to_owned()
        } else if !controller.has_nodes || contradicts {
            "no node that the Pods may run on reaches it".to_owned()
        } else if let Some(reason) = controller.unschedulable {
            reason
        } else if controller.largest_free < request.ipus {
            let (used, total) = (controller.used_ipus, controller.total_ipus);
            format!("{used} of its {total} IPUs are used")
        } else {
            return Decision::Try(controller.name);
        };
        let controller = controller.name;
        passed_over.push(PassedOver { controller, reason });
    }
    Decision::Wait(passed_over)
}

/// The exported functions; their unsafe code is generated, like that of the bindings.
#[cfg(target_family = "wasm")]
#[allow(unsafe_code)]
mod exports {
    use super::Component;

    crate::placement::export!(Component with_types_in crate::placement);
    crate::validation::export!(Component with_types_in crate::validation);
}
