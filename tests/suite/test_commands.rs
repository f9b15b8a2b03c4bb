//! Checks the commands that run tests, in the documents and the Makefile: each program is run, and
//! each word that selects tests occurs in their names, because cargo's test runner succeeds if a
//! word matches no test.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::sources::{documents, host_packages, repository, rust_files};

/// Names of the test programs: files of `tests` in packages of `host`, and folders of `tests` with
/// a `main.rs`.
fn programs() -> BTreeSet<String> {
    let entries = |folder: String| -> Vec<PathBuf> {
        let entries = fs::read_dir(repository().join(folder))
            .into_iter()
            .flatten();
        entries.map(|entry| entry.unwrap().path()).collect()
    };
    let files = host_packages()
        .into_iter()
        .flat_map(|package| entries(package + "/tests"));
    let files = files.filter(|path| path.extension().is_some_and(|extension| extension == "rs"));
    let folders = entries("tests".to_owned()).into_iter();
    let folders = folders.filter(|path| path.join("main.rs").is_file());
    let names = files
        .chain(folders)
        .map(|path| path.file_stem().unwrap().to_owned());
    names.map(|name| name.into_string().unwrap()).collect()
}

/// The programs and the words of a command after `cargo test`.
fn selected(command: &str) -> (Vec<&str>, Vec<&str>) {
    let is_end = |word: &&str| ["#", "&&", "|", "||", ";"].contains(word);
    let mut words = command.split_whitespace().take_while(|word| !is_end(word));
    let (mut programs, mut filters) = (Vec::new(), Vec::new());
    while let Some(word) = words.next() {
        match word {
            "--test" => programs.extend(words.next()),
            "--config" | "--package" | "-p" => drop(words.next()),
            option if option.starts_with('-') => {}
            filter => filters.push(filter.trim_matches(['`', '"', ','])),
        }
    }
    (programs, filters)
}

/// Names of the modules and functions of a file, and its strings, because e2e names its tests in a
/// list.
fn names((path, text): (PathBuf, String)) -> Vec<String> {
    let path = path.with_extension("");
    let modules = path.iter().map(|part| part.to_string_lossy().into_owned());
    let functions = text.split("fn ").skip(1);
    let functions = functions.filter_map(|after| after.split('(').next());
    let strings = text.split('"').skip(1).step_by(2);
    modules
        .chain(functions.chain(strings).map(str::to_owned))
        .collect()
}

#[test]
fn every_command_that_selects_tests_finds_them() {
    let makefile = fs::read_to_string(repository().join("Makefile")).unwrap();
    let texts = documents()
        .into_iter()
        .map(|(_, text)| text)
        .chain([makefile]);
    let text = texts.collect::<Vec<_>>().join("\n").replace("\\\n", " ");
    let starts = ["cargo test ", "tests/filtered.sh "].into_iter();
    let commands =
        starts.flat_map(|start| text.lines().filter_map(move |line| line.split_once(start)));
    let code = rust_files("host").into_iter().chain(rust_files("tests"));
    let (programs, names): (_, BTreeSet<_>) = (programs(), code.flat_map(names).collect());
    let mut seen = 0;
    for (_, command) in commands {
        let (run, filters) = selected(command);
        let missing = run.iter().find(|program| !programs.contains(**program));
        assert_eq!(
            missing, None,
            "{command}: there is no program of tests of this name"
        );
        for word in filters.iter().flat_map(|filter| filter.split("::")) {
            seen += 1;
            let is_there = names.iter().any(|name| name.contains(word));
            assert!(is_there, "{command}: no test has {word:?} in its name");
        }
    }
    assert!(seen > 10, "only {seen} words were found");
}

#[test]
fn the_makefile_runs_every_test_program() {
    let makefile = fs::read_to_string(repository().join("Makefile")).unwrap();
    let run: BTreeSet<_> = makefile.lines().flat_map(|line| selected(line).0).collect();
    for program in programs() {
        assert!(
            run.contains(program.as_str()),
            "no target runs --test {program}"
        );
    }
}

/// A rule that this version of make reads in another way fails only when somebody uses the target.
#[test]
fn make_knows_how_to_make_every_target() {
    let makefile = fs::read_to_string(repository().join("Makefile")).unwrap();
    let described = makefile
        .lines()
        .filter(|line| line.contains(':') && line.contains(" ## "));
    let targets: Vec<&str> = described
        .filter_map(|line| line.split(':').next())
        .collect();
    assert!(targets.contains(&"mutants"), "{targets:?}");
    for target in targets {
        let planned = Command::new("make")
            .args(["--dry-run", target])
            .current_dir(repository())
            .output()
            .unwrap();
        assert!(planned.status.success(), "{target}: {planned:?}");
    }
}
