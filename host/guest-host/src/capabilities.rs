//! Pure: what a component imports and exports, read from its bytes without compiling or running it.

use serde::Serialize;
use wit_component::{DecodedWasm, WitPrinter, decode};
use wit_parser::{Function, InterfaceId, Resolve, WorldItem, WorldKey};

use super::bindings;
use super::componentize::CONTRACT;
use super::model::Slot;

/// What a component can do and what it needs for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Capabilities {
    /// The world that it is made for; none where it exports no interface of `ipu:policy`.
    pub world: Option<Slot>,
    /// The package with the version that it was built against, such as `ipu:policy@0.1.0`.
    pub package: Option<String>,
    /// What it imports, by name.
    pub imports: Vec<Import>,
    /// What it exports, by name.
    pub exports: Vec<Export>,
    /// What its world asks for and it does not export.
    pub lacks: Vec<Lack>,
}

/// Something that a component imports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Import {
    /// Its name, such as `ipu:policy/logging@0.1.0`.
    pub name: String,
    /// Whether the operator links it.
    pub allowed: bool,
    /// What it is answered by, or why it is refused.
    pub why: String,
}

/// Something that a component exports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Export {
    /// Its name, such as `ipu:policy/placer@0.1.0`.
    pub name: String,
    /// The functions in it, as WIT; of a lone function, that function.
    pub functions: Vec<String>,
}

/// A function that a world asks for and a component does not export as it should.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Lack {
    /// The world that asks for it.
    pub world: &'static str,
    /// The interface that it belongs to.
    pub interface: String,
    /// The function as it should be, as WIT.
    pub wanted: String,
    /// The function as it is; none where it is missing.
    pub found: Option<String>,
}

impl Capabilities {
    /// Whether the operator would link it: every import is allowed, and nothing lacks.
    pub fn fits(&self) -> bool {
        self.world.is_some() && self.lacks.is_empty() && self.imports.iter().all(|i| i.allowed)
    }

    /// What the world of `slot` asks for and the component does not export. A component that was
    /// built against another version of the package is not compared: its functions may be others.
    pub(super) fn lacks(&self, slot: Slot) -> Vec<Lack> {
        let contract = contract(slot);
        contract
            .into_iter()
            .filter(|wanted| !self.exports_other_version(&wanted.name))
            .flat_map(|wanted| {
                let present = self.exports.iter().find(|one| one.name == wanted.name);
                lacking(slot, wanted, present)
            })
            .collect()
    }

    fn exports_other_version(&self, interface: &str) -> bool {
        self.exports
            .iter()
            .any(|one| one.name != interface && unversioned(&one.name) == unversioned(interface))
    }
}

/// Why the interfaces of a component cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum CapabilitiesError {
    /// There are no bytes.
    #[error("the file is empty; perhaps the compiler that should have written it failed")]
    Empty,
    /// It is a text.
    #[error(
        "the file is text and not WebAssembly (it begins with {0:?}); name the .wasm file that the \
         compiler made"
    )]
    Text(String),
    /// It is something else.
    #[error("the file is not WebAssembly: it begins with {0:02x?} and not with 00 61 73 6d")]
    Other(Vec<u8>),
    /// It is what compilers make, and no component yet.
    #[error("it is a core module; make a component of it with `ipu-operator policy componentize`")]
    CoreModule,
    /// It is a contract and no program.
    #[error("it is a WIT package in binary form: a contract, with no code that could be called")]
    Contract,
    /// It is a component that is broken or that WIT has no words for.
    #[error("the file is no valid component")]
    Invalid(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// How WebAssembly begins.
const WASM: &[u8] = b"\0asm";

/// How every core module begins; a component has another version there.
const CORE_MODULE: &[u8] = b"\0asm\x01\0\0\0";

/// Bytes of a file that is something else that are shown.
const SHOWN: usize = 16;

/// Says what the bytes are, where they are no WebAssembly component at all.
pub(super) fn recognize(bytes: &[u8]) -> Result<(), CapabilitiesError> {
    if bytes.is_empty() {
        return Err(CapabilitiesError::Empty);
    }
    if bytes.starts_with(CORE_MODULE) {
        return Err(CapabilitiesError::CoreModule);
    }
    if bytes.starts_with(WASM) {
        return Ok(());
    }
    let start = &bytes[..bytes.len().min(SHOWN)];
    let text = String::from_utf8_lossy(start);
    let readable = |c: char| !c.is_control() || c.is_whitespace();
    if text.trim_end_matches('\u{fffd}').chars().all(readable) && !text.starts_with('\u{fffd}') {
        return Err(CapabilitiesError::Text(text.into_owned()));
    }
    Err(CapabilitiesError::Other(start.to_vec()))
}

/// Reads what a component imports and exports.
pub fn capabilities(bytes: &[u8]) -> Result<Capabilities, CapabilitiesError> {
    recognize(bytes)?;
    let decoded = decode(bytes).map_err(|error| CapabilitiesError::Invalid(error.into()))?;
    let DecodedWasm::Component(resolve, world) = decoded else {
        return Err(CapabilitiesError::Contract);
    };
    let world = &resolve.worlds[world];
    let exports = exported(&resolve, world.exports.iter());
    let known = exports.iter().find_map(|export| {
        let slot = Slot::ALL
            .into_iter()
            .find(|slot| implements(export, *slot))?;
        let (_, version) = export.name.split_once('@').unwrap_or_default();
        Some((slot, format!("ipu:policy@{version}")))
    });
    let mut found = Capabilities {
        world: known.as_ref().map(|(slot, _)| *slot),
        package: known.map(|(_, package)| package),
        imports: world
            .imports
            .keys()
            .map(|key| import(resolve.name_world_key(key)))
            .collect(),
        exports,
        lacks: Vec::new(),
    };
    found.lacks = found.world.map_or_else(Vec::new, |slot| found.lacks(slot));
    Ok(found)
}

/// Whether the export is the interface of the slot, of whatever version.
fn implements(export: &Export, slot: Slot) -> bool {
    contract(slot)
        .iter()
        .any(|wanted| unversioned(&wanted.name) == unversioned(&export.name))
}

fn unversioned(name: &str) -> &str {
    name.split_once('@').map_or(name, |(name, _)| name)
}

fn import(name: String) -> Import {
    let allowed = bindings::is_allowed_import(&name);
    let why = match (allowed, unversioned(&name)) {
        (true, "ipu:policy/logging") => "writes to the operator's log",
        (true, "ipu:policy/types") => "defines the types of requests and answers",
        (true, _) => "is answered by an empty one: no files, no network, no environment",
        (false, other) if other.starts_with("ipu:policy/") => {
            "is of another version of the contract; `ipu-operator policy contract` prints this one"
        }
        (false, other) if other.starts_with("wasi:") => {
            "is not among what the operator answers; leave out the code that needs it"
        }
        (false, _) => "is nothing that the operator has; leave out the code that needs it",
    };
    Import {
        name,
        allowed,
        why: why.to_owned(),
    }
}

/// What the world of a slot asks a component to export.
pub(super) fn contract(slot: Slot) -> Vec<Export> {
    let mut resolve = Resolve::default();
    let package = resolve
        .push_source("policy.wit", CONTRACT)
        .expect("the contract in this repository is valid WIT");
    let world = resolve
        .select_world(&[package], Some(slot.world()))
        .expect("every slot has its world in the contract");
    exported(&resolve, resolve.worlds[world].exports.iter())
}

fn exported<'a>(
    resolve: &Resolve,
    items: impl Iterator<Item = (&'a WorldKey, &'a WorldItem)>,
) -> Vec<Export> {
    items
        .map(|(key, item)| Export {
            name: resolve.name_world_key(key),
            functions: match item {
                WorldItem::Interface { id, .. } => signatures(resolve, *id),
                WorldItem::Function(function) => vec![signature(resolve, function)],
                WorldItem::Type { .. } => Vec::new(),
            },
        })
        .collect()
}

fn signatures(resolve: &Resolve, interface: InterfaceId) -> Vec<String> {
    let functions = resolve.interfaces[interface].functions.values();
    functions
        .map(|function| signature(resolve, function))
        .collect()
}

/// A function as it stands in WIT.
fn signature(resolve: &Resolve, function: &Function) -> String {
    let named = |ty| {
        let mut printer = WitPrinter::default();
        // A type that has no name in WIT is left out rather than guessed.
        let _ = printer.print_type_name(resolve, ty);
        String::from(printer.output)
    };
    let parameters: Vec<_> = function
        .params
        .iter()
        .map(|parameter| format!("{}: {}", parameter.name, named(&parameter.ty)))
        .collect();
    let result = function.result.as_ref();
    let result = result.map_or_else(String::new, |ty| format!(" -> {}", named(ty)));
    format!("{}: func({}){result}", function.name, parameters.join(", "))
}

/// The functions of `wanted` that are not in `present` as they should be.
fn lacking(slot: Slot, wanted: Export, present: Option<&Export>) -> Vec<Lack> {
    let name_of = |function: &str| function.split(':').next().unwrap_or_default().to_owned();
    let found = |function: &str| {
        let mut present = present?.functions.iter();
        present.find(|one| name_of(one) == name_of(function))
    };
    let Export { name, functions } = wanted;
    functions
        .into_iter()
        .filter(|function| found(function) != Some(function))
        .map(|function| Lack {
            world: slot.world(),
            interface: name.clone(),
            found: found(&function).cloned(),
            wanted: function,
        })
        .collect()
}

impl std::fmt::Display for Lack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            world,
            interface,
            wanted,
            found,
        } = self;
        match found {
            None => write!(
                f,
                "world {world} asks for `{wanted}` in {interface}, which it does not export"
            ),
            Some(found) => write!(
                f,
                "world {world} asks for `{wanted}` in {interface}, and it exports `{found}`"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<Capabilities, CapabilitiesError> {
        capabilities(&wat::parse_str(text).unwrap())
    }

    #[test]
    fn what_is_no_component_is_told_what_it_is() {
        let cases: [(&[u8], &str); 6] = [
            (b"", "the file is empty"),
            (b"<html>404</html>", "text and not WebAssembly"),
            ("héhéhéhéhéhéhéhé".as_bytes(), "text and not WebAssembly"),
            (b"\x7fELF\x02\x01\x01\0", "it begins with [7f, 45, 4c, 46"),
            (CORE_MODULE, "`ipu-operator policy componentize`"),
            (b"\0asm\x0d\0\x01\0\xff\xff", "no valid component"),
        ];
        for (bytes, expected) in cases {
            let error = capabilities(bytes).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn imports_are_marked_with_the_reason() {
        let found = of(r#"(component
              (import "ipu:policy/logging@0.1.0" (instance))
              (import "ipu:policy/logging@7.0.0" (instance))
              (import "wasi:http/outgoing-handler@0.2.0" (instance))
              (import "acme:database/sql@1.0.0" (instance)))"#)
        .unwrap();
        let marks: Vec<_> = found
            .imports
            .iter()
            .map(|import| (import.allowed, import.why.as_str()))
            .collect();
        let (allowed, refused): (Vec<_>, Vec<_>) = marks.into_iter().partition(|(ok, _)| *ok);
        assert_eq!(allowed, [(true, "writes to the operator's log")]);
        assert_eq!(refused.len(), 3);
        for (part, (_, why)) in ["another version", "among what", "nothing that"]
            .iter()
            .zip(refused)
        {
            assert!(why.contains(part), "{why}");
        }
        assert!(!found.fits());
    }

    #[test]
    fn every_world_of_the_contract_has_its_functions() {
        for slot in Slot::ALL {
            let wanted = contract(slot);
            assert_eq!(wanted.len(), 1, "{slot}");
            assert_eq!(
                wanted[0].functions[0],
                "validate-settings: func(settings: string) -> result<_, string>"
            );
        }
    }

    #[test]
    fn a_missing_function_and_one_of_another_shape_are_named() {
        let interface = &contract(Slot::Defaulting)[0].name;
        let found = of(&format!(
            r#"(component
              (core module $m (func (export "f") (result i32) i32.const 0))
              (core instance $i (instantiate $m))
              (func $f (result bool) (canon lift (core func $i "f")))
              (instance $d (export "validate-settings" (func $f)))
              (export "{interface}" (instance $d)))"#
        ))
        .unwrap();
        assert_eq!(found.world, Some(Slot::Defaulting));
        let lacks: Vec<_> = found.lacks.iter().map(ToString::to_string).collect();
        assert_eq!(lacks.len(), 2);
        assert!(lacks[0].contains("and it exports `validate-settings: func() -> bool`"));
        assert!(
            lacks[1].contains("world defaulting asks for `apply-defaults: func(request: request)"),
            "{}",
            lacks[1]
        );
    }
}
