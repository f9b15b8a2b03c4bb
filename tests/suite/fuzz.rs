//! Checks that the fuzz targets, which `make test` does not build, match the operator.

use std::collections::BTreeSet;
use std::fs;

use crate::sources::{host_packages, repository, rust_files};

fn text(path: &str) -> String {
    fs::read_to_string(repository().join(path)).unwrap()
}

/// The entries of a lock file, by package.
fn packages(lock: &str) -> Vec<String> {
    let packages = lock.split("[[package]]\n").skip(1);
    packages
        .map(|package| package.trim_end().to_owned())
        .collect()
}

/// The name, the version and the checksum of a package, without its dependencies.
fn identity(package: &str) -> &str {
    let (identity, _) = package
        .split_once("dependencies = ")
        .unwrap_or((package, ""));
    identity.trim_end()
}

#[test]
fn fuzz_targets_have_the_versions_of_the_shipped_crates() {
    let (ours, theirs) = (text("Cargo.lock"), text("tests/fuzz/Cargo.lock"));
    let ours = packages(&ours);
    let ours: BTreeSet<&str> = ours.iter().map(|package| identity(package)).collect();
    let theirs = packages(&theirs);
    let theirs = theirs.iter().map(|package| identity(package));
    let other: Vec<&str> = theirs.filter(|package| !ours.contains(package)).collect();
    let names: Vec<&str> = other.iter().filter_map(|one| one.lines().next()).collect();
    assert_eq!(
        names,
        ["name = \"fuzz-targets\"", "name = \"libfuzzer-sys\""],
        "tests/fuzz/Cargo.lock has other versions than Cargo.lock; create it again: \
         cp Cargo.lock tests/fuzz && cargo metadata --manifest-path tests/fuzz/Cargo.toml"
    );
}

#[test]
fn the_lock_file_of_the_fuzz_targets_contains_all_dependencies_of_the_operator() {
    let lock = packages(&text("tests/fuzz/Cargo.lock"));
    let names: BTreeSet<String> = host_packages().iter().map(|one| name(one)).collect();
    let mut checked = BTreeSet::new();
    for folder in host_packages() {
        let package = name(&folder);
        let locked = format!("name = \"{package}\"\n");
        let Some(locked) = lock.iter().find(|one| one.starts_with(&locked)) else {
            continue;
        };
        for dependency in dependencies(&folder) {
            assert!(
                locked.contains(&format!("\"{dependency}\""))
                    || locked.contains(&format!("\"{dependency} ")),
                "tests/fuzz/Cargo.lock lacks {dependency} of {package}; run \
                 cargo metadata --manifest-path tests/fuzz/Cargo.toml"
            );
            if names.contains(&dependency) {
                checked.insert(dependency);
            }
        }
        checked.insert(package);
    }
    for needed in ["ipu-api", "ipu-partitions", "ipu-text", "vipu-client"] {
        assert!(
            checked.contains(needed),
            "{needed} is not in tests/fuzz/Cargo.lock"
        );
    }
}

/// The name of the package in a folder.
fn name(folder: &str) -> String {
    let manifest = text(&format!("{folder}/Cargo.toml"));
    let (_, rest) = manifest.split_once("\nname = \"").unwrap();
    rest.split('"').next().unwrap_or_default().to_owned()
}

/// The names of the dependencies of the package in a folder.
fn dependencies(folder: &str) -> Vec<String> {
    let manifest = text(&format!("{folder}/Cargo.toml"));
    let (_, dependencies) = manifest.split_once("\n[dependencies]\n").unwrap();
    let (dependencies, _) = dependencies.split_once("\n[").unwrap();
    let lines = dependencies.lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .filter_map(|line| line.split(['.', ' ']).next())
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_fuzz_target_is_run_and_has_seeds() {
    let manifest = text("tests/fuzz/Cargo.toml");
    let makefile = text("Makefile");
    let run = makefile
        .lines()
        .find_map(|line| line.strip_prefix("FUZZ_TARGETS := "))
        .unwrap();
    let named = manifest.split("[[bin]]\nname = \"").skip(1);
    let named: Vec<&str> = named.filter_map(|rest| rest.split('"').next()).collect();
    assert_eq!(run, named.join(" "));
    for target in named {
        let seeds = repository().join("tests/fuzz/seeds").join(target);
        assert!(seeds.is_dir(), "there is no {}", seeds.display());
    }
}

/// The command for more random inputs selects tests by their modules.
#[test]
fn the_command_for_fuzzing_runs_all_tests_with_random_inputs() {
    let document = text("tests/README.md");
    let mut lines = document.lines();
    let command = lines
        .find(|line| line.contains("IPU_OPERATOR_FUZZ_CASES="))
        .unwrap();
    let (_, words) = command.split_once(" -- ").unwrap();
    let is_read = |text: &str| text.contains("IPU_OPERATOR_FUZZ_CASES");
    let folders = ["host", "tests/partition-simulation"];
    let files = folders.into_iter().flat_map(rust_files);
    let files = files.filter(|(_, text)| is_read(text));
    let paths: Vec<_> = files.map(|(path, _)| path.display().to_string()).collect();
    assert!(paths.len() > 2, "{paths:?}");
    for path in paths {
        assert!(
            words.split(' ').any(|word| path.contains(word)),
            "{path} is not run: {command}"
        );
    }
}
