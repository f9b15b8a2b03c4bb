//! What the Makefile runs, and the profile of what is released.

use std::fs;

use crate::sources::{host_packages, repository};

fn text(file: &str) -> String {
    fs::read_to_string(repository().join(file)).unwrap()
}

/// Names of the test programs: files of `tests` in packages of `host`, and folders of `tests` with a `main.rs`.
fn test_programs() -> Vec<String> {
    let stems = |folder: &str| {
        let entries = fs::read_dir(repository().join(folder)).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        paths.collect::<Vec<_>>()
    };
    let folders = host_packages().into_iter();
    let folders = folders.map(|package| format!("{package}/tests"));
    let folders = folders.filter(|folder| repository().join(folder).is_dir());
    let files = folders.flat_map(|folder| stems(&folder));
    let files = files.filter(|path| path.extension().is_some_and(|extension| extension == "rs"));
    let folders = stems("tests").into_iter();
    let folders = folders.filter(|path| path.join("main.rs").is_file());
    let names = files.chain(folders);
    let names = names.map(|path| path.file_stem().unwrap().to_string_lossy().into_owned());
    names.collect()
}

#[test]
fn every_test_program_is_run() {
    let makefile = text("Makefile");
    let commands: Vec<_> = makefile
        .lines()
        .filter(|line| line.starts_with('\t'))
        .collect();
    let words: Vec<_> = commands
        .iter()
        .flat_map(|line| line.split_whitespace())
        .collect();
    let programs = test_programs();
    assert!(programs.len() > 7, "{programs:?}");
    for program in programs {
        let is_run = words
            .windows(2)
            .any(|pair| pair == ["--test", program.as_str()]);
        assert!(is_run, "no target of the Makefile runs --test {program}");
    }
}

/// One object on which the operator panics must not end the process: see `host/runtime/src/panics.rs`.
#[test]
fn a_released_program_survives_a_panic() {
    let manifest = text("Cargo.toml");
    let (_, profile) = manifest.split_once("[profile.release]\n").unwrap();
    let profile = profile.split("\n[").next().unwrap();
    assert!(profile.contains("\npanic = \"unwind\""), "{profile}");
}
