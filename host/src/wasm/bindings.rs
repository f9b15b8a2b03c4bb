//! The wire types of the three worlds, and their conversion to plain values. They stop here.

use wasmtime::component::{Component, HasSelf, Linker};

use super::model::{
    ControllerView, Decision, Operation, PassedOver, PlaceAttempt, PlaceOutcome, PlaceRequest,
    Slot, Verdict, Violation,
};
use super::store::{CallState, LogLevel};
use defaulting::exports::ipu::policy::defaulter;
use defaulting::ipu::policy::log;
use placement::exports::ipu::policy::placer;
use validation::exports::ipu::policy::validator;

#[allow(missing_docs, unreachable_pub, clippy::pedantic)]
mod defaulting {
    wasmtime::component::bindgen!({ path: "../wit", world: "defaulting" });
}

#[allow(missing_docs, unreachable_pub, clippy::pedantic)]
mod validation {
    wasmtime::component::bindgen!({
        path: "../wit",
        world: "validation",
        with: { "ipu:policy/log": super::defaulting::ipu::policy::log },
    });
}

#[allow(missing_docs, unreachable_pub, clippy::pedantic)]
mod placement {
    wasmtime::component::bindgen!({
        path: "../wit",
        world: "placement",
        with: { "ipu:policy/log": super::defaulting::ipu::policy::log },
    });
}

/// The one interface that a policy may import.
const LOG: &str = "ipu:policy/log@0.1.0";

/// A component, linked and checked against the world of its slot. Cheap to clone.
#[derive(Clone)]
pub(super) enum Linked {
    /// A defaulting policy.
    Defaulting(defaulting::DefaultingPre<CallState>),
    /// A validation policy.
    Validation(validation::ValidationPre<CallState>),
    /// A placement policy.
    Placement(placement::PlacementPre<CallState>),
}

impl Linked {
    /// The slot whose world it was checked against.
    pub(super) fn slot(&self) -> Slot {
        match self {
            Self::Defaulting(_) => Slot::Defaulting,
            Self::Validation(_) => Slot::Validation,
            Self::Placement(_) => Slot::Placement,
        }
    }
}

impl log::Host for CallState {
    fn write(&mut self, level: log::Level, message: String) {
        let level = match level {
            log::Level::Debug => LogLevel::Debug,
            log::Level::Info => LogLevel::Info,
            log::Level::Warn => LogLevel::Warn,
        };
        self.log(level, &message);
    }
}

/// Names of what a component imports.
pub(super) fn imports(component: &Component) -> Vec<String> {
    component
        .component_type()
        .imports(component.engine())
        .map(|(name, _)| name.to_owned())
        .collect()
}

/// Names of the imports of a component that no policy may have.
pub(super) fn forbidden_imports(component: &Component) -> Vec<String> {
    let mut names = imports(component);
    names.retain(|name| !is_allowed_import(name));
    names
}

/// Whether a policy may import what has this name.
pub(super) fn is_allowed_import(name: &str) -> bool {
    name == LOG
}

/// Names of what a component exports, in one line.
pub(super) fn exports(component: &Component) -> String {
    let names: Vec<_> = component
        .component_type()
        .exports(component.engine())
        .map(|(name, _)| name.to_owned())
        .collect();
    if names.is_empty() {
        return "nothing".to_owned();
    }
    names.join(", ")
}

/// The slot whose interface a component exports.
pub(super) fn exported_slot(component: &Component) -> Option<Slot> {
    let exports = |interface| component.get_export_index(None, interface).is_some();
    [
        (Slot::Defaulting, "ipu:policy/defaulter@0.1.0"),
        (Slot::Validation, "ipu:policy/validator@0.1.0"),
        (Slot::Placement, "ipu:policy/placer@0.1.0"),
    ]
    .into_iter()
    .find_map(|(slot, interface)| exports(interface).then_some(slot))
}

/// Links a component to `log` and checks that it exports what the world of `slot` asks for.
pub(super) fn link(component: &Component, slot: Slot) -> wasmtime::Result<Linked> {
    let mut linker = Linker::<CallState>::new(component.engine());
    log::add_to_linker::<_, HasSelf<CallState>>(&mut linker, |state| state)?;
    let instance = linker.instantiate_pre(component)?;
    Ok(match slot {
        Slot::Defaulting => Linked::Defaulting(defaulting::DefaultingPre::new(instance)?),
        Slot::Validation => Linked::Validation(validation::ValidationPre::new(instance)?),
        Slot::Placement => Linked::Placement(placement::PlacementPre::new(instance)?),
    })
}

pub(super) fn defaulting_request(
    operation: Operation,
    object: String,
    old_object: Option<String>,
) -> defaulter::Request {
    defaulter::Request {
        operation: match operation {
            Operation::Create => defaulter::Operation::Create,
            Operation::Update => defaulter::Operation::Update,
        },
        object,
        old_object,
    }
}

pub(super) fn validation_request(object: String, old_object: Option<String>) -> validator::Request {
    validator::Request { object, old_object }
}

pub(super) fn verdict(wire: validator::Verdict) -> Verdict {
    Verdict {
        violations: wire
            .violations
            .into_iter()
            .map(|validator::Violation { field, message }| Violation { field, message })
            .collect(),
        warnings: wire.warnings,
    }
}

pub(super) fn place_request(request: &PlaceRequest) -> placer::Request {
    placer::Request {
        namespace: request.namespace.clone(),
        owner: request.owner.clone(),
        slot: request.slot,
        ipus: request.ipus,
        gcds: request.gcds,
        node_selector: request
            .node_selector
            .iter()
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect(),
    }
}

pub(super) fn controllers(controllers: &[ControllerView]) -> Vec<placer::Controller> {
    controllers
        .iter()
        .map(|controller| placer::Controller {
            name: controller.name.clone(),
            label_key: controller.label_key.clone(),
            label_value: controller.label_value.clone(),
            has_nodes: controller.has_nodes,
            reachable: controller.unreachable.is_none(),
            unreachable_reason: controller.unreachable.clone(),
            total_ipus: controller.total_ipus,
            used_ipus: controller.used_ipus,
            largest_free: controller.largest_free,
        })
        .collect()
}

pub(super) fn attempts(attempts: &[PlaceAttempt]) -> Vec<placer::Attempt> {
    attempts
        .iter()
        .map(|attempt| placer::Attempt {
            controller: attempt.controller.clone(),
            outcome: match attempt.outcome {
                PlaceOutcome::Refused => placer::Outcome::Refused,
                PlaceOutcome::Unreachable => placer::Outcome::Unreachable,
            },
            reason: attempt.reason.clone(),
        })
        .collect()
}

pub(super) fn decision(wire: placer::Decision) -> Decision {
    match wire {
        placer::Decision::Try(controller) => Decision::Try(controller),
        placer::Decision::Wait(passed_over) => Decision::Wait(
            passed_over
                .into_iter()
                .map(|placer::PassedOver { controller, reason }| PassedOver { controller, reason })
                .collect(),
        ),
        placer::Decision::Reject(reason) => Decision::Reject(reason),
    }
}
