//! Rules of the packages and files that neither cargo nor clippy checks.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use cluster::images::openmpi;

use crate::sources::{guest_packages, host_packages, repository, rust_files, test_packages};

/// The maximum of lines in a file. Clippy checks functions (`too-many-lines-threshold`).
const MOST_LINES: usize = 400;

/// The maximum of characters in a line of a comment: rustfmt's maximum for code.
const COMMENT_WIDTH: usize = 100;

fn text(path: &str) -> String {
    fs::read_to_string(repository().join(path)).unwrap()
}

#[test]
fn every_file_opens_with_its_purpose_and_has_at_most_400_lines() {
    let folders = ["host", "guests", "tests", "examples"].into_iter();
    let files: Vec<_> = folders.flat_map(rust_files).collect();
    assert!(files.len() > 700, "only {} files were read", files.len());
    let is_good = |text: &str| text.starts_with("//! ") && text.lines().count() <= MOST_LINES;
    let bad = files.iter().filter(|(_, text)| !is_good(text));
    let bad: Vec<_> = bad.map(|(path, _)| path).collect();
    assert!(
        bad.is_empty(),
        "no purpose, or over {MOST_LINES} lines: {bad:#?}"
    );
}

/// Whether a line is a comment that could be narrower: no row of a table, and no text in backquotes
/// that fills it.
fn is_wide_comment(line: &str) -> bool {
    let Some(comment) = line.trim_start().strip_prefix("//") else {
        return false;
    };
    let words = comment.trim_start_matches(['/', '!']).trim_start();
    let is_whole = words.starts_with('|') || words.starts_with('`');
    line.chars().count() > COMMENT_WIDTH && !is_whole
}

#[test]
fn comments_are_as_wide_as_code() {
    let folders = ["host", "guests", "tests", "examples"].into_iter();
    let files = folders.flat_map(rust_files).collect::<Vec<_>>();
    let wide = files.iter().flat_map(|(path, text)| {
        let lines = text.lines().enumerate();
        let wide = lines.filter(|(_, line)| is_wide_comment(line));
        wide.map(move |(index, _)| format!("{}:{}", path.display(), index + 1))
    });
    let wide: Vec<_> = wide.collect();
    assert!(
        wide.is_empty(),
        "over {COMMENT_WIDTH} characters: {wide:#?}"
    );
}

/// The compiler reads a file only if another one declares it as a module.
#[test]
fn every_file_is_a_module_of_its_package() {
    let files = rust_files("host").into_iter().chain(rust_files("guests"));
    let files: BTreeMap<_, _> = files.collect();
    let is_root = |name: &str| ["lib", "main", "build"].contains(&name);
    let mut undeclared = Vec::new();
    for path in files.keys() {
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let folder = path.parent().unwrap_or(path);
        let parents = [
            folder.with_extension("rs"),
            folder.join("lib.rs"),
            folder.join("main.rs"),
            folder.join("mod.rs"),
        ];
        let mut parents = parents.iter().filter_map(|parent| files.get(parent));
        let declaration = format!("mod {name};");
        let is_below_src = path.components().any(|part| part.as_os_str() == "src");
        if is_below_src && !is_root(&name) && !parents.any(|text| text.contains(&declaration)) {
            undeclared.push(path);
        }
    }
    assert!(undeclared.is_empty(), "no module: {undeclared:#?}");
}

/// The lints include the ban of unsafe code. Only the guest host, which loads compiled guests,
/// allows it in a module.
#[test]
fn every_package_inherits_the_lints_and_one_uses_wasmtime() {
    let packages = [host_packages(), test_packages(), guest_packages()].concat();
    assert!(packages.len() > 20, "{packages:?}");
    for package in &packages {
        let manifest = text(&format!("{package}/Cargo.toml"));
        assert!(
            manifest.ends_with("\n[lints]\nworkspace = true\n"),
            "{package}"
        );
        let has_wasmtime = manifest.contains("\nwasmtime");
        assert_eq!(has_wasmtime, package == "host/guest-host", "{package}");
    }
}

/// Users build the image of the examples from the file. The cluster's image has the same packages,
/// from a lock file.
#[test]
fn dockerfile_of_open_mpi_installs_the_packages_of_the_clusters_image() {
    let file = text("examples/openmpi/Dockerfile");
    let (_, packages) = file.split_once("--no-install-recommends ").unwrap();
    let packages = packages.lines().next().unwrap().trim_end_matches(" \\");
    assert_eq!(packages.replace(' ', ","), openmpi::PACKAGES);
}

/// The packages of the operator that a manifest names, by their folders, without `text`, which all
/// may use.
fn used(manifest: &str) -> BTreeSet<&str> {
    let (_, dependencies) = manifest.split_once("\n[dependencies]\n").unwrap();
    let dependencies = dependencies.split("\n[").next().unwrap_or_default().lines();
    let names = dependencies.filter_map(|line| line.split(['.', ' ']).next());
    let folders = names.filter_map(|name| match name {
        "vipu-client" => Some("vipu"),
        "ipu-text" => None,
        name => name.strip_prefix("ipu-"),
    });
    folders.collect()
}

#[test]
fn the_documents_list_every_package_and_those_that_it_uses() {
    let (folders, architecture) = (text("host/README.md"), text("ARCHITECTURE.md"));
    for package in host_packages() {
        let start = format!("| `{package}` (`");
        let row = architecture
            .lines()
            .find(|line| line.starts_with(&start))
            .unwrap();
        if let Some(folder) = package.strip_prefix("host/") {
            let start = format!("\n| `{folder}` | `");
            assert!(folders.contains(&start), "host/README.md: {folder}");
            let listed = row
                .trim_end_matches(" |")
                .rsplit(" | ")
                .next()
                .unwrap_or_default();
            let listed = listed.split(", ").filter(|name| *name != "–").collect();
            let manifest = text(&format!("{package}/Cargo.toml"));
            assert_eq!(used(&manifest), listed, "right: {row}");
        }
    }
}
