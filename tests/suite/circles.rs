//! Checks that the modules of a package form no circle, so that a reader of a module needs only the modules that
//! it names.

mod imports;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::sources::{host_packages, repository, shipped, test_packages};
use imports::{imports, reexports};

/// The modules that each top module of a package names, each with the files and lines.
type Uses = BTreeMap<String, BTreeMap<String, Vec<String>>>;

/// Reads the modules of a package, without those that are compiled only for tests. What a submodule names counts for its
/// top module. A name that the root imports from a module counts as the module.
fn uses(package: &str) -> Uses {
    let root = Path::new(package).join("src");
    let file = parsed(&root.join("lib.rs"));
    let (modules, reexports) = (declared(&file), reexports(&file));
    let mut uses = Uses::new();
    for name in &modules {
        let mut named: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (other, place) in read(&root, std::slice::from_ref(name)) {
            let other = if modules.contains(&other) {
                Some(&other)
            } else {
                reexports.get(&other)
            };
            if let Some(other) = other.filter(|other| *other != name && modules.contains(other)) {
                named.entry(other.clone()).or_default().push(place);
            }
        }
        uses.insert(name.clone(), named);
    }
    uses
}

/// The first name of each path within the package that a module and its submodules name, with its file and line.
fn read(root: &Path, module: &[String]) -> Vec<(String, String)> {
    let path = root
        .join(module.iter().collect::<PathBuf>())
        .with_extension("rs");
    let file = parsed(&path);
    let mut named = Vec::new();
    for import in imports(&file, module) {
        let place = format!("{}:{}", path.display(), import.line);
        named.extend(import.path.into_iter().next().map(|first| (first, place)));
    }
    for below in declared(&file) {
        named.extend(read(root, &[module, &[below]].concat()));
    }
    named
}

/// Parses a file that is named from the top folder of the repository on.
fn parsed(path: &Path) -> syn::File {
    let text = fs::read_to_string(repository().join(path));
    let text = text.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
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
    let mut next: Vec<&String> = uses[name].keys().collect();
    while let Some(name) = next.pop() {
        if reached.insert(name.clone()) {
            next.extend(uses[name].keys());
        }
    }
    reached
}

/// What the modules of a circle name of each other, one line for each two modules.
fn within(uses: &Uses, circle: &BTreeSet<String>) -> Vec<String> {
    let mut lines = Vec::new();
    for name in circle {
        for (other, places) in &uses[name] {
            if circle.contains(other) {
                lines.push(format!("{name} names {other}: {}", places.join(", ")));
            }
        }
    }
    lines
}

#[test]
fn modules_form_no_circle() {
    let mut found = Vec::new();
    for package in host_packages().into_iter().chain(test_packages()) {
        let uses = uses(&package);
        assert!(!uses.is_empty(), "{package} has no modules");
        let circles = circles(&uses);
        found.extend(circles.iter().map(|circle| within(&uses, circle)));
    }
    assert!(
        found.is_empty(),
        "modules form circles; move what both need into the module that needs less: {found:#?}"
    );
}

#[test]
fn the_check_sees_a_circle_and_the_modules_that_lead_to_it() {
    let place = |name: &&str| ((*name).to_owned(), vec![format!("{name}.rs:1")]);
    let to = |names: &[&str]| names.iter().map(place).collect();
    let uses = Uses::from([
        ("a".to_owned(), to(&["b"])),
        ("b".to_owned(), to(&["c", "d"])),
        ("c".to_owned(), to(&["a"])),
        ("d".to_owned(), to(&[])),
        ("e".to_owned(), to(&["a"])),
    ]);
    let circle: BTreeSet<_> = ["a", "b", "c"].map(str::to_owned).into();
    assert_eq!(circles(&uses), BTreeSet::from([circle.clone()]));
    assert_eq!(
        within(&uses, &circle),
        [
            "a names b: b.rs:1",
            "b names c: c.rs:1",
            "c names a: a.rs:1"
        ]
    );
}

#[test]
fn modules_of_the_operator_are_read_with_what_they_name() {
    let uses = uses("host/runtime");
    assert!(uses["port"].contains_key("certificates"), "{uses:?}");
    assert!(!uses["certificates"].contains_key("port"), "{uses:?}");
}
