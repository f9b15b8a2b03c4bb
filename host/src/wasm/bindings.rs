//! Where the wire types of the contract stop: which version of it a component speaks, what it may
//! import, and calls with plain values.

mod v0_1;
mod v0_2;

use wasmtime::Store;
use wasmtime::component::{Component, InstancePre, Linker};

use super::call::GuestError;
use super::facts::Admission;
use super::model::{ControllerView, Decision, PlaceAttempt, PlaceRequest, Slot, Verdict};
use super::store::CallState;
use super::wasi;

/// What a call of a guest ends in: a trap or a broken answer; the guest's own no; its answer.
pub(super) type Answered<T> = wasmtime::Result<Result<T, GuestError>>;

/// What a defaulting policy answers, before its text is read.
pub(super) struct DefaultedText {
    /// The whole object as JSON.
    pub(super) object: String,
    /// Sentences for the user.
    pub(super) warnings: Vec<String>,
}

/// A component, linked and checked against the world of its slot, in the version that it speaks. Cheap
/// to clone.
#[derive(Clone)]
pub(super) enum Linked {
    /// `ipu:policy@0.1.0`: a guest of this version hears nothing of facts.
    V0_1(v0_1::Linked),
    /// `ipu:policy@0.2.0`.
    V0_2(v0_2::Linked),
}

impl Linked {
    /// The slot whose world it was checked against.
    pub(super) fn slot(&self) -> Slot {
        match self {
            Self::V0_1(linked) => linked.slot(),
            Self::V0_2(linked) => linked.slot(),
        }
    }

    /// Asks a defaulting policy in a fresh instance.
    pub(super) fn default_object(
        &self,
        store: &mut Store<CallState>,
        settings: &str,
        admission: &Admission,
        object: String,
        old_object: Option<String>,
    ) -> Answered<DefaultedText> {
        match self {
            Self::V0_1(linked) => {
                linked.default_object(store, settings, admission, object, old_object)
            }
            Self::V0_2(linked) => {
                linked.default_object(store, settings, admission, object, old_object)
            }
        }
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
        match self {
            Self::V0_1(linked) => linked.validate(store, settings, object, old_object),
            Self::V0_2(linked) => linked.validate(store, settings, admission, object, old_object),
        }
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
        match self {
            Self::V0_1(linked) => linked.place(store, settings, request, controllers, attempts),
            Self::V0_2(linked) => linked.place(store, settings, request, controllers, attempts),
        }
    }
}

/// The interfaces of the contract that a policy may import, of every version that is spoken.
const IMPORTS: [&str; 3] = [v0_1::LOG, v0_2::LOG, v0_2::FACTS];

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

/// The slot whose interface a component exports, in any version that is spoken.
pub(super) fn exported_slot(component: &Component) -> Option<Slot> {
    let interfaces = v0_2::INTERFACES.into_iter().chain(v0_1::INTERFACES);
    interfaces
        .into_iter()
        .find_map(|(slot, interface)| exports_interface(component, interface).then_some(slot))
}

/// Links a component to what it may import, and checks that it exports what the world of `slot`
/// asks for. One that exports nothing of any version is told what is missing of the newest.
pub(super) fn link(component: &Component, slot: Slot) -> wasmtime::Result<Linked> {
    let mut linker = Linker::<CallState>::new(component.engine());
    v0_1::add_to_linker(&mut linker)?;
    v0_2::add_to_linker(&mut linker)?;
    wasi::add_to_linker(&mut linker, component)?;
    let instance: InstancePre<CallState> = linker.instantiate_pre(component)?;
    let mut earlier = v0_1::INTERFACES.into_iter();
    let is_earlier =
        earlier.any(|(of, interface)| of == slot && exports_interface(component, interface));
    Ok(if is_earlier {
        Linked::V0_1(v0_1::Linked::new(instance, slot)?)
    } else {
        Linked::V0_2(v0_2::Linked::new(instance, slot)?)
    })
}

fn exports_interface(component: &Component, interface: &str) -> bool {
    component.get_export_index(None, interface).is_some()
}
