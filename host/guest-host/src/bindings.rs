//! The bindings of the contract: the allowed imports, and calls with plain values.

mod wire;

use wasmtime::Store;
use wasmtime::component::{Component, HasSelf, InstancePre, Linker};

use super::call_state::CallState;
use super::context::Admission;
use super::guest_error::GuestError;
use super::model::{
    ControllerView, Decision, Hook, PartitionRequest, PlaceAttempt, Verdict, Violation,
};
use super::output_lines::LogLevel;
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

/// Package and version of the contract.
pub(super) const PACKAGE: &str = "ipu:policy@0.1.0";

/// The interfaces of the contract that a policy may import.
const IMPORTS: [&str; 2] = ["ipu:policy/logging@0.1.0", "ipu:policy/types@0.1.0"];

/// The interface that a component exports for each hook.
const INTERFACES: [(Hook, &str); 3] = [
    (Hook::Defaulting, "ipu:policy/defaulter@0.1.0"),
    (Hook::Validation, "ipu:policy/validator@0.1.0"),
    (Hook::Placement, "ipu:policy/placer@0.1.0"),
];

/// Result of a call: a trap or an invalid answer, an error of the guest, or its answer.
pub(super) type Answered<T> = wasmtime::Result<Result<T, GuestError>>;

/// An admission request, with the object and the previous object as JSON.
pub(super) type ReviewText = (Admission, String, Option<String>);

/// The answer of a defaulting guest, before its object is parsed.
pub(super) enum DefaultingText {
    /// The object with its defaults.
    Defaulted {
        /// The whole object as JSON.
        object: String,
        /// Warnings for the user.
        warnings: Vec<String>,
    },
    /// The object is refused.
    Refused(Vec<Violation>),
}

/// A component, linked and checked against the world of its hook. Cheap to clone.
#[derive(Clone)]
pub(super) enum Linked {
    /// A defaulting guest.
    Defaulting(defaulting::DefaultingPre<CallState>),
    /// A validation guest.
    Validation(validation::ValidationPre<CallState>),
    /// A placement guest.
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
    /// Checks the exports against the world of `hook`.
    fn new(instance: InstancePre<CallState>, hook: Hook) -> wasmtime::Result<Self> {
        Ok(match hook {
            Hook::Defaulting => Self::Defaulting(defaulting::DefaultingPre::new(instance)?),
            Hook::Validation => Self::Validation(validation::ValidationPre::new(instance)?),
            Hook::Placement => Self::Placement(placement::PlacementPre::new(instance)?),
        })
    }

    /// Returns the hook of its world.
    pub(super) fn hook(&self) -> Hook {
        match self {
            Self::Defaulting(_) => Hook::Defaulting,
            Self::Validation(_) => Hook::Validation,
            Self::Placement(_) => Hook::Placement,
        }
    }

    /// Validates settings in a new instance.
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

    /// Calls a defaulting guest in a new instance.
    pub(super) fn default_object(
        &self,
        store: &mut Store<CallState>,
        settings: &str,
        (admission, object, old_object): ReviewText,
    ) -> Answered<DefaultingText> {
        let Self::Defaulting(pre) = self else {
            return Ok(Err(GuestError::Missing(Hook::Defaulting)));
        };
        let request = defaulter::Request {
            admission: wire::admission(&admission),
            object,
            old_object,
            settings: settings.to_owned(),
        };
        let guest = pre.instantiate(&mut *store)?;
        let guest = guest.ipu_policy_defaulter();
        let answer = guest.call_apply_defaults(store, &request)?;
        Ok(answer.map(wire::defaulting).map_err(GuestError::Failed))
    }

    /// Calls a validation guest in a new instance.
    pub(super) fn validate(
        &self,
        store: &mut Store<CallState>,
        settings: &str,
        (admission, object, old_object): ReviewText,
    ) -> Answered<Verdict> {
        let Self::Validation(pre) = self else {
            return Ok(Err(GuestError::Missing(Hook::Validation)));
        };
        let request = validator::Request {
            admission: wire::admission(&admission),
            object,
            old_object,
            settings: settings.to_owned(),
        };
        let guest = pre.instantiate(&mut *store)?;
        let guest = guest.ipu_policy_validator();
        let answer = guest.call_validate(store, &request)?;
        Ok(answer.map(wire::verdict).map_err(GuestError::Failed))
    }

    /// Calls a placement guest in a new instance.
    pub(super) fn place(
        &self,
        store: &mut Store<CallState>,
        settings: &str,
        request: &PartitionRequest,
        controllers: &[ControllerView],
        attempts: &[PlaceAttempt],
    ) -> Answered<Decision> {
        let Self::Placement(pre) = self else {
            return Ok(Err(GuestError::Missing(Hook::Placement)));
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

/// Returns the names of the imports of a component.
pub(super) fn imports(component: &Component) -> Vec<String> {
    component
        .component_type()
        .imports(component.engine())
        .map(|(name, _)| name.to_owned())
        .collect()
}

/// Returns the names of the forbidden imports of a component.
pub(super) fn forbidden_imports(component: &Component) -> Vec<String> {
    let mut names = imports(component);
    names.retain(|name| !is_allowed_import(name));
    names
}

/// Whether a policy may have the import with this name.
pub(super) fn is_allowed_import(name: &str) -> bool {
    IMPORTS.contains(&name) || wasi::supported_interface(name).is_some()
}

/// Returns the names of the exports of a component, in one line.
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

/// Returns the hook whose interface a component exports.
pub(super) fn exported_hook(component: &Component) -> Option<Hook> {
    let exported = |interface| component.get_export_index(None, interface).is_some();
    INTERFACES
        .into_iter()
        .find_map(|(hook, interface)| exported(interface).then_some(hook))
}

/// Links a component to its allowed imports, and checks its exports against the world of `hook`.
pub(super) fn link(component: &Component, hook: Hook) -> wasmtime::Result<Linked> {
    let mut linker = Linker::<CallState>::new(component.engine());
    logging::add_to_linker::<_, HasSelf<CallState>>(&mut linker, |state| state)?;
    wasi::add_to_linker(&mut linker, component)?;
    Linked::new(linker.instantiate_pre(component)?, hook)
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
