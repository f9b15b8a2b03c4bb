//! The bindings of the contract: the allowed imports, and calls with plain values.

mod placer_0_1;
mod wire;

use defaulting::exports::ipu::policy::defaulter;
use defaulting::ipu::policy::{logging, types};
use ipu_api::guest::admission::{Admission, Verdict, Violation};
use ipu_api::guest::placement::{ControllerView, Decision, PartitionRequest, PlaceAttempt};
use ipu_api::ipupolicy::Hook;
use placement::exports::ipu::policy::placer;
use validation::exports::ipu::policy::validator;
use wasmtime::component::{
    Component, ComponentExportIndex, ComponentNamedList, InstancePre, Lift, Linker, Lower,
};
use wasmtime::{Store, StoreContextMut};

use super::call_state::CallState;
use super::contract_version::ContractVersion;
use super::guest_error::GuestError;
use super::output_lines::LogLevel;
use super::wasi;

#[allow(missing_docs, unreachable_pub, dead_code, clippy::pedantic)]
mod defaulting {
    wasmtime::component::bindgen!({ path: "../../wit/0.2.0", world: "defaulting" });
}

#[allow(missing_docs, unreachable_pub, dead_code, clippy::pedantic)]
mod validation {
    wasmtime::component::bindgen!({
        path: "../../wit/0.2.0",
        world: "validation",
        with: {
            "ipu:policy/logging": super::defaulting::ipu::policy::logging,
            "ipu:policy/types": super::defaulting::ipu::policy::types,
        },
    });
}

#[allow(missing_docs, unreachable_pub, dead_code, clippy::pedantic)]
mod placement {
    wasmtime::component::bindgen!({
        path: "../../wit/0.2.0",
        world: "placement",
        with: {
            "ipu:policy/logging": super::defaulting::ipu::policy::logging,
            "ipu:policy/types": super::defaulting::ipu::policy::types,
        },
    });
}

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
///
/// Types of the versions are equal except in `placer`. So the generated types of the current
/// version also call guests of an earlier one, and each call compares them with those of the
/// component.
#[derive(Clone)]
pub(super) struct Linked {
    instance: InstancePre<CallState>,
    version: ContractVersion,
    hook: Hook,
    validate_settings: ComponentExportIndex,
    decide: ComponentExportIndex,
}

/// Writes one line of a guest to the log.
fn log(state: &mut CallState, level: logging::Level, context: &str, message: &str) {
    let level = match level {
        logging::Level::Trace => LogLevel::Trace,
        logging::Level::Debug => LogLevel::Debug,
        logging::Level::Info => LogLevel::Info,
        logging::Level::Warn => LogLevel::Warn,
        logging::Level::Error | logging::Level::Critical => LogLevel::Error,
    };
    state.log(level, context, message);
}

impl Linked {
    /// Looks up the exports of the world of `hook`, in the newest version that the component has.
    fn new(instance: InstancePre<CallState>, hook: Hook) -> wasmtime::Result<Self> {
        let component = instance.component();
        let version = exported_version(component, hook).unwrap_or(ContractVersion::CURRENT);
        let interface = version.interface(hook);
        let exported = component
            .get_export_index(None, &interface)
            .ok_or_else(|| wasmtime::format_err!("no exported instance named `{interface}`"))?;
        let function = |name: &str| {
            let index = component.get_export_index(Some(&exported), name);
            index.ok_or_else(|| wasmtime::format_err!("`{interface}` does not export `{name}`"))
        };
        let (validate_settings, decide) = (
            function("validate-settings")?,
            function(match hook {
                Hook::Defaulting => "apply-defaults",
                Hook::Validation => "validate",
                Hook::Placement => "place",
            })?,
        );
        Ok(Self {
            instance,
            version,
            hook,
            validate_settings,
            decide,
        })
    }

    /// Returns the hook of its world.
    pub(super) fn hook(&self) -> Hook {
        self.hook
    }

    /// Calls a function in a new instance.
    fn call<Params, Answer>(
        &self,
        store: &mut Store<CallState>,
        function: &ComponentExportIndex,
        params: Params,
    ) -> wasmtime::Result<Answer>
    where
        Params: ComponentNamedList + Lower,
        Answer: 'static,
        (Answer,): ComponentNamedList + Lift,
    {
        let instance = self.instance.instantiate(&mut *store)?;
        let function = instance.get_typed_func::<Params, (Answer,)>(&mut *store, function)?;
        let (answer,) = function.call(store, params)?;
        Ok(answer)
    }

    /// Validates settings in a new instance.
    pub(super) fn validate_settings(
        &self,
        store: &mut Store<CallState>,
        settings: &str,
    ) -> Answered<()> {
        let accepted: Result<(), String> =
            self.call(store, &self.validate_settings, (settings,))?;
        Ok(accepted.map_err(GuestError::Settings))
    }

    /// Calls a defaulting guest in a new instance.
    pub(super) fn default_object(
        &self,
        store: &mut Store<CallState>,
        settings: &str,
        (admission, object, old_object): ReviewText,
    ) -> Answered<DefaultingText> {
        if self.hook != Hook::Defaulting {
            return Ok(Err(GuestError::Missing(Hook::Defaulting)));
        }
        let request = defaulter::Request {
            admission: wire::admission(&admission),
            object,
            old_object,
            settings: settings.to_owned(),
        };
        let answer: Result<defaulter::Answer, String> =
            self.call(store, &self.decide, (&request,))?;
        Ok(answer.map(wire::defaulting).map_err(GuestError::Failed))
    }

    /// Calls a validation guest in a new instance.
    pub(super) fn validate(
        &self,
        store: &mut Store<CallState>,
        settings: &str,
        (admission, object, old_object): ReviewText,
    ) -> Answered<Verdict> {
        if self.hook != Hook::Validation {
            return Ok(Err(GuestError::Missing(Hook::Validation)));
        }
        let request = validator::Request {
            admission: wire::admission(&admission),
            object,
            old_object,
            settings: settings.to_owned(),
        };
        let answer: Result<validator::Verdict, String> =
            self.call(store, &self.decide, (&request,))?;
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
        if self.hook != Hook::Placement {
            return Ok(Err(GuestError::Missing(Hook::Placement)));
        }
        let request = wire::place_request(request, settings);
        let controllers: Vec<_> = controllers.iter().map(wire::controller).collect();
        let attempts: Vec<_> = attempts.iter().map(wire::attempt).collect();
        let answer: Result<placer::Decision, String> = match self.version {
            ContractVersion::V0_2 => {
                let params = (&request, &controllers[..], &attempts[..]);
                self.call(store, &self.decide, params)?
            }
            ContractVersion::V0_1 => {
                let request = placer_0_1::Request::from(request);
                // These guests do not know of unschedulable controllers, and must not choose them.
                let controllers: Vec<_> = controllers
                    .into_iter()
                    .filter(|controller| controller.unschedulable.is_none())
                    .map(placer_0_1::Controller::from)
                    .collect();
                let params = (&request, &controllers[..], &attempts[..]);
                self.call(store, &self.decide, params)?
            }
        };
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
    let of_contract = ContractVersion::ALL
        .iter()
        .any(|version| version.allows_import(name));
    of_contract || wasi::supported_interface(name).is_some()
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

/// Returns the hook whose interface a component exports, in any version.
pub(super) fn exported_hook(component: &Component) -> Option<Hook> {
    let mut hooks = Hook::ALL.into_iter();
    hooks.find(|hook| exported_version(component, *hook).is_some())
}

/// Returns the newest version of the interface of `hook` that a component exports.
fn exported_version(component: &Component, hook: Hook) -> Option<ContractVersion> {
    ContractVersion::ALL.into_iter().find(|version| {
        let interface = version.interface(hook);
        component.get_export_index(None, &interface).is_some()
    })
}

/// Links a component to its allowed imports, and checks its exports against the world of `hook`.
pub(super) fn link(component: &Component, hook: Hook) -> wasmtime::Result<Linked> {
    let mut linker = Linker::<CallState>::new(component.engine());
    for version in ContractVersion::ALL {
        let mut logging = linker.instance(&version.logging())?;
        logging.func_wrap(
            "log",
            |mut store: StoreContextMut<'_, CallState>,
             (level, context, message): (logging::Level, String, String)| {
                log(store.data_mut(), level, &context, &message);
                Ok(())
            },
        )?;
    }
    wasi::add_to_linker(&mut linker, component)?;
    Linked::new(linker.instantiate_pre(component)?, hook)
}
