//! Where the wire types of the contract stop: what a component may import, and calls with plain values.

mod wire;

use wasmtime::Store;
use wasmtime::component::{Component, HasSelf, InstancePre, Linker};

use super::call::GuestError;
use super::facts::Admission;
use super::model::{
    ControllerView, Decision, PlaceAttempt, PlaceRequest, Slot, Verdict, Violation,
};
use super::store::{CallState, LogLevel};
use super::wasi;
use defaulting::exports::ipu::policy::defaulter;
use defaulting::ipu::policy::{logging, types};
use placement::exports::ipu::policy::placer;
use validation::exports::ipu::policy::validator;

#[allow(missing_docs, unreachable_pub, clippy::pedantic)]
mod defaulting {
    wasmtime::component::bindgen!({ path: "../../wit", world: "defaulting" });
}

#[allow(missing_docs, unreachable_pub, clippy::pedantic)]
mod validation {
    wasmtime::component::bindgen!({
        path: "../../wit",
        world: "validation",
        with: {
            "ipu:policy/logging": super::defaulting::ipu::policy::logging,
            "ipu:policy/types": super::defaulting::ipu::policy::types,
        },
    });
}

#[allow(missing_docs, unreachable_pub, clippy::pedantic)]
mod placement {
    wasmtime::component::bindgen!({
        path: "../../wit",
        world: "placement",
        with: {
            "ipu:policy/logging": super::defaulting::ipu::policy::logging,
            "ipu:policy/types": super::defaulting::ipu::policy::types,
        },
    });
}

/// The package of the contract, with its version.
pub(super) const PACKAGE: &str = "ipu:policy@0.1.0";

/// The interfaces of the contract that a policy may import.
const IMPORTS: [&str; 2] = ["ipu:policy/logging@0.1.0", "ipu:policy/types@0.1.0"];

/// The interface that a component exports for each slot.
const INTERFACES: [(Slot, &str); 3] = [
    (Slot::Defaulting, "ipu:policy/defaulter@0.1.0"),
    (Slot::Validation, "ipu:policy/validator@0.1.0"),
    (Slot::Placement, "ipu:policy/placer@0.1.0"),
];

/// What a call of a guest ends in: a trap or a broken answer; its own error; its answer.
pub(super) type Answered<T> = wasmtime::Result<Result<T, GuestError>>;

/// What a defaulting policy answers, before its text is read.
pub(super) enum DefaultingText {
    /// The object as it should be.
    Defaulted {
        /// The whole object as JSON.
        object: String,
        /// Sentences for the user.
        warnings: Vec<String>,
    },
    /// The object is refused.
    Refused(Vec<Violation>),
}

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

impl logging::Host for CallState {
    fn log(&mut self, level: logging::Level, context: String, message: String) {
        let level = match level {
            logging::Level::Trace => LogLevel::Trace,
            logging::Level::Debug => LogLevel::Debug,
            logging::Level::Info => LogLevel::Info,
            logging::Level::Warn => LogLevel::Warn,
            logging::Level::Error | logging::Level::Critical => LogLevel::Error,
        };
        self.log(level, &context, &message);
    }
}

impl Linked {
    /// Checks the exports against the world of `slot`.
    fn new(instance: InstancePre<CallState>, slot: Slot) -> wasmtime::Result<Self> {
        Ok(match slot {
            Slot::Defaulting => Self::Defaulting(defaulting::DefaultingPre::new(instance)?),
            Slot::Validation => Self::Validation(validation::ValidationPre::new(instance)?),
            Slot::Placement => Self::Placement(placement::PlacementPre::new(instance)?),
        })
    }

    /// The slot whose world it was checked against.
    pub(super) fn slot(&self) -> Slot {
        match self {
            Self::Defaulting(_) => Slot::Defaulting,
            Self::Validation(_) => Slot::Validation,
            Self::Placement(_) => Slot::Placement,
        }
    }

    /// Asks a policy in a fresh instance whether it accepts these settings.
    pub(super) fn validate_settings(
        &self,
        store: &mut Store<CallState>,
        settings: &str,
    ) -> Answered<()> {
        let accepted = match self {
            Self::Defaulting(pre) => {
                let guest = pre.instantiate(&mut *store)?;
                let guest = guest.ipu_policy_defaulter();
                guest.call_validate_settings(store, settings)?
            }
            Self::Validation(pre) => {
                let guest = pre.instantiate(&mut *store)?;
                let guest = guest.ipu_policy_validator();
                guest.call_validate_settings(store, settings)?
            }
            Self::Placement(pre) => {
                let guest = pre.instantiate(&mut *store)?;
                let guest = guest.ipu_policy_placer();
                guest.call_validate_settings(store, settings)?
            }
        };
        Ok(accepted.map_err(GuestError::Settings))
    }

    /// Asks a defaulting policy in a fresh instance.
    pub(super) fn default_object(
        &self,
        store: &mut Store<CallState>,
        settings: &str,
        admission: &Admission,
        object: String,
        old_object: Option<String>,
    ) -> Answered<DefaultingText> {
        let Self::Defaulting(pre) = self else {
            return Ok(Err(GuestError::Missing(Slot::Defaulting)));
        };
        let request = defaulter::Request {
            admission: wire::admission(admission),
            object,
            old_object,
            settings: settings.to_owned(),
        };
        let guest = pre.instantiate(&mut *store)?;
        let guest = guest.ipu_policy_defaulter();
        let answer = guest.call_apply_defaults(store, &request)?;
        Ok(answer.map(wire::defaulting).map_err(GuestError::Failed))
    }

    /// Asks a validation policy in a fresh instance.
    pub(super) fn validate(
        &self,
        store: &mut Store<CallState>,
        settings: &str,
        admission: &Admission,
        object: String,
        old_object: Option<String>,
    ) -> Answered<Verdict> {
        let Self::Validation(pre) = self else {
            return Ok(Err(GuestError::Missing(Slot::Validation)));
        };
        let request = validator::Request {
            admission: wire::admission(admission),
            object,
            old_object,
            settings: settings.to_owned(),
        };
        let guest = pre.instantiate(&mut *store)?;
        let guest = guest.ipu_policy_validator();
        let answer = guest.call_validate(store, &request)?;
        Ok(answer.map(wire::verdict).map_err(GuestError::Failed))
    }

    /// Asks a placement policy in a fresh instance.
    pub(super) fn place(
        &self,
        store: &mut Store<CallState>,
        settings: &str,
        request: &PlaceRequest,
        controllers: &[ControllerView],
        attempts: &[PlaceAttempt],
    ) -> Answered<Decision> {
        let Self::Placement(pre) = self else {
            return Ok(Err(GuestError::Missing(Slot::Placement)));
        };
        let request = wire::place_request(request, settings);
        let controllers: Vec<_> = controllers.iter().map(wire::controller).collect();
        let attempts: Vec<_> = attempts.iter().map(wire::attempt).collect();
        let guest = pre.instantiate(&mut *store)?;
        let guest = guest.ipu_policy_placer();
        let answer = guest.call_place(store, &request, &controllers, &attempts)?;
        Ok(answer.map(wire::decision).map_err(GuestError::Failed))
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
    IMPORTS.contains(&name) || wasi::known(name).is_some()
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
    let exported = |interface| component.get_export_index(None, interface).is_some();
    INTERFACES
        .into_iter()
        .find_map(|(slot, interface)| exported(interface).then_some(slot))
}

/// Links a component to what it may import, and checks that it exports what the world of `slot`
/// asks for.
pub(super) fn link(component: &Component, slot: Slot) -> wasmtime::Result<Linked> {
    let mut linker = Linker::<CallState>::new(component.engine());
    logging::add_to_linker::<_, HasSelf<CallState>>(&mut linker, |state| state)?;
    wasi::add_to_linker(&mut linker, component)?;
    Linked::new(linker.instantiate_pre(component)?, slot)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CONTRACT;

    #[test]
    fn the_interfaces_are_those_of_the_contract() {
        assert!(CONTRACT.contains(&format!("\npackage {PACKAGE};\n")));
        let (package, version) = PACKAGE.split_once('@').unwrap();
        for name in IMPORTS.into_iter().chain(INTERFACES.map(|(_, name)| name)) {
            let interface = name
                .strip_prefix(&format!("{package}/"))
                .and_then(|name| name.strip_suffix(&format!("@{version}")))
                .unwrap_or_else(|| panic!("{name} is not of {PACKAGE}"));
            assert!(CONTRACT.contains(&format!("\ninterface {interface} {{\n")));
        }
    }
}
