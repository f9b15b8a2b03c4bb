//! Checks that the modules of a package form no circle, so that a reader of a module needs only the modules that
//! it names.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use syn::visit::Visit;

use crate::layering::Paths;
use crate::sources::{host_packages, repository, shipped, test_packages};

/// The modules that each top module of a package names.
type Uses = BTreeMap<String, BTreeSet<String>>;

/// Reads the modules of a package, without those that are compiled only for tests.
fn uses(package: &str) -> Uses {
    let root = repository().join(package).join("src");
    let mut uses = Uses::new();
    for name in declared(&parsed(&root.join("lib.rs"))) {
        let mut named = BTreeSet::new();
        read(&root, &name, &mut named);
        named.remove(&name);
        uses.insert(name, named);
    }
    let modules: BTreeSet<_> = uses.keys().cloned().collect();
    for named in uses.values_mut() {
        named.retain(|name| modules.contains(name));
    }
    uses
}

/// Adds the modules of the crate that a module and its submodules name.
fn read(folder: &Path, name: &str, named: &mut BTreeSet<String>) {
    let file = parsed(&folder.join(name).with_extension("rs"));
    let mut paths = Paths::default();
    paths.visit_file(&file);
    let tops = paths
        .0
        .iter()
        .filter_map(|path| path.strip_prefix("crate::")?.split("::").next());
    named.extend(tops.map(ToOwned::to_owned));
    for below in declared(&file) {
        read(&folder.join(name), &below, named);
    }
}

fn parsed(path: &PathBuf) -> syn::File {
    let text =
        fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    shipped(path, &text)
}

/// The modules that a file declares and that have their own files.
fn declared(file: &syn::File) -> Vec<String> {
    let modules = file.items.iter().filter_map(|item| match item {
        syn::Item::Mod(module) if module.content.is_none() => Some(module.ident.to_string()),
        _ => None,
    });
    modules.collect()
}

/// The modules that reach themselves, each with the other modules of its circle.
fn circles(uses: &Uses) -> BTreeSet<BTreeSet<String>> {
    let reached: BTreeMap<_, _> = uses.keys().map(|name| (name, reach(uses, name))).collect();
    let circle = |name: &String| {
        let there_and_back = |other: &&String| reached[*other].contains(name);
        reached[name]
            .iter()
            .filter(there_and_back)
            .cloned()
            .collect()
    };
    let circles: BTreeSet<BTreeSet<String>> = uses.keys().map(circle).collect();
    circles
        .into_iter()
        .filter(|circle| !circle.is_empty())
        .collect()
}

/// The modules that a module names, directly or indirectly.
fn reach(uses: &Uses, name: &str) -> BTreeSet<String> {
    let mut reached = BTreeSet::new();
    let mut next: Vec<&String> = uses[name].iter().collect();
    while let Some(name) = next.pop() {
        if reached.insert(name.clone()) {
            next.extend(&uses[name]);
        }
    }
    reached
}

#[test]
fn modules_form_no_circle() {
    for package in host_packages().into_iter().chain(test_packages()) {
        let uses = uses(&package);
        assert!(!uses.is_empty(), "{package} has no modules");
        let circles = circles(&uses);
        assert!(circles.is_empty(), "{package}: {circles:#?}");
    }
}

#[test]
fn the_check_sees_a_circle_and_the_modules_that_lead_to_it() {
    let to = |names: &[&str]| names.iter().map(ToString::to_string).collect();
    let uses = Uses::from([
        ("a".to_owned(), to(&["b"])),
        ("b".to_owned(), to(&["c", "d"])),
        ("c".to_owned(), to(&["a"])),
        ("d".to_owned(), to(&[])),
        ("e".to_owned(), to(&["a"])),
    ]);
    assert_eq!(circles(&uses), BTreeSet::from([to(&["a", "b", "c"])]));
}

#[test]
fn modules_of_the_operator_are_read_with_what_they_name() {
    let uses = uses("host/runtime");
    assert!(uses["port"].contains("certificates"), "{uses:?}");
    assert!(!uses["certificates"].contains("port"), "{uses:?}");
}
