//! Checks that the modules below one parent form no circle, so that a reader of a module needs only the modules that it
//! names.

mod graph;
mod imports;

use std::fs;
use std::path::{Path, PathBuf};

use crate::sources::{guest_packages, host_packages, repository, shipped, test_packages};
use graph::{Module, Modules, circles, uses, within};

/// The root files of the packages and of the test programs, from the top folder of the repository on.
fn roots() -> Vec<PathBuf> {
    let packages = [host_packages(), test_packages(), guest_packages()].concat();
    let libraries = packages
        .iter()
        .map(|package| format!("{package}/src/lib.rs"));
    let entries = fs::read_dir(repository().join("tests")).expect("the folder can be listed");
    let names = entries.map(|entry| entry.expect("a folder entry can be read").file_name());
    let programs = names.map(|name| format!("tests/{}/main.rs", name.to_string_lossy()));
    let programs = programs.filter(|program| repository().join(program).is_file());
    libraries.chain(programs).map(PathBuf::from).collect()
}

/// Reads the modules from a root file on, without those that are compiled only for tests.
fn modules(root: &Path) -> Modules {
    let mut modules = Modules::new();
    read(root, &[], &mut modules);
    modules
}

fn read(root: &Path, path: &[String], modules: &mut Modules) {
    let file = if path.is_empty() {
        root.to_owned()
    } else {
        let below = path.iter().collect::<PathBuf>();
        root.with_file_name(below).with_extension("rs")
    };
    let text = fs::read_to_string(repository().join(&file));
    let text = text.unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let parsed = shipped(&file, &text);
    let module = Module::new(&file, &parsed, path);
    for name in &module.declared {
        read(root, &[path, std::slice::from_ref(name)].concat(), modules);
    }
    modules.insert(path.to_vec(), module);
}

#[test]
fn modules_form_no_circle() {
    let (mut found, mut count) = (Vec::new(), 0);
    for root in roots() {
        let modules = modules(&root);
        count += modules.len();
        let uses = uses(&modules);
        let circles = circles(&uses);
        found.extend(circles.iter().map(|circle| within(&uses, circle)));
    }
    assert!(count > 700, "only {count} modules were read");
    assert!(
        found.is_empty(),
        "modules below one parent form circles; move what both need into the module that needs less, or into a \
         module of its own: {found:#?}"
    );
}

#[test]
fn modules_of_the_operator_are_read_with_what_they_name() {
    let uses = uses(&modules(Path::new("host/runtime/src/lib.rs")));
    for (name, other) in [("port", "certificates"), ("port::serve", "port::limits")] {
        assert!(uses[name].contains_key(other), "{name}: {:?}", uses[name]);
        assert!(
            !uses[other].contains_key(name),
            "{other}: {:?}",
            uses[other]
        );
    }
}

#[test]
fn packages_guests_and_test_programs_are_read() {
    let roots = roots();
    for root in [
        "guests/validation/src/lib.rs",
        "host/src/lib.rs",
        "tests/cluster/src/lib.rs",
        "tests/suite/main.rs",
    ] {
        assert!(roots.iter().any(|one| one == Path::new(root)), "{root}");
    }
}
