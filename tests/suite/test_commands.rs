//! Checks the commands that run tests, in documents, comments and messages. Each filter must match a test, because
//! cargo's test runner succeeds if none matches.

use std::fs;
use std::path::{Path, PathBuf};

use crate::sources::{documents, host_packages, repository, rust_files, test_packages};

/// The start of a command.
const CARGO_TEST: &str = "cargo test ";

/// Options with a value that do not select tests.
const WITH_VALUE: [&str; 5] = [
    "--config",
    "--features",
    "--profile",
    "--target",
    "--target-dir",
];

/// The start of a command that passes words to `cargo test`. Each word must match a test.
const FILTERED: &str = "tests/filtered.sh \"";

/// Characters that end a command in a shell.
const ENDS: [&str; 4] = ["#", "&&", "|", "||"];

/// Sets the number of random inputs.
const FUZZ_CASES: &str = "IPU_OPERATOR_FUZZ_CASES";

/// A command that runs tests.
#[derive(Debug, Default, PartialEq, Eq)]
struct TestCommand {
    /// Its packages. If empty: all of them.
    packages: Vec<String>,
    /// Its programs of tests. If empty, without `lib`: all of them.
    programs: Vec<String>,
    /// Whether it runs unit tests of libraries.
    lib: bool,
    /// Words. It runs tests whose names contain one of them. If empty: all of them.
    filters: Vec<String>,
}

/// A program of tests.
struct Program {
    package: String,
    /// `None` for the unit tests of a library.
    name: Option<String>,
    /// Names of its tests, with the modules that are files.
    tests: Vec<String>,
}

impl TestCommand {
    /// Parses the words after `cargo test`.
    fn read(text: &str) -> Self {
        let mut command = Self::default();
        let mut is_all = false;
        let mut words = text
            .split_whitespace()
            .take_while(|word| !ENDS.contains(word));
        while let Some(word) = words.next() {
            match word {
                "-p" | "--package" => command.packages.extend(words.next().map(str::to_owned)),
                "--test" => command.programs.extend(words.next().map(str::to_owned)),
                "--workspace" => is_all = true,
                "--lib" => command.lib = true,
                option if WITH_VALUE.contains(&option) => {
                    words.next();
                }
                option if option.starts_with('-') => {}
                filter => command.filters.push(filter.to_owned()),
            }
        }
        // Cargo ignores packages of the workspace beside `--workspace`.
        if is_all {
            command.packages.clear();
        }
        command
    }

    fn runs(&self, program: &Program) -> bool {
        let has_package = self.packages.is_empty() || self.packages.contains(&program.package);
        let is_any = self.programs.is_empty() && !self.lib;
        let is_named = match &program.name {
            Some(name) => self.programs.contains(name),
            None => self.lib,
        };
        has_package && (is_any || is_named)
    }

    /// Returns why it runs fewer tests than it names.
    fn problem(&self, programs: &[Program]) -> Option<String> {
        let run: Vec<_> = programs.iter().filter(|one| self.runs(one)).collect();
        let is_there = |name: &&String| run.iter().any(|one| one.name.as_ref() == Some(*name));
        if let Some(missing) = self.programs.iter().find(|name| !is_there(name)) {
            return Some(format!("there is no program of tests {missing:?}"));
        }
        let mut names = run.iter().flat_map(|program| &program.tests);
        if self.filters.is_empty() {
            return names.next().is_none().then(|| "it runs no test".to_owned());
        }
        let names: Vec<_> = names.collect();
        let matches = |filter: &&String| names.iter().any(|name| name.contains(filter.as_str()));
        let missing = self.filters.iter().find(|filter| !matches(filter))?;
        Some(format!("no test that it runs matches {missing:?}"))
    }
}

/// The commands of a text that choose tests, each with the words before it in its line. A command ends with its line, or
/// with the quotation mark that encloses it.
fn commands(text: &str) -> Vec<(String, TestCommand)> {
    let joined = text.replace("\\\n", " ");
    let lines = joined.lines().flat_map(|line| line.split(['`', '"']));
    let found = lines.filter_map(|part| part.split_once(CARGO_TEST));
    found
        .map(|(before, after)| (before.trim().to_owned(), TestCommand::read(after)))
        .collect()
}

/// The commands of a text that choose tests by quoted words.
fn filtered(text: &str) -> Vec<TestCommand> {
    let joined = text.replace("\\\n", " ");
    let lines = joined.lines();
    let found = lines.flat_map(|line| line.split(FILTERED).skip(1));
    let read = |after: &str| {
        let (words, options) = after.split_once('"')?;
        let mut command = TestCommand::read(options);
        let words = words.split_whitespace().map(str::to_owned);
        command.filters.extend(words);
        Some(command)
    };
    found.filter_map(read).collect()
}

/// Every text that may contain a command for tests.
fn texts() -> Vec<(PathBuf, String)> {
    let mut texts = documents();
    for folder in ["examples", "guests", "host", "tests"] {
        texts.extend(rust_files(folder));
    }
    for path in ["Makefile", "charts/ipu-operator/values.yaml"] {
        let path = repository().join(path);
        let text = fs::read_to_string(&path).unwrap();
        texts.push((path, text));
    }
    // The cases in this file name no tests, and its commands are templates.
    texts.retain(|(path, _)| {
        let own = ["suite/test_commands.rs", "suite/makefile.rs"];
        !own.iter().any(|own| path.ends_with(own))
    });
    texts
}

/// All programs of tests of `host` and `tests`.
fn programs() -> Vec<Program> {
    let packages = host_packages().into_iter().chain(test_packages());
    packages.flat_map(|folder| programs_of(&folder)).collect()
}

fn programs_of(folder: &str) -> Vec<Program> {
    let manifest = fs::read_to_string(repository().join(folder).join("Cargo.toml")).unwrap();
    let name = manifest
        .lines()
        .find_map(|line| line.strip_prefix("name = "));
    let package = name.unwrap().trim_matches('"').to_owned();
    let program = |name: Option<String>, tests| Program {
        package: package.clone(),
        name,
        tests,
    };
    let mut found = vec![program(None, names(&format!("{folder}/src")))];
    for path in entries(&format!("{folder}/tests")) {
        if path.extension().is_some_and(|extension| extension == "rs") {
            let tests = functions(&fs::read_to_string(&path).unwrap());
            found.push(program(Some(stem(&path)), tests));
        }
    }
    // The suites are folders of their package.
    for path in entries(folder) {
        if path.join("main.rs").is_file() {
            let suite = stem(&path);
            let tests = names(&format!("{folder}/{suite}"));
            found.push(program(Some(suite), tests));
        }
    }
    found
}

/// The entries of a folder, if there is one.
fn entries(folder: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(repository().join(folder));
    let entries = entries.into_iter().flatten();
    entries.map(|entry| entry.unwrap().path()).collect()
}

fn stem(path: &Path) -> String {
    path.file_stem().unwrap().to_string_lossy().into_owned()
}

/// Names of the tests of a program, whose files are in this folder.
fn names(folder: &str) -> Vec<String> {
    let root = repository().join(folder);
    if !root.is_dir() {
        return Vec::new();
    }
    let named = |(path, text): (PathBuf, String)| {
        let module = module(path.strip_prefix(&root).unwrap());
        let tests = functions(&text).into_iter().chain(trials(&text));
        tests
            .map(|test| format!("{module}{test}"))
            .collect::<Vec<_>>()
    };
    rust_files(folder).into_iter().flat_map(named).collect()
}

/// The start of the names of a file's tests.
fn module(file: &Path) -> String {
    let path = file.with_extension("");
    let parts = path.iter().map(|part| part.to_string_lossy().into_owned());
    let parts = parts.filter(|part| !["lib", "main"].contains(&part.as_str()));
    parts.map(|part| part + "::").collect()
}

/// Names of the functions that are tests, also those within macros.
fn functions(text: &str) -> Vec<String> {
    let (mut found, mut is_test) = (Vec::new(), false);
    let lines = text.lines().map(str::trim_start);
    for line in lines.filter(|line| !line.starts_with("//")) {
        is_test |= line.starts_with("#[test]") || line.starts_with("#[tokio::test");
        if let (true, Some((_, function))) = (is_test, line.split_once("fn ")) {
            is_test = false;
            let end = |letter: char| !letter.is_alphanumeric() && letter != '_';
            found.extend(function.split(end).next().map(str::to_owned));
        }
    }
    found
}

/// Names of tests that a program lists itself.
fn trials(text: &str) -> Vec<String> {
    let literals = text.split('"').skip(1).step_by(2).map(str::to_owned);
    let is_list = text.contains("\nuse libtest_mimic::") && text.contains("\nfn main(");
    literals.filter(|_| is_list).collect()
}

#[test]
fn every_command_that_runs_tests_finds_them() {
    let (programs, mut seen) = (programs(), 0);
    for (path, text) in texts() {
        for (_, command) in commands(&text) {
            seen += 1;
            let problem = command.problem(&programs);
            assert_eq!(problem, None, "{}: {command:?}", path.display());
        }
    }
    assert!(seen > 10, "only {seen} commands were found");
}

#[test]
fn every_word_of_the_makefile_that_chooses_tests_finds_some() {
    let makefile = fs::read_to_string(repository().join("Makefile")).unwrap();
    let (programs, commands) = (programs(), filtered(&makefile));
    for command in &commands {
        assert_eq!(command.problem(&programs), None, "{command:?}");
    }
    let calls = makefile.matches("tests/filtered.sh ").count();
    assert_eq!(commands.len(), calls, "a call without quoted words");
    assert!(calls > 1, "{calls} calls");
}

#[test]
fn the_command_for_fuzzing_runs_all_tests_with_random_inputs() {
    let document = fs::read_to_string(repository().join("tests/README.md")).unwrap();
    let commands = commands(&document).into_iter();
    let mut fuzzing = commands.filter(|(before, _)| before.starts_with(FUZZ_CASES));
    let (_, command) = fuzzing.next().unwrap();
    assert_eq!(command.packages, [""; 0], "all packages");
    let mut seen = 0;
    for (path, text) in rust_files("host") {
        if text.contains(FUZZ_CASES) {
            seen += 1;
            let path = path.strip_prefix(repository()).unwrap();
            let name = module(path);
            let is_run = command.filters.iter().any(|filter| name.contains(filter));
            assert!(is_run, "{} reads {FUZZ_CASES}", path.display());
        }
    }
    assert!(seen > 2, "{seen} files read {FUZZ_CASES}");
}

#[test]
fn a_command_that_runs_no_test_is_found() {
    let program = |package: &str, name: Option<&str>, test: &str| Program {
        package: package.to_owned(),
        name: name.map(str::to_owned),
        tests: vec![test.to_owned()],
    };
    let programs = [
        program("operator", None, "cli::reads"),
        program("partitions", None, "rest::fuzz::any_bytes"),
        program("tests", Some("suite"), "chart::renders"),
    ];
    let no_fuzz = Some("no test that it runs matches \"fuzz\"");
    let cases = [
        ("-p operator --lib fuzz", no_fuzz),
        ("--release -p partitions --lib fuzz", None),
        ("--workspace --lib -p operator fuzz -- --nocapture", None),
        (
            "--workspace --lib -- fuzz chart",
            Some("no test that it runs matches \"chart\""),
        ),
        ("--workspace -- fuzz chart && echo done", None),
        ("--workspace --test suite fuzz   # fuzz", no_fuzz),
        (
            "--test sweet",
            Some("there is no program of tests \"sweet\""),
        ),
        ("-p nothing", Some("it runs no test")),
    ];
    for (text, problem) in cases {
        let found = TestCommand::read(text).problem(&programs);
        assert_eq!(found.as_deref(), problem, "{text}");
    }
    let words =
        "\tA=b tests/filtered.sh \"fuzz web\" \\\n\t  --workspace --lib && cargo test fuzz\n";
    let found: Vec<_> = filtered(words)
        .iter()
        .map(|one| one.problem(&programs))
        .collect();
    let no_web = "no test that it runs matches \"web\"".to_owned();
    assert_eq!(found, [Some(no_web)]);
    let text =
        "run `SEED=1 cargo test \\\n  --lib one` or \"cargo test two\"\n    cargo test three\n";
    let found = commands(text).into_iter();
    let found: Vec<_> = found
        .map(|(before, command)| (before, command.filters.concat()))
        .collect();
    let wanted = [("SEED=1", "one"), ("", "two"), ("", "three")];
    assert_eq!(
        found,
        wanted.map(|(before, filter)| (before.to_owned(), filter.to_owned()))
    );
}
