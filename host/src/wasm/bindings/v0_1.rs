//! Components of `ipu:policy@0.1.0`, which hear nothing of facts.

use wasmtime::Store;
use wasmtime::component::{HasSelf, InstancePre, Linker};

use super::{Answered, DefaultedText};
use crate::wasm::call::GuestError;
use crate::wasm::facts::Admission;
use crate::wasm::model::{
    ControllerView, Decision, Operation, PassedOver, PlaceAttempt, PlaceOutcome, PlaceRequest,
    Slot, Verdict, Violation,
};
use crate::wasm::store::{CallState, LogLevel};
use defaulting::exports::ipu::policy::defaulter;
use defaulting::ipu::policy::log;
use placement::exports::ipu::policy::placer;
use validation::exports::ipu::policy::validator;

#[allow(missing_docs, unreachable_pub, clippy::pedantic)]
mod defaulting {
    wasmtime::component::bindgen!({ path: "../wit/0.1.0", world: "defaulting" });
}

#[allow(missing_docs, unreachable_pub, clippy::pedantic)]
mod validation {
    wasmtime::component::bindgen!({
        path: "../wit/0.1.0",
        world: "validation",
        with: { "ipu:policy/log": super::defaulting::ipu::policy::log },
    });
}

#[allow(missing_docs, unreachable_pub, clippy::pedantic)]
mod placement {
    wasmtime::component::bindgen!({
        path: "../wit/0.1.0",
        world: "placement",
        with: { "ipu:policy/log": super::defaulting::ipu::policy::log },
    });
}

/// The interface that such a component may import.
pub(super) const LOG: &str = "ipu:policy/log@0.1.0";

/// The interface that it exports for each slot.
pub(super) const INTERFACES: [(Slot, &str); 3] = [
    (Slot::Defaulting, "ipu:policy/defaulter@0.1.0"),
    (Slot::Validation, "ipu:policy/validator@0.1.0"),
    (Slot::Placement, "ipu:policy/placer@0.1.0"),
];

/// A component of this version.
#[derive(Clone)]
pub(in crate::wasm) enum Linked {
    /// A defaulting policy.
    Defaulting(defaulting::DefaultingPre<CallState>),
    /// A validation policy.
    Validation(validation::ValidationPre<CallState>),
    /// A placement policy.
    Placement(placement::PlacementPre<CallState>),
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

/// Gives components of this version what they may import.
pub(super) fn add_to_linker(linker: &mut Linker<CallState>) -> wasmtime::Result<()> {
    log::add_to_linker::<_, HasSelf<CallState>>(linker, |state| state)
}

impl Linked {
    /// Checks the exports against the world of `slot`.
    pub(super) fn new(instance: InstancePre<CallState>, slot: Slot) -> wasmtime::Result<Self> {
        Ok(match slot {
            Slot::Defaulting => Self::Defaulting(defaulting::DefaultingPre::new(instance)?),
            Slot::Validation => Self::Validation(validation::ValidationPre::new(instance)?),
            Slot::Placement => Self::Placement(placement::PlacementPre::new(instance)?),
        })
    }

    pub(super) fn slot(&self) -> Slot {
        match self {
            Self::Defaulting(_) => Slot::Defaulting,
            Self::Validation(_) => Slot::Validation,
            Self::Placement(_) => Slot::Placement,
        }
    }

    pub(super) fn default_object(
        &self,
        store: &mut Store<CallState>,
        settings: &str,
        admission: &Admission,
        object: String,
        old_object: Option<String>,
    ) -> Answered<DefaultedText> {
        let Self::Defaulting(pre) = self else {
            return Ok(Err(GuestError::Missing(Slot::Defaulting)));
        };
        let request = defaulter::Request {
            operation: match admission.operation {
                Operation::Create => defaulter::Operation::Create,
                Operation::Update => defaulter::Operation::Update,
            },
            object,
            old_object,
        };
        let guest = pre.instantiate(&mut *store)?;
        let guest = guest.ipu_policy_defaulter();
        if let Err(reason) = guest.call_configure(&mut *store, settings)? {
            return Ok(Err(GuestError::Settings(reason)));
        }
        let answer = guest.call_apply_defaults(store, &request)?;
        let text = |defaulter::Defaulted { object, warnings }| DefaultedText { object, warnings };
        Ok(answer.map(text).map_err(GuestError::Refused))
    }

    pub(super) fn validate(
        &self,
        store: &mut Store<CallState>,
        settings: &str,
        object: String,
        old_object: Option<String>,
    ) -> Answered<Verdict> {
        let Self::Validation(pre) = self else {
            return Ok(Err(GuestError::Missing(Slot::Validation)));
        };
        let request = validator::Request { object, old_object };
        let guest = pre.instantiate(&mut *store)?;
        let guest = guest.ipu_policy_validator();
        if let Err(reason) = guest.call_configure(&mut *store, settings)? {
            return Ok(Err(GuestError::Settings(reason)));
        }
        Ok(Ok(verdict(guest.call_validate(store, &request)?)))
    }

    pub(super) fn place(
        &self,
        store: &mut Store<CallState>,
        settings: &str,
        request: &PlaceRequest,
        seen: &[ControllerView],
        tried: &[PlaceAttempt],
    ) -> Answered<Decision> {
        let Self::Placement(pre) = self else {
            return Ok(Err(GuestError::Missing(Slot::Placement)));
        };
        let request = place_request(request);
        let seen: Vec<_> = seen.iter().map(controller).collect();
        let tried: Vec<_> = tried.iter().map(attempt).collect();
        let guest = pre.instantiate(&mut *store)?;
        let guest = guest.ipu_policy_placer();
        if let Err(reason) = guest.call_configure(&mut *store, settings)? {
            return Ok(Err(GuestError::Settings(reason)));
        }
        let answer = guest.call_place(store, &request, &seen, &tried)?;
        Ok(Ok(decision(answer)))
    }
}

fn verdict(wire: validator::Verdict) -> Verdict {
    Verdict {
        violations: wire
            .violations
            .into_iter()
            .map(|validator::Violation { field, message }| Violation { field, message })
            .collect(),
        warnings: wire.warnings,
    }
}

fn place_request(request: &PlaceRequest) -> placer::Request {
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

fn controller(view: &ControllerView) -> placer::Controller {
    placer::Controller {
        name: view.name.clone(),
        label_key: view.label_key.clone(),
        label_value: view.label_value.clone(),
        has_nodes: view.has_nodes,
        reachable: view.unreachable.is_none(),
        unreachable_reason: view.unreachable.clone(),
        total_ipus: view.total_ipus,
        used_ipus: view.used_ipus,
        largest_free: view.largest_free,
    }
}

fn attempt(attempt: &PlaceAttempt) -> placer::Attempt {
    placer::Attempt {
        controller: attempt.controller.clone(),
        outcome: match attempt.outcome {
            PlaceOutcome::Refused => placer::Outcome::Refused,
            PlaceOutcome::Unreachable => placer::Outcome::Unreachable,
        },
        reason: attempt.reason.clone(),
    }
}

fn decision(wire: placer::Decision) -> Decision {
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
