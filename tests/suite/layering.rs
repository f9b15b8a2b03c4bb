//! Checks the separation of pure files and shells, and that modules below one parent form no
//! circle.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use crate::sources::{
    guest_packages, host_files, host_packages, paths, repository, rust_files, shipped_files,
    test_packages,
};

/// Paths that a pure file never names: clients, runtimes, threads, clocks, environment, randomness.
const IMPURE: [&str; 24] = [
    "axum",
    "getrandom",
    "hyper",
    "hyper_util",
    "kube::Api",
    "kube::Client",
    "kube::api::Api",
    "kube::client",
    "kube::runtime",
    "rand",
    "reqwest",
    "ring::rand",
    "std::env",
    "std::fs",
    "std::net",
    "std::os",
    "std::process",
    "std::thread",
    "std::time::Instant",
    "std::time::SystemTime",
    "tokio",
    "tonic",
    "uuid",
    "wasmtime",
];

/// Allowed values of these packages: events of a watch, contents of an error, and a time that a
/// caller has read from the clock.
const VALUES: [&str; 3] = [
    "kube::client::UpgradeConnectionError",
    "kube::runtime::watcher::Event",
    "std::time::Instant",
];

/// Ends of paths that read a clock, of every type.
const CLOCKS: [&str; 2] = ["::now", "::elapsed"];

/// Decisions about jobs. If one is not pure, the separation of pure files and shells has changed.
const DECISIONS: [&str; 4] = ["validate.rs", "phase.rs", "plan.rs", "status.rs"];

/// Packages that are pure as a whole, and what their manifests may name.
const PURE_PACKAGES: [&str; 2] = ["host/ledger", "host/placement"];
const PURE_DEPENDENCIES: [&str; 9] = [
    "guest-serial-walk",
    "ipu-api",
    "ipu-placement",
    "ipu-text",
    "jiff",
    "k8s-openapi",
    "parking_lot",
    "serde_json",
    "thiserror",
];

/// Whether a path leads to `other` or below it.
fn is_below(path: &str, other: &str) -> bool {
    let rest = path.strip_prefix(other);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

/// The paths of a file that a pure file must not name.
fn impure(text: &str) -> Vec<String> {
    let is_impure = |path: &String| {
        let reads_clock = CLOCKS.iter().any(|clock| path.ends_with(clock));
        let is_value = VALUES.contains(&path.as_str());
        reads_clock || (!is_value && IMPURE.iter().any(|other| is_below(path, other)))
    };
    let mut paths = paths(text);
    paths.retain(is_impure);
    paths
}

#[test]
fn pure_files_name_no_client_clock_environment_or_runtime() {
    let mut pure: BTreeMap<_, _> = host_files()
        .into_iter()
        .chain(rust_files("guests"))
        .collect();
    let packages = PURE_PACKAGES.map(|package| repository().join(package));
    pure.retain(|path, text| {
        text.starts_with("//! Pure:") || packages.iter().any(|package| path.starts_with(package))
    });
    assert!(pure.len() > 100, "only {} files are pure", pure.len());
    for decision in DECISIONS {
        let path = repository().join("host/jobs/src").join(decision);
        assert!(pure.contains_key(&path), "{} is not pure", path.display());
    }
    let named = pure.into_iter().map(|(path, text)| (path, impure(&text)));
    let broken: Vec<_> = named.filter(|(_, named)| !named.is_empty()).collect();
    assert!(broken.is_empty(), "pure files name: {broken:#?}");
}

#[test]
fn a_pure_package_depends_on_no_client_and_no_runtime() {
    for package in PURE_PACKAGES {
        let path = repository().join(package).join("Cargo.toml");
        let manifest: toml::Table = fs::read_to_string(path).unwrap().parse().unwrap();
        let dependencies = manifest["dependencies"].as_table().unwrap();
        let others: Vec<_> = dependencies
            .keys()
            .filter(|name| !PURE_DEPENDENCIES.contains(&name.as_str()))
            .collect();
        assert!(others.is_empty(), "{package} depends on {others:?}");
    }
}

#[test]
fn impure_paths_are_found_in_groups_macros_and_methods() {
    let text = "
        #[cfg(test)]
        mod tests { use std::fs; }
        use std::{collections::BTreeMap, thread};
        use {std::{time::{self, SystemTime}}, tokio::*};
        fn one() { let later = assert_eq!(tokio::time::sleep(1), started.elapsed() - self.now); }
        fn two(since: jiff::Timestamp, at: std::time::Instant) { jiff::Timestamp::now(); }
    ";
    let expected = [
        "std::thread",
        "std::time::SystemTime",
        "tokio::",
        "tokio::time::sleep",
        "_::elapsed",
        "jiff::Timestamp::now",
    ];
    assert_eq!(impure(text), expected);
}

/// The modules of a package, each with the paths that it names, by its own path from the root on.
type Modules = BTreeMap<Vec<String>, Vec<String>>;

/// Reads the modules of a package.
fn modules(package: &str) -> Modules {
    let root = repository().join(package).join("src");
    let module = |(path, text): (PathBuf, String)| {
        let below = path.strip_prefix(&root).unwrap_or(&path).with_extension("");
        let names = below.iter().map(|name| name.to_string_lossy().into_owned());
        let names = names.filter(|name| !["lib", "main"].contains(&name.as_str()));
        (names.collect(), paths(&text))
    };
    shipped_files(package).into_iter().map(module).collect()
}

/// The siblings that each module names, itself or in a module below it. A name that the parent
/// reexports from a sibling does not count.
fn uses(modules: &Modules) -> BTreeMap<&[String], BTreeSet<&[String]>> {
    let mut uses: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for (module, named) in modules {
        for path in named {
            let Some(path) = resolved(module, path) else {
                continue;
            };
            let same = module
                .iter()
                .zip(&path)
                .take_while(|(own, other)| own == other)
                .count();
            if same < module.len()
                && same < path.len()
                && let Some((other, _)) = modules.get_key_value(&path[..=same])
            {
                uses.entry(&module[..=same])
                    .or_default()
                    .insert(other.as_slice());
            }
        }
    }
    uses
}

/// A path from the root of its package on. `None`: it leads to another package, or to a name of its
/// file.
fn resolved(module: &[String], path: &str) -> Option<Vec<String>> {
    let mut found = match path.split_once("::")?.0 {
        "crate" => Vec::new(),
        "self" | "super" => module.to_vec(),
        _ => return None,
    };
    for name in path.split("::") {
        match name {
            "crate" | "self" => {}
            "super" => drop(found.pop()),
            name => found.push(name.to_owned()),
        }
    }
    Some(found)
}

/// The modules of circles, and those that lead to one.
fn circles(modules: &Modules) -> BTreeMap<&[String], BTreeSet<&[String]>> {
    let mut uses = uses(modules);
    loop {
        let left: BTreeSet<_> = uses.keys().copied().collect();
        let before: usize = uses.values().map(BTreeSet::len).sum();
        uses.retain(|_, named| {
            named.retain(|name| left.contains(name));
            !named.is_empty()
        });
        if uses.values().map(BTreeSet::len).sum::<usize>() == before {
            return uses;
        }
    }
}

#[test]
fn modules_below_one_parent_form_no_circle() {
    let packages = [host_packages(), test_packages(), guest_packages()].concat();
    for package in packages {
        let modules = modules(&package);
        let circles = circles(&modules);
        assert!(
            circles.is_empty(),
            "{package}: move what both need into a module of its own: {circles:#?}"
        );
    }
}

#[test]
fn a_circle_is_found_at_every_level() {
    let package = |files: &[(&str, &str)]| -> Modules {
        let module = |(path, text): &(&str, &str)| {
            let names = path.split("::").filter(|name| !name.is_empty());
            (names.map(str::to_owned).collect(), paths(text))
        };
        files.iter().map(module).collect()
    };
    let circle = package(&[
        ("p", "use a::A;"),
        ("p::a::x", "use super::super::b::B;"),
        ("p::b", "use crate::{p::a::A, q::Q};"),
        ("p::a", ""),
        ("q", ""),
    ]);
    let names = circles(&circle).into_keys().map(|path| path.join("::"));
    assert_eq!(names.collect::<Vec<_>>(), ["p::a", "p::b"]);
    let none = package(&[
        ("p", "use a::A; struct P;"),
        ("p::a", "use super::P; use super::b::B;"),
        ("p::b", "#[cfg(test)] mod tests { use super::super::a::A; }"),
    ]);
    assert_eq!(circles(&none), BTreeMap::new());
}
