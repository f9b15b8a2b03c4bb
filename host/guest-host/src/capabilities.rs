//! Pure: the imports and exports of a component, read from its bytes without compiling or running
//! it.

use ipu_api::ipupolicy::Hook;
use serde::Serialize;
use wit_component::{DecodedWasm, WitPrinter, decode};
use wit_parser::{Function, InterfaceId, Resolve, WorldItem, WorldKey};

use super::contract_version::ContractVersion;
use super::{bindings, world_name};

/// The imports and exports of a component.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Capabilities {
    /// The hook of its world. `None` if it exports no interface of `ipu:policy`.
    #[serde(serialize_with = "world_name::serialize_option")]
    pub world: Option<Hook>,
    /// The package and version of the contract, such as `ipu:policy@0.1.0`.
    pub package: Option<String>,
    /// Its imports, by name.
    pub imports: Vec<Import>,
    /// Its exports, by name.
    pub exports: Vec<Export>,
    /// The missing exports of its world.
    #[serde(rename = "lacks")]
    pub missing_exports: Vec<MissingExport>,
}

/// An import of a component.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Import {
    /// Its name, such as `ipu:policy/logging@0.1.0`.
    pub name: String,
    /// Whether the operator links it.
    pub allowed: bool,
    /// Interface that the operator links to it, or the reason why the operator refuses it.
    pub why: String,
}

/// An export of a component.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Export {
    /// Its name, such as `ipu:policy/placer@0.1.0`.
    pub name: String,
    /// Its functions, as WIT.
    pub functions: Vec<String>,
}

/// A function of a world that a component does not export, or exports with another signature.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MissingExport {
    /// The world.
    pub world: &'static str,
    /// The interface of the function.
    pub interface: String,
    /// The function of the world, as WIT.
    #[serde(rename = "wanted")]
    pub expected: String,
    /// The function of the component, as WIT. `None` if it is missing.
    pub found: Option<String>,
}

impl Capabilities {
    /// Whether the operator can link it: all imports are allowed, and no export is missing.
    pub fn is_linkable(&self) -> bool {
        self.world.is_some()
            && self.missing_exports.is_empty()
            && self.imports.iter().all(|i| i.allowed)
    }

    /// Returns the missing exports of the world of `hook`, in the version that the component
    /// exports. A component for a version that the operator does not know is not compared.
    pub(super) fn missing_exports(&self, hook: Hook) -> Vec<MissingExport> {
        let exported = |version: &ContractVersion| {
            let interface = version.interface(hook);
            self.exports.iter().any(|export| export.name == interface)
        };
        let version = ContractVersion::ALL.into_iter().find(exported);
        contract(version.unwrap_or(ContractVersion::CURRENT), hook)
            .into_iter()
            .filter(|expected| !self.exports_other_version(&expected.name))
            .flat_map(|expected| {
                let present = self.exports.iter().find(|one| one.name == expected.name);
                missing_functions(hook, expected, present)
            })
            .collect()
    }

    fn exports_other_version(&self, interface: &str) -> bool {
        self.exports
            .iter()
            .any(|one| one.name != interface && unversioned(&one.name) == unversioned(interface))
    }
}

/// Failure to read the imports and exports of a component.
#[derive(Debug, thiserror::Error)]
pub enum CapabilitiesError {
    /// The file is empty.
    #[error("the file is empty; perhaps the compiler that should have written it failed")]
    Empty,
    /// The file is text.
    #[error(
        "the file is text and not WebAssembly (it begins with {0:?}); name the .wasm file that the \
         compiler made"
    )]
    Text(String),
    /// The file has another format.
    #[error("the file is not WebAssembly: it begins with {0:02x?} and not with 00 61 73 6d")]
    Other(Vec<u8>),
    /// The file is a core module, not a component.
    #[error("it is a core module; make a component of it with `ipu-operator policy componentize`")]
    CoreModule,
    /// The file is a WIT package without code.
    #[error("it is a WIT package in binary form: a contract, with no code that could be called")]
    Contract,
    /// The component is invalid, or WIT cannot express it.
    #[error("the file is not a valid component")]
    Invalid(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Magic number of WebAssembly.
const WASM: &[u8] = b"\0asm";

/// Magic number and version of a core module. A component has another version.
const CORE_MODULE: &[u8] = b"\0asm\x01\0\0\0";

/// Bytes of an unknown format in an error.
const SHOWN: usize = 16;

/// Checks that the bytes are a WebAssembly component, and finds out what else they are.
pub(super) fn check_format(bytes: &[u8]) -> Result<(), CapabilitiesError> {
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

/// Reads the imports and exports of a component.
pub fn capabilities(bytes: &[u8]) -> Result<Capabilities, CapabilitiesError> {
    check_format(bytes)?;
    let decoded = decode(bytes).map_err(|error| CapabilitiesError::Invalid(error.into()))?;
    let DecodedWasm::Component(resolve, world) = decoded else {
        return Err(CapabilitiesError::Contract);
    };
    let world = &resolve.worlds[world];
    let exports = exported(&resolve, world.exports.iter());
    // In this order, as `policy check` takes the first world of a guest that serves several.
    let known = Hook::ALL.into_iter().find_map(|hook| {
        let export = exports.iter().find(|export| implements(export, hook))?;
        let (_, version) = export.name.split_once('@').unwrap_or_default();
        Some((hook, format!("ipu:policy@{version}")))
    });
    let mut found = Capabilities {
        world: known.as_ref().map(|(hook, _)| *hook),
        package: known.map(|(_, package)| package),
        imports: world
            .imports
            .keys()
            .map(|key| import(resolve.name_world_key(key)))
            .collect(),
        exports,
        missing_exports: Vec::new(),
    };
    let missing = found.world.map(|hook| found.missing_exports(hook));
    found.missing_exports = missing.unwrap_or_default();
    Ok(found)
}

/// Whether the export is the interface of the hook, in any version.
fn implements(export: &Export, hook: Hook) -> bool {
    let interface = ContractVersion::CURRENT.interface(hook);
    unversioned(&interface) == unversioned(&export.name)
}

fn unversioned(name: &str) -> &str {
    name.split_once('@').map_or(name, |(name, _)| name)
}

fn import(name: String) -> Import {
    let allowed = bindings::is_allowed_import(&name);
    let why = match (allowed, unversioned(&name)) {
        (true, "ipu:policy/logging") => "writes to the operator's log",
        (true, "ipu:policy/types") => "defines the types of requests and answers",
        (true, _) => "has an empty implementation: no files, no network, no environment",
        (false, other) if other.starts_with("ipu:policy/") => {
            "is of another version of the contract; `ipu-operator policy contract` prints this one"
        }
        (false, other) if other.starts_with("wasi:") => {
            "is not supported by the operator; remove the code that needs it"
        }
        (false, _) => "is unknown to the operator; remove the code that needs it",
    };
    Import {
        name,
        allowed,
        why: why.to_owned(),
    }
}

/// Returns the exports of the world of a hook.
pub(super) fn contract(version: ContractVersion, hook: Hook) -> Vec<Export> {
    let mut resolve = Resolve::default();
    let package = resolve
        .push_source("policy.wit", version.wit())
        .expect("the contract in this repository is valid WIT");
    let world = resolve
        .select_world(&[package], Some(hook.world()))
        .expect("every hook has its world in the contract");
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

/// Formats a function as WIT.
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

/// Returns the functions of `expected` that are missing in `present` or differ there.
fn missing_functions(hook: Hook, expected: Export, present: Option<&Export>) -> Vec<MissingExport> {
    let name_of = |function: &str| function.split(':').next().unwrap_or_default().to_owned();
    let found = |function: &str| {
        let mut present = present?.functions.iter();
        present.find(|one| name_of(one) == name_of(function))
    };
    let Export { name, functions } = expected;
    functions
        .into_iter()
        .filter(|function| found(function) != Some(function))
        .map(|function| MissingExport {
            world: hook.world(),
            interface: name.clone(),
            found: found(&function).cloned(),
            expected: function,
        })
        .collect()
}

impl std::fmt::Display for MissingExport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            world,
            interface,
            expected,
            found,
        } = self;
        match found {
            None => write!(
                f,
                "world {world} asks for `{expected}` in {interface}, which it does not export"
            ),
            Some(found) => write!(
                f,
                "world {world} asks for `{expected}` in {interface}, and it exports `{found}`"
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
    fn an_error_names_the_format_of_the_file() {
        let cases: [(&[u8], &str); 6] = [
            (b"", "the file is empty"),
            (b"<html>404</html>", "text and not WebAssembly"),
            ("héhéhéhéhéhéhéhé".as_bytes(), "text and not WebAssembly"),
            (b"\x7fELF\x02\x01\x01\0", "it begins with [7f, 45, 4c, 46"),
            (CORE_MODULE, "`ipu-operator policy componentize`"),
            (b"\0asm\x0d\0\x01\0\xff\xff", "not a valid component"),
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
        for (part, (_, why)) in ["another version", "not supported", "is unknown"]
            .iter()
            .zip(refused)
        {
            assert!(why.contains(part), "{why}");
        }
        assert!(!found.is_linkable());
    }

    #[test]
    fn every_world_of_the_contract_has_its_functions() {
        for hook in Hook::ALL {
            let exports = contract(ContractVersion::CURRENT, hook);
            assert_eq!(exports.len(), 1, "{hook}");
            assert_eq!(
                exports[0].functions[0],
                "validate-settings: func(settings: string) -> result<_, string>"
            );
        }
    }

    #[test]
    fn missing_and_different_functions_are_named() {
        let interface = &contract(ContractVersion::V0_1, Hook::Defaulting)[0].name;
        let found = of(&format!(
            r#"(component
              (core module $m (func (export "f") (result i32) i32.const 0))
              (core instance $i (instantiate $m))
              (func $f (result bool) (canon lift (core func $i "f")))
              (instance $d (export "validate-settings" (func $f)))
              (export "{interface}" (instance $d)))"#
        ))
        .unwrap();
        assert_eq!(found.world, Some(Hook::Defaulting));
        let missing: Vec<_> = found
            .missing_exports
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(missing.len(), 2);
        assert!(missing[0].contains("and it exports `validate-settings: func() -> bool`"));
        assert!(
            missing[1]
                .contains("world defaulting asks for `apply-defaults: func(request: request)"),
            "{}",
            missing[1]
        );
    }
}
