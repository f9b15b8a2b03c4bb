//! The contract: each item names its first version, released items do not change, and the operator recognises
//! guests of other versions.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use ipu_guest_host::model::Hook;
use ipu_guest_host::{CONTRACT, Guest, LoadError, ModuleConfig};
use tests::guests::hostile::{MEMORY, component};
use wit_component::{ComponentEncoder, StringEncoding, WitPrinter, embed_component_metadata};
use wit_parser::{PackageId, Resolve, Stability, Type, TypeDefKind};

use crate::released::texts;
use crate::wasm::{open, options};

fn parsed(contract: &str) -> (Resolve, PackageId) {
    let mut resolve = Resolve::default();
    let package = resolve.push_str(Path::new("policy.wit"), contract);
    (resolve, package.expect("the contract is valid"))
}

#[test]
fn every_item_names_its_first_version() {
    let (resolve, package) = parsed(CONTRACT);
    let version = resolve.packages[package].name.version.clone().unwrap();
    let mut items = 0;
    let mut check = |name: &str, stability: &Stability| {
        let Stability::Stable { since, .. } = stability else {
            panic!("{name} has no @since");
        };
        assert!(*since <= version, "{name} is of {since}");
        items += 1;
    };
    for (_, world) in &resolve.worlds {
        check(&world.name, &world.stability);
    }
    for (_, interface) in &resolve.interfaces {
        let name = interface.name.as_deref().unwrap();
        check(name, &interface.stability);
        for (name, id) in &interface.types {
            let named = &resolve.types[*id];
            // Items of another interface are gated there.
            if !matches!(named.kind, TypeDefKind::Type(Type::Id(_))) {
                check(name, &named.stability);
            }
        }
        for (name, function) in &interface.functions {
            check(name, &function.stability);
        }
    }
    let gates = CONTRACT.matches("\n@since(").count() + CONTRACT.matches("\n  @since(").count();
    assert_eq!(items, gates);
}

/// The items of a contract without their comments, each with the interface or world that contains it.
fn items(contract: &str) -> BTreeSet<String> {
    let (resolve, package) = parsed(contract);
    let mut printer = WitPrinter::default();
    printer.emit_docs(false);
    printer.print(&resolve, package, &[]).unwrap();
    let (mut items, mut container) = (BTreeSet::new(), String::new());
    for item in String::from(printer.output).split("@since(").skip(1) {
        let (since, definition) = item.split_once(')').unwrap();
        let lines: Vec<_> = definition.lines().map(str::trim).collect();
        let definition = lines.join(" ");
        let definition = definition.trim_matches(['}', ' ']);
        if definition.starts_with("interface ") || definition.starts_with("world ") {
            let (name, _) = definition.split_once(" {").unwrap();
            name.clone_into(&mut container);
            let is_port = |line: &&&str| line.starts_with("import ") || line.starts_with("export ");
            let ports = lines.iter().filter(is_port);
            items.extend(ports.map(|port| format!("{container}: {port}")));
            items.insert(format!("{container} since {since}"));
        } else {
            items.insert(format!("{container}: {definition} since {since}"));
        }
    }
    items
}

/// The items of `older` that `newer` changes or lacks.
fn lost(older: &str, newer: &str) -> Vec<String> {
    let newer = items(newer);
    items(older).difference(&newer).cloned().collect()
}

/// Records that have got fields since the release of 0.1.0, against the rule: the operator cannot call guests of
/// placement that were compiled for 0.1.0.
const CHANGED: [&str; 2] = [
    "interface placer: record controller",
    "interface placer: record request",
];

#[test]
fn released_items_do_not_change() {
    let released = fs::read_to_string(texts().join("wit/policy.wit")).unwrap();
    let lost = lost(&released, CONTRACT);
    let names: Vec<_> = lost
        .iter()
        .filter_map(|item| item.split(" {").next())
        .collect();
    assert_eq!(names, CHANGED, "released guests need them: {lost:#?}");
}

#[test]
fn a_changed_item_is_found_and_an_added_one_is_not() {
    let other = CONTRACT.replace("sub-resource: option<string>,", "");
    let changed = lost(CONTRACT, &other);
    assert_eq!(changed.len(), 1, "{changed:?}");
    assert!(
        changed[0].starts_with("interface types: record admission {"),
        "{changed:?}"
    );
    let other = CONTRACT.replacen("  export placer;", "", 1);
    // The types of the interface are imported with it.
    let with_its_types = [
        "world placement: export placer;",
        "world placement: import types;",
    ];
    assert_eq!(lost(CONTRACT, &other), with_its_types);
    assert_eq!(lost(CONTRACT, &with_a_function_more("0.1.0")), [""; 0]);
}

#[test]
fn an_item_of_a_future_version_is_not_part_of_the_contract() {
    let later = CONTRACT.replacen("@since(version = 0.1.0)", "@since(version = 0.1.1)", 1);
    let mut resolve = Resolve::default();
    let error = resolve.push_str(Path::new("policy.wit"), &later);
    let error = format!("{:#}", error.unwrap_err());
    assert!(error.contains("0.1.1"), "{error}");
}

/// The contract with an additional function in `validator`, in this version.
fn with_a_function_more(version: &str) -> String {
    let more = format!("explain: func() -> u32;\n\n  @since(version = {version})\n  validate: ");
    CONTRACT
        .replace(
            "package ipu:policy@0.1.0;",
            &format!("package ipu:policy@{version};"),
        )
        .replace("validate: ", &more)
}

/// A validation guest for such a contract, without violations.
async fn loaded(version: &str) -> Result<Guest, LoadError> {
    let mut core = component(&format!(
        r#"(module
          {MEMORY}
          (func (export "ipu:policy/validator@{version}#validate-settings") (param i32 i32) (result i32)
            (i32.const 16))
          (func (export "ipu:policy/validator@{version}#explain") (result i32) (i32.const 7))
          (func (export "ipu:policy/validator@{version}#validate") (param i32) (result i32)
            (i32.const 16)))"#
    ));
    let (resolve, package) = parsed(&with_a_function_more(version));
    let world = resolve.select_world(&[package], Some("validation"));
    embed_component_metadata(&mut core, &resolve, world.unwrap(), StringEncoding::UTF8).unwrap();
    let mut encoder = ComponentEncoder::default();
    let encoded = encoder.module(&core).and_then(ComponentEncoder::encode);
    let policies = open(options(&[Hook::Validation])).await;
    let config = ModuleConfig {
        settings: "{}".to_owned(),
        ..ModuleConfig::default()
    };
    policies
        .prepare(Hook::Validation, encoded.unwrap(), config)
        .await
}

#[tokio::test]
async fn exports_beside_the_world_are_ignored() {
    assert!(loaded("0.1.0").await.is_ok());
}

#[tokio::test]
async fn a_guest_of_a_later_version_is_refused_by_name() {
    for version in ["0.1.1", "0.2.0", "1.0.0"] {
        let LoadError::Imports(names) = loaded(version).await.unwrap_err() else {
            panic!("{version} is not recognised by its imports");
        };
        assert_eq!(names, format!("ipu:policy/types@{version}"));
    }
}
