//! The dependencies, by the rules of `deny.toml`: their licences, their sources, and crates that
//! nobody may bring in. cargo-deny checks the same and more for a release (`make advisories`), and
//! takes four minutes to build.

use std::collections::BTreeSet;

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package, PackageId};
use serde::Deserialize;
use spdx::{Expression, LicenseReq, Licensee};

use crate::sources::repository;

/// The part of `deny.toml` that is checked here.
#[derive(Deserialize)]
struct Rules {
    graph: Graph,
    licenses: Licences,
    bans: Bans,
}

#[derive(Deserialize)]
struct Graph {
    targets: Vec<String>,
}

#[derive(Deserialize)]
struct Licences {
    allow: Vec<String>,
    exceptions: Vec<Exception>,
}

#[derive(Deserialize)]
struct Exception {
    allow: Vec<String>,
    #[serde(rename = "crate")]
    name: String,
}

#[derive(Deserialize)]
struct Bans {
    deny: Vec<Banned>,
}

#[derive(Deserialize)]
struct Banned {
    #[serde(rename = "crate")]
    name: String,
    reason: String,
}

fn rules() -> Rules {
    let text = std::fs::read_to_string(repository().join("deny.toml")).unwrap();
    toml::from_str(&text).unwrap()
}

/// The packages that are built for the targets, those of the workspace among them.
fn packages(rules: &Rules) -> Vec<Package> {
    let mut found: Vec<Package> = Vec::new();
    for target in &rules.graph.targets {
        let mut command = MetadataCommand::new();
        command
            .current_dir(repository())
            .other_options(["--locked".to_owned(), format!("--filter-platform={target}")]);
        let metadata = command.exec().unwrap();
        let built = built(&metadata);
        let packages = metadata.packages.into_iter();
        let new = packages.filter(|package| built.contains(&package.id));
        for package in new {
            if found.iter().all(|known| known.id != package.id) {
                found.push(package);
            }
        }
    }
    found
}

/// Ids of the packages that a build of the workspace reaches.
fn built(metadata: &Metadata) -> BTreeSet<PackageId> {
    let resolve = metadata.resolve.as_ref().expect("it was asked for");
    let mut next: Vec<_> = metadata.workspace_members.clone();
    let mut reached = BTreeSet::new();
    while let Some(id) = next.pop() {
        if reached.insert(id.clone()) {
            let node = resolve.nodes.iter().find(|node| node.id == id).unwrap();
            next.extend(node.deps.iter().map(|dependency| dependency.pkg.clone()));
        }
    }
    reached
}

/// Why a licence is not allowed. `None` if it is.
fn refused(package: &Package, rules: &Licences) -> Option<String> {
    let Some(licence) = &package.license else {
        return Some("it has no licence".to_owned());
    };
    // Older crates separate alternatives by a slash.
    let expression = match Expression::parse_mode(licence, spdx::ParseMode::LAX) {
        Ok(expression) => expression,
        Err(error) => return Some(format!("its licence cannot be read: {error}")),
    };
    let own = rules.exceptions.iter();
    let own = own.filter(|exception| exception.name == *package.name);
    let allowed: Vec<Licensee> = rules
        .allow
        .iter()
        .chain(own.flat_map(|exception| &exception.allow))
        .map(|allowed| Licensee::parse(allowed).unwrap())
        .collect();
    let is_allowed = |required: &LicenseReq| allowed.iter().any(|one| one.satisfies(required));
    (!expression.evaluate(is_allowed)).then(|| format!("deny.toml does not allow {licence}"))
}

#[test]
fn every_licence_is_allowed() {
    let rules = rules();
    let packages = packages(&rules);
    assert!(packages.len() > 300, "only {} packages", packages.len());
    let refused: Vec<_> = packages
        .iter()
        .filter_map(|package| Some((&package.name, refused(package, &rules.licenses)?)))
        .collect();
    assert!(refused.is_empty(), "{refused:#?}");
}

#[test]
fn every_exception_is_used() {
    let rules = rules();
    let packages = packages(&rules);
    for exception in &rules.licenses.exceptions {
        let is_there = packages
            .iter()
            .any(|package| *package.name == exception.name);
        assert!(is_there, "nothing depends on {}", exception.name);
    }
}

#[test]
fn every_package_is_of_the_workspace_or_of_the_registry() {
    for package in packages(&rules()) {
        let source = package.source.as_ref();
        assert!(
            source.is_none_or(cargo_metadata::Source::is_crates_io),
            "{} comes from {source:?}",
            package.name
        );
    }
}

#[test]
fn nobody_brings_in_a_banned_crate() {
    let rules = rules();
    let packages = packages(&rules);
    for banned in &rules.bans.deny {
        let is_there = packages.iter().any(|package| *package.name == banned.name);
        assert!(!is_there, "{} is banned: {}", banned.name, banned.reason);
    }
}

#[test]
fn no_dependency_of_the_workspace_has_any_version() {
    let packages = packages(&rules());
    let own = packages.iter().filter(|package| package.source.is_none());
    for package in own {
        for dependency in &package.dependencies {
            let is_any = dependency.req.to_string() == "*";
            // A path inside the workspace needs no version.
            let is_inside = dependency.path.is_some() || dependency.kind == DependencyKind::Unknown;
            assert!(
                is_inside || !is_any,
                "{}: {}",
                package.name,
                dependency.name
            );
        }
    }
}

#[test]
fn a_licence_is_judged_by_its_whole_expression() {
    let rules = Licences {
        allow: vec!["MIT".to_owned(), "Apache-2.0".to_owned()],
        exceptions: vec![Exception {
            allow: vec!["ISC".to_owned()],
            name: "excepted".to_owned(),
        }],
    };
    let package = |name: &str, licence: Option<&str>| -> Package {
        let json = serde_json::json!({
            "name": name, "version": "1.0.0", "id": name, "dependencies": [], "targets": [],
            "features": {}, "manifest_path": "/Cargo.toml", "license": licence,
        });
        serde_json::from_value(json).unwrap()
    };
    for (name, licence, is_allowed) in [
        ("a", Some("MIT"), true),
        ("a", Some("MIT/GPL-3.0"), true),
        ("a", Some("MIT OR GPL-3.0-only"), true),
        ("a", Some("MIT AND GPL-3.0-only"), false),
        ("a", Some("Apache-2.0 AND ISC"), false),
        ("excepted", Some("Apache-2.0 AND ISC"), true),
        ("a", Some("GPL-3.0-only"), false),
        ("a", Some("as you like"), false),
        ("a", None, false),
    ] {
        let found = refused(&package(name, licence), &rules);
        assert_eq!(found.is_none(), is_allowed, "{licence:?}: {found:?}");
    }
}
