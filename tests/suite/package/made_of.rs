//! The SBOM of a release lists the crates that cargo builds it from, with all licences.

use std::collections::BTreeSet;

use cyclonedx_bom::models::bom::Bom;
use cyclonedx_bom::validation::Validate;
use serde_json::Value;

use super::{FILES, json};
use crate::sources::repository;

/// Name and version of every crate that the lock file names.
fn locked() -> BTreeSet<(String, String)> {
    let lock = std::fs::read_to_string(repository().join("Cargo.lock")).unwrap();
    let packages = lock.split("[[package]]").skip(1);
    let field = |package: &str, name: &str| {
        let begin = format!("{name} = ");
        let line = package.lines().find_map(|line| line.strip_prefix(&begin));
        line.unwrap().trim_matches('"').to_owned()
    };
    let both = packages.map(|package| (field(package, "name"), field(package, "version")));
    both.collect()
}

fn components() -> Vec<Value> {
    let list = json("sbom.cdx.json");
    list["components"].as_array().unwrap().clone()
}

#[test]
fn the_list_is_one_of_cyclonedx() {
    let bom = Bom::parse_from_json(FILES["sbom.cdx.json"].as_slice()).unwrap();
    let checked = bom.validate();
    assert!(checked.passed(), "{checked:?}");
    let list = json("sbom.cdx.json");
    assert_eq!(list["specVersion"], "1.5");
    assert_eq!(list.get("serialNumber"), None);
}

#[test]
fn every_part_is_listed_with_version_and_licence() {
    let locked = locked();
    let components = components();
    let of = |name: &str| {
        let found = components
            .iter()
            .find(|component| component["name"] == name);
        found.unwrap_or_else(|| panic!("no {name}"))
    };
    for (name, licence) in [
        ("wasmtime", "Apache-2.0 WITH LLVM-exception"),
        ("kube", "Apache-2.0"),
        ("guest-serial-walk", "Apache-2.0"),
        (
            "wit-bindgen",
            "Apache-2.0 WITH LLVM-exception OR Apache-2.0 OR MIT",
        ),
    ] {
        let version = of(name)["version"].as_str().unwrap().to_owned();
        assert!(locked.contains(&(name.to_owned(), version)), "{name}");
        assert_eq!(of(name)["licenses"][0]["expression"], licence, "{name}");
    }
    assert_eq!(
        of("glibc")["licenses"][0]["expression"],
        "LGPL-2.1-or-later"
    );
    for component in &components {
        assert!(
            component["licenses"][0]["expression"].is_string(),
            "{component}"
        );
        assert!(
            component["version"]
                .as_str()
                .is_some_and(|version| !version.is_empty())
        );
    }
    let is_there = |name: &str| components.iter().any(|component| component["name"] == name);
    // A crate of the harness, and a crate that only a build script uses.
    for name in ["tests", "cluster", "indicatif", "insta", "protox"] {
        assert!(!is_there(name), "{name}");
    }
}

#[test]
fn the_dependencies_of_each_part_are_listed_too() {
    let list = json("sbom.cdx.json");
    let listed: BTreeSet<_> = components()
        .iter()
        .map(|c| c["bom-ref"].to_string())
        .collect();
    let dependencies = list["dependencies"].as_array().unwrap();
    let is_crate = |component: &Value| {
        let purl = component["purl"].as_str().unwrap();
        purl.starts_with("pkg:cargo/")
    };
    let crates = components().iter().filter(|c| is_crate(c)).count();
    assert_eq!(
        dependencies.len(),
        crates + 1,
        "one entry for the release itself, and one for every crate"
    );
    let mut edges = 0;
    for dependency in dependencies {
        for needed in dependency["dependsOn"].as_array().into_iter().flatten() {
            assert!(listed.contains(&needed.to_string()), "{needed}");
            edges += 1;
        }
    }
    assert!(edges > 500, "{edges}");
}

#[test]
fn every_licence_has_its_text() {
    let text = String::from_utf8(FILES["THIRD-PARTY-LICENSES.txt"].clone()).unwrap();
    for component in components() {
        let (name, version) = (&component["name"], &component["version"]);
        let name = name.as_str().unwrap();
        let is_other = component["purl"]
            .as_str()
            .unwrap()
            .starts_with("pkg:cargo/");
        let is_ours = ["guest-", "ipu-", "namespace-quota", "vipu-"]
            .iter()
            .any(|start| name.starts_with(start));
        if is_other && !is_ours {
            let line = format!("\n{name} {}: ", version.as_str().unwrap());
            assert!(text.contains(&line), "{line}");
        }
    }
    for words in [
        "Apache License\n                           Version 2.0, January 2004",
        "Permission is hereby granted, free of charge, to any person obtaining a copy",
        "LLVM Exceptions to the Apache 2.0 License",
        "GNU LESSER GENERAL PUBLIC LICENSE",
        "Community Data License Agreement",
        "UNICODE LICENSE V3",
    ] {
        assert!(text.contains(words), "{words}");
    }
}
