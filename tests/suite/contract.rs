//! The contract: each item names its first version, released items do not change, and the operator
//! recognises guests of other versions.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use ipu_api::guest::placement::{Decision, PlacementRequest};
use ipu_api::ipupolicy::Hook;
use ipu_guest_host::{
    CONTRACT, ContractVersion, Guest, GuestHost, LoadError, ModuleConfig, capabilities,
};
use jiff::ToSpan;
use jiff::civil::Date;
use serde_json::json;
use tests::guests::hostile::{MEMORY, component};
use wit_component::{ComponentEncoder, StringEncoding, WitPrinter, embed_component_metadata};
use wit_parser::{PackageId, Resolve, SizeAlign, Stability, Type, TypeDefKind};

use crate::released::texts;
use crate::wasm::{open, options};

/// The document with the promise how long a version runs.
const PROMISE: &str = include_str!("../../wit/versions.md");

/// The releases of the operator with their dates.
const CHANGELOG: &str = include_str!("../../CHANGELOG.md");

fn parsed(contract: &str) -> (Resolve, PackageId) {
    let mut resolve = Resolve::default();
    let package = resolve.push_str(Path::new("policy.wit"), contract);
    (resolve, package.expect("the contract is valid"))
}

#[test]
fn every_item_names_its_first_version() {
    for version in ContractVersion::ALL {
        check_first_versions(version.wit());
    }
}

fn check_first_versions(contract: &str) {
    let (resolve, package) = parsed(contract);
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
    let gates = contract.matches("\n@since(").count() + contract.matches("\n  @since(").count();
    assert_eq!(items, gates);
}

/// The items of a contract without their comments, each with the interface or world that contains
/// it.
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

#[test]
fn released_items_do_not_change() {
    let released = released();
    let (resolve, package) = parsed(&released);
    let number = resolve.packages[package].name.version.clone().unwrap();
    let here = ContractVersion::ALL
        .into_iter()
        .find(|version| version.number() == number.to_string())
        .unwrap_or_else(|| panic!("released guests need version {number}"));
    assert_eq!(items(&released), items(here.wit()));
}

/// The contract of the previous release.
fn released() -> String {
    fs::read_to_string(texts().join("wit/policy.wit")).unwrap()
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
    assert_eq!(
        lost(
            CONTRACT,
            &with_a_function_more(ContractVersion::CURRENT.number())
        ),
        [""; 0]
    );
}

#[test]
fn an_item_of_a_future_version_is_not_part_of_the_contract() {
    let later = CONTRACT.replacen("@since(version = 0.1.0)", "@since(version = 0.2.1)", 1);
    let mut resolve = Resolve::default();
    let error = resolve.push_str(Path::new("policy.wit"), &later);
    let error = format!("{:#}", error.unwrap_err());
    assert!(error.contains("0.2.1"), "{error}");
}

/// The contract with an additional function in `validator`, in this version.
fn with_a_function_more(version: &str) -> String {
    let more = "explain: func() -> u32;\n\n  @since(version = 0.1.0)\n  validate: ";
    CONTRACT
        .replace(
            &format!("package {};", ContractVersion::CURRENT.package()),
            &format!("package ipu:policy@{version};"),
        )
        .replace("validate: ", more)
}

/// A validation guest for such a contract, without violations.
async fn loaded(version: &str) -> Result<Guest, LoadError> {
    let core = component(&format!(
        r#"(module
          {MEMORY}
          (func (export "ipu:policy/validator@{version}#validate-settings") (param i32 i32) (result i32)
            (i32.const 16))
          (func (export "ipu:policy/validator@{version}#explain") (result i32) (i32.const 7))
          (func (export "ipu:policy/validator@{version}#validate") (param i32) (result i32)
            (i32.const 16)))"#
    ));
    let contract = with_a_function_more(version);
    let policies = open(options(&[Hook::Validation])).await;
    let component = encoded(core, &contract, "validation");
    load(&policies, Hook::Validation, component).await
}

/// A component of the core module for a world of the contract.
fn encoded(mut core: Vec<u8>, contract: &str, world: &str) -> Vec<u8> {
    let (resolve, package) = parsed(contract);
    let world = resolve.select_world(&[package], Some(world)).unwrap();
    embed_component_metadata(&mut core, &resolve, world, StringEncoding::UTF8).unwrap();
    let mut encoder = ComponentEncoder::default();
    let encoded = encoder.module(&core).and_then(ComponentEncoder::encode);
    encoded.unwrap()
}

async fn load(policies: &GuestHost, hook: Hook, component: Vec<u8>) -> Result<Guest, LoadError> {
    let config = ModuleConfig {
        settings: "{}".to_owned(),
        ..ModuleConfig::default()
    };
    policies.prepare(hook, component, config).await
}

/// A placement guest for the released contract, which chooses the last controller. It finds its
/// name only if the request and the controllers have the released form.
fn released_placement() -> Vec<u8> {
    let released = released();
    let (resolve, package) = parsed(&released);
    let place =
        &resolve.interfaces[resolve.packages[package].interfaces["placer"]].functions["place"];
    let mut sizes = SizeAlign::default();
    sizes.fill(&resolve);
    let offsets = sizes.field_offsets(place.params.iter().map(|parameter| &parameter.ty));
    let list = offsets[1].0.size_wasm32();
    let Type::Id(controllers) = place.params[1].ty else {
        panic!("controllers are a list");
    };
    let TypeDefKind::List(controller) = resolve.types[controllers].kind else {
        panic!("controllers are a list");
    };
    let size = sizes.size(&controller).size_wasm32();
    let core = component(&format!(
        r#"(module
          {MEMORY}
          (func (export "ipu:policy/placer@0.1.0#validate-settings") (param i32 i32) (result i32)
            (i32.const 16))
          (func (export "ipu:policy/placer@0.1.0#place") (param $request i32) (result i32)
            (local $last i32)
            (local.set $last (i32.add
              (i32.load offset={list} (local.get $request))
              (i32.mul (i32.const {size}) (i32.sub
                (i32.load offset={} (local.get $request))
                (i32.const 1)))))
            (i32.store (i32.const 40) (i32.load (local.get $last)))
            (i32.store (i32.const 44) (i32.load offset=4 (local.get $last)))
            (i32.const 32)))"#,
        list + 4
    ));
    encoded(core, &released, "placement")
}

#[tokio::test]
async fn a_guest_built_for_the_released_contract_loads_and_answers() {
    let component = released_placement();
    let found = capabilities(&component).unwrap();
    assert_eq!(found.package.as_deref(), Some("ipu:policy@0.1.0"));
    assert!(found.is_linkable(), "{found:?}");
    let policies = open(options(&[Hook::Placement])).await;
    let guest = load(&policies, Hook::Placement, component).await;
    let PlacementRequest {
        request,
        mut controllers,
        attempts,
    } = serde_json::from_value(json!({
        "request": { "namespace": "team", "owner": "train", "ipus": 4, "gcds": 1 },
        "controllers": [
            { "name": "pod1:8090", "totalIpus": 16, "usedIpus": 0, "largestFree": 16 },
            { "name": "pod2:8090", "totalIpus": 16, "usedIpus": 0, "largestFree": 16 },
        ],
    }))
    .unwrap();
    let guest = guest.unwrap();
    let served = policies.place(&guest, &request, &controllers, &attempts);
    let last = Decision::Try("pod2:8090".to_owned());
    assert_eq!(served.await.unwrap().answer, last);

    // It knows nothing of unschedulable controllers, and sees the others only.
    controllers[1].unschedulable = Some("1 is cordoned".to_owned());
    let served = policies.place(&guest, &request, &controllers, &attempts);
    let only = Decision::Try("pod1:8090".to_owned());
    assert_eq!(served.await.unwrap().answer, only);
}

#[tokio::test]
async fn exports_beside_the_world_are_ignored() {
    assert!(loaded(ContractVersion::CURRENT.number()).await.is_ok());
}

#[tokio::test]
async fn a_guest_of_a_later_version_is_refused_by_name() {
    for version in ["0.2.1", "0.3.0", "1.0.0"] {
        let LoadError::Imports(names) = loaded(version).await.unwrap_err() else {
            panic!("{version} is not recognised by its imports");
        };
        assert_eq!(names, format!("ipu:policy/types@{version}"));
    }
}

/// Returns the cells of the row about a version.
fn row_of(version: ContractVersion) -> Vec<&'static str> {
    let start = format!("| {} | ", version.number());
    let mut rows = PROMISE.lines().filter(|line| line.starts_with(&start));
    let row = rows.next().expect("every version has a row");
    row.split('|').map(str::trim).skip(1).collect()
}

/// The releases of the operator, the newest first: version and date.
fn releases() -> Vec<(&'static str, Date)> {
    let titles = CHANGELOG
        .lines()
        .filter_map(|line| line.strip_prefix("## ["));
    let releases = titles.filter_map(|title| title.split_once("] - "));
    releases
        .map(|(version, date)| (version, date.parse().unwrap()))
        .collect()
}

#[test]
fn earlier_versions_run_for_a_year_after_their_successors() {
    let releases = releases();
    let released = |version: ContractVersion| {
        let operator = row_of(version)[1].strip_prefix("operator ").unwrap();
        let (operator, date) = operator.split_once(", on ").unwrap_or((operator, ""));
        let found = releases.iter().find(|(version, _)| *version == operator);
        let found = found.map(|(_, date)| *date);
        assert_eq!(date, found.map(|date| date.to_string()).unwrap_or_default());
        found
    };
    for (next, version) in ContractVersion::ALL.iter().zip(&ContractVersion::ALL[1..]) {
        assert!(released(*version).is_some(), "{version:?}");
        let until: Date = row_of(*version)[3].parse().unwrap();
        // A successor that is not released yet comes after the newest release.
        let from = released(*next).unwrap_or(releases[0].1);
        assert!(until >= from + 1.year(), "{version:?} until {until}");
    }
}
