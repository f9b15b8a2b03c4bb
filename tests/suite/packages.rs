//! Checks the dependencies of the packages of the host and of the tests, and the rules for each of them.

use std::collections::BTreeSet;
use std::fs;

use crate::sources::{host_packages, repository, test_packages};

/// The packages of the operator that each of them may depend on. A package that is missing here
/// depends on none.
const MAY_NAME: [(&str, &[&str]); 14] = [
    ("agent", &["text"]),
    ("dashboard", &["api", "text"]),
    ("kubectl", &["api", "dashboard", "text"]),
    ("runtime", &["api", "text"]),
    ("vipu", &["api", "text"]),
    ("guest-host", &["api", "runtime", "text"]),
    ("policies", &["api", "guest-host", "runtime", "text"]),
    (
        "admission",
        &["api", "guest-host", "policies", "runtime", "text"],
    ),
    ("jobs", &["api", "runtime"]),
    ("pods", &["api", "runtime", "text"]),
    ("kueue", &["api", "jobs", "runtime", "text"]),
    (
        "partitions",
        &["api", "guest-host", "policies", "runtime", "text", "vipu"],
    ),
    ("evaluation", &["api", "guest-host", "partitions", "vipu"]),
    (
        "authoring",
        &["admission", "evaluation", "guest-host", "policies", "text"],
    ),
];

/// The packages of this repository that those of the tests may depend on. The suites (`tests`) may
/// depend on all but the benchmarks.
const TESTS_MAY_NAME: [(&str, &[&str]); 5] = [
    (
        "tests/bench",
        &[
            "api",
            "cluster",
            "guest-host",
            "harness",
            "partitions",
            "policies",
            "release",
            "vipu",
            "vipu-simulator",
        ],
    ),
    ("tests/cluster", &[]),
    ("tests/harness", &["api", "cluster", "release", "vipu"]),
    ("tests/release", &["cluster", "guest-host", "policies"]),
    ("tests/vipu-simulator", &["api", "vipu"]),
];

/// The package that wires the others together, and may depend on all of them.
const OPERATOR: &str = "host";

/// The package that tests the others, and may depend on all of them.
const SUITES: &str = "tests";

fn manifest(package: &str) -> String {
    fs::read_to_string(repository().join(package).join("Cargo.toml")).unwrap()
}

/// The packages of this repository that a package depends on, without its dev-dependencies, by
/// their folders.
fn named(package: &str) -> BTreeSet<String> {
    let manifest = manifest(package);
    let (_, dependencies) = manifest.split_once("[dependencies]\n").unwrap();
    let dependencies = dependencies.split("\n[").next().unwrap_or_default();
    let names = dependencies
        .lines()
        .filter_map(|line| line.split(['.', ' ']).next());
    let names = names.filter_map(|name| match name {
        "vipu-client" => Some("vipu"),
        "cluster" | "harness" | "release" | "tests" | "vipu-simulator" => Some(name),
        other => other.strip_prefix("ipu-"),
    });
    names.map(ToOwned::to_owned).collect()
}

#[test]
fn packages_depend_only_on_those_that_they_may_name() {
    for package in host_packages() {
        let folder = package.strip_prefix("host/").unwrap_or(OPERATOR);
        if folder == OPERATOR {
            continue;
        }
        let allowed = MAY_NAME.iter().find(|(name, _)| *name == folder);
        let allowed = allowed.map_or(&[] as &[&str], |(_, allowed)| *allowed);
        let allowed = allowed.iter().map(ToString::to_string).collect();
        assert_eq!(named(&package), allowed, "{package}");
    }
}

#[test]
fn packages_of_the_tests_depend_only_on_those_that_they_may_name() {
    let mut packages = test_packages();
    packages.retain(|package| package != SUITES);
    let listed = TESTS_MAY_NAME.map(|(package, _)| package);
    assert_eq!(packages, listed);
    for (package, allowed) in TESTS_MAY_NAME {
        let allowed = allowed.iter().map(ToString::to_string).collect();
        assert_eq!(named(package), allowed, "{package}");
    }
}

#[test]
fn every_package_forbids_unsafe_code_and_follows_the_lints() {
    let packages = host_packages();
    assert!(packages.len() > 10, "{packages:?}");
    for package in packages.into_iter().chain(test_packages()) {
        // It loads compiled guests, so one of its modules allows `unsafe`.
        let level = match package.as_str() {
            "host/guest-host" => "deny",
            _ => "forbid",
        };
        let attribute = format!("\n#![{level}(unsafe_code)]\n");
        let library = repository().join(&package).join("src/lib.rs");
        let library = fs::read_to_string(library).unwrap();
        assert!(library.contains(&attribute), "{package}");
        assert!(
            manifest(&package).ends_with("\n[lints]\nworkspace = true\n"),
            "{package}"
        );
    }
}

/// The first page of a package: the comment at the top of its library, as one line.
fn first_page(package: &str) -> String {
    let library = repository().join(package).join("src/lib.rs");
    let library = fs::read_to_string(library).unwrap();
    let page = library.lines().map_while(|line| line.strip_prefix("//!"));
    page.map(str::trim).collect::<Vec<_>>().join(" ")
}

#[test]
fn the_first_page_of_each_package_has_its_entry_points_and_its_bounds() {
    for package in host_packages().into_iter().chain(test_packages()) {
        let page = first_page(&package);
        for words in ["Entry points:", "It must not know"] {
            let count = page.matches(words).count();
            assert_eq!(count, 1, "{package}/src/lib.rs: `{words}` in {page}");
        }
        let purpose = page.split("Entry points:").next().unwrap_or_default();
        assert!(purpose.len() > 40, "{package}: {purpose}");
    }
}

#[test]
fn only_the_guest_host_names_wasmtime() {
    let packages = host_packages().into_iter();
    let with_wasmtime = packages.filter(|package| manifest(package).contains("\nwasmtime"));
    assert_eq!(with_wasmtime.collect::<Vec<_>>(), ["host/guest-host"]);
}

#[test]
fn the_documents_list_every_package() {
    let read = |path: &str| fs::read_to_string(repository().join(path)).unwrap();
    let (folders, architecture) = (read("host/README.md"), read("ARCHITECTURE.md"));
    for package in host_packages() {
        let row = format!("\n| `{package}` (`");
        assert!(architecture.contains(&row), "ARCHITECTURE.md: {package}");
        if let Some(folder) = package.strip_prefix("host/") {
            let row = format!("\n| `{folder}` | `");
            assert!(folders.contains(&row), "host/README.md: {folder}");
        }
    }
}
