//! The commands of the Makefile, and the profile of released programs.

use std::collections::{BTreeMap, BTreeSet};
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

/// Targets of the Makefile, each with its prerequisites and its commands.
fn rules(makefile: &str) -> BTreeMap<String, (Vec<String>, Vec<String>)> {
    let joined = makefile.replace("\\\n", " ");
    let mut rules = BTreeMap::<String, (Vec<String>, Vec<String>)>::new();
    let mut current = None;
    for line in joined.lines() {
        if let Some(command) = line.strip_prefix('\t') {
            if let Some((_, commands)) = current.as_ref().and_then(|name| rules.get_mut(name)) {
                commands.push(command.to_owned());
            }
        } else if let Some((name, rest)) = line.split_once(':') {
            let is_target = name.chars().all(|c| c.is_ascii_lowercase() || c == '-');
            current = is_target.then(|| name.to_owned());
            if is_target {
                let needs = rest.split('#').next().unwrap_or_default();
                let needs = needs.split_whitespace().map(str::to_owned).collect();
                rules.insert(name.to_owned(), (needs, Vec::new()));
            }
        }
    }
    rules
}

/// All targets that a target makes, with itself, and all commands that it runs.
fn reached(makefile: &str, target: &str) -> (BTreeSet<String>, Vec<String>) {
    let rules = rules(makefile);
    let (mut targets, mut all) = (BTreeSet::new(), Vec::new());
    let mut next = vec![target.to_owned()];
    while let Some(target) = next.pop() {
        let Some((needs, commands)) = rules.get(&target) else {
            continue;
        };
        if targets.insert(target) {
            next.extend(needs.iter().cloned());
            for command in commands {
                let made = command.split("$(MAKE)").skip(1);
                let made = made.filter_map(|arguments| {
                    let mut words = arguments.split_whitespace();
                    words.find(|word| !word.starts_with('-'))
                });
                next.extend(made.map(str::to_owned));
            }
            all.extend(commands.iter().cloned());
        }
    }
    (targets, all)
}

/// Returns the tests for a release that `test-full` leaves out.
fn left_out(makefile: &str) -> Vec<String> {
    let (targets, commands) = reached(makefile, "test-full");
    let all = rules(makefile).into_keys();
    let tests = all.filter(|name| name.starts_with("test"));
    let others = [
        "bench",
        "check",
        "flood",
        "fuzz",
        "mutants",
        "placement",
        "soak",
    ];
    let wanted = tests.chain(others.map(str::to_owned));
    let mut left: Vec<_> = wanted.filter(|name| !targets.contains(name)).collect();
    let runs = |words: &[&str]| {
        let mut commands = commands.iter();
        commands.any(|command| words.iter().all(|word| command.contains(word)))
    };
    let programs = test_programs().into_iter();
    let programs = programs.map(|program| format!("--test {program}"));
    left.extend(programs.filter(|program| !runs(&[program.as_str()])));
    if !runs(&["IPU_OPERATOR_E2E=long", "--test e2e"]) {
        left.push("IPU_OPERATOR_E2E=long".to_owned());
    }
    left
}

#[test]
fn the_tests_for_a_release_omit_nothing() {
    assert_eq!(left_out(&text("Makefile")), [""; 0]);
}

#[test]
fn a_test_that_the_tests_for_a_release_omit_is_found() {
    let makefile = text("Makefile");
    let without = |line: &str| {
        assert_eq!(makefile.matches(line).count(), 1, "{line:?}");
        left_out(&makefile.replace(line, ""))
    };
    let target = |name: &str| without(&format!("\t@$(MAKE) --no-print-directory {name}\n"));
    for name in [
        "bench",
        "flood",
        "fuzz",
        "mutants",
        "placement",
        "soak",
        "test-versions",
    ] {
        assert_eq!(target(name), [name]);
    }
    for name in ["cert_manager", "languages"] {
        let line = format!("\tcargo test --locked --workspace --test {name}\n");
        assert_eq!(without(&line), [format!("--test {name}")]);
    }
    assert_eq!(without("IPU_OPERATOR_E2E=long "), ["IPU_OPERATOR_E2E=long"]);
    let released = without("test-full: test ##").join(" ");
    assert!(released.contains("--test apiserver"), "{released}");
}

/// A panic on one object must not end the process: see `host/runtime/src/panics.rs`.
#[test]
fn a_released_program_survives_a_panic() {
    let manifest = text("Cargo.toml");
    let (_, profile) = manifest.split_once("[profile.release]\n").unwrap();
    let profile = profile.split("\n[").next().unwrap();
    assert!(profile.contains("\npanic = \"unwind\""), "{profile}");
}
