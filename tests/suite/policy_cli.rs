//! The output of `ipu-operator policy` for policy authors, with the guests of this repository.

mod cases;
mod compare;
mod evaluate;
mod inspect;
mod new;
mod record;
mod replay;
mod run;

use ipu_guest_host::model::built_in_file;
use std::path::{Path, PathBuf};

use clap::Parser;
use ipu_authoring::PolicyCliError;
use ipu_operator::cli::{Arguments, Task};
use release::guests::{GUESTS, checkout, core_module};
use tempfile::TempDir;

use crate::wasm::guests;

/// Runs the command as a shell would, and returns its output.
fn policy(arguments: &[&str]) -> Result<String, PolicyCliError> {
    let mut printed = Vec::new();
    run(arguments, &mut printed)?;
    Ok(String::from_utf8(printed).unwrap())
}

#[expect(
    clippy::panic,
    reason = "a command line of another subcommand fails the test"
)]
fn run(arguments: &[&str], out: &mut impl std::io::Write) -> Result<(), PolicyCliError> {
    let given = ["ipu-operator", "policy"].iter().chain(arguments);
    let Task::Policy(arguments) = Arguments::try_parse_from(given).unwrap().task else {
        panic!("it is about policies");
    };
    ipu_authoring::run(arguments, out)
}

/// Returns the error with its causes, as the program prints it.
fn complaint(arguments: &[&str]) -> String {
    failing(arguments).1
}

/// Returns the output of a command that fails, and its error with the causes.
fn failing(arguments: &[&str]) -> (String, String) {
    let mut printed = Vec::new();
    let error = run(arguments, &mut printed).expect_err("it fails");
    let error = format!("{:?}", anyhow::Error::from(error));
    (String::from_utf8(printed).unwrap(), error)
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A file with these bytes. Its folder is removed when this is dropped.
fn written(name: &str, bytes: &[u8]) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(name);
    std::fs::write(&file, bytes).unwrap();
    (folder, file)
}

/// Asserts that the error of each command contains these texts.
fn all_complain(cases: &[(&[&str], &[&str])]) {
    for (arguments, parts) in cases {
        let complaint = complaint(arguments);
        for part in *parts {
            assert!(
                complaint.contains(part),
                "{arguments:?} should say {part:?}: {complaint}"
            );
        }
    }
}

#[test]
fn check_describes_a_policy() {
    for guest in GUESTS {
        let file = guests().join(format!("{}.wasm", guest.name));
        let size = std::fs::metadata(&file).unwrap().len();
        let world = guest.hook.world();
        for arguments in [
            &["check", text(&file)][..],
            &["check", text(&file), "--world", world],
        ] {
            let printed = policy(arguments).unwrap();
            for part in [
                &format!("world    {world}\n"),
                &format!("size     {size} bytes\n"),
                "digest   sha256:",
                "answered a sample request",
                "To use it, name this digest in an IPUPolicy with hook: ",
            ] {
                assert!(printed.contains(part), "{part:?}: {printed}");
            }
            let imports = printed
                .lines()
                .find_map(|line| line.strip_prefix("imports  "));
            assert!(
                matches!(imports, Some("ipu:policy/types@0.1.0")),
                "{printed}"
            );
        }
    }
}

#[test]
fn check_names_what_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let (missing, garbage) = (
        folder.path().join("missing.wasm"),
        folder.path().join("a.wasm"),
    );
    std::fs::write(&garbage, "<html>404</html>").unwrap();
    let empty = folder.path().join("empty.wasm");
    std::fs::write(&empty, wat::parse_str("(component)").unwrap()).unwrap();
    let placement = guests().join("serial-walk.wasm");
    let core = core_module(GUESTS[0]);
    let validation = guests().join("validation.wasm");
    all_complain(&[
        (
            &["check", text(&missing)],
            &[
                "missing.wasm is no guest for this operator",
                "failed to read the file",
                "No such file",
            ],
        ),
        (
            &["check", text(folder.path())],
            &["failed to read the file", "Is a directory"],
        ),
        (
            &["check", text(&garbage)],
            &[
                "a.wasm is no guest",
                "text and not WebAssembly (it begins with \"<html>404</html>\")",
            ],
        ),
        (
            &["check", text(&core)],
            &["it is a core module", "`ipu-operator policy componentize`"],
        ),
        (
            &["check", text(&empty)],
            &["it exports none of ipu:policy/defaulter@0.1.0"],
        ),
        (
            &["check", text(&placement), "--world", "validation"],
            &[
                "it does not implement world validation",
                "asks for `validate: func(request: request) -> result<verdict, string>` in ipu:policy/validator@",
            ],
        ),
        (
            &[
                "check",
                text(&validation),
                "--settings",
                r#"{"maxIpusPerJob": 0}"#,
            ],
            &["maxIpusPerJob is 0"],
        ),
    ]);
}

#[test]
fn componentize_makes_a_component_that_the_operator_accepts() {
    let folder = tempfile::tempdir().unwrap();
    for guest in GUESTS {
        let output = folder.path().join(built_in_file(guest.hook));
        let built = guests().join(format!("{}.wasm", guest.name));
        let core = core_module(guest);
        let componentize = ["componentize", text(&core), "--output", text(&output)];
        assert_eq!(policy(&componentize).unwrap(), "");
        assert!(
            std::fs::read(&output).unwrap() == std::fs::read(built).unwrap(),
            "{} is not the component that was built",
            guest.name
        );
        policy(&["check", text(&output)]).unwrap();
    }
}

#[test]
fn componentize_names_what_is_wrong_and_writes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let garbage = folder.path().join("a.wasm");
    std::fs::write(&garbage, "<html>404</html>").unwrap();
    let missing = folder.path().join("missing.wasm");
    let core = core_module(GUESTS[0]);
    let component = guests().join("defaulting.wasm");
    let output = folder.path().join("out.wasm");
    let to_output = ["--output", text(&output)];
    let into = |file: &Path, more: &[&str]| -> Vec<String> {
        let arguments = ["componentize", text(file)];
        let arguments = arguments.iter().chain(&to_output).chain(more);
        arguments.map(|&argument| argument.to_owned()).collect()
    };
    let cases = [
        (into(&missing, &[]), "failed to read"),
        (into(&garbage, &[]), "into a component"),
        (into(&component, &[]), "into a component"),
        (into(&core, &["--world", "placement"]), "placer"),
    ];
    for (arguments, part) in &cases {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        all_complain(&[(&arguments, &[part])]);
        assert!(!output.exists(), "{arguments:?} wrote something");
    }
}

#[test]
fn an_output_that_cannot_be_written_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let core = core_module(GUESTS[0]);
    guests();
    let nowhere = folder.path().join("nowhere/out.wasm");
    all_complain(&[
        (
            &["componentize", text(&core), "--output", text(&nowhere)],
            &["failed to write", "nowhere/out.wasm", "No such file"],
        ),
        (
            &["componentize", text(&core), "--output", text(folder.path())],
            &["failed to write", "Is a directory"],
        ),
    ]);
    let error = run(&["contract"], &mut &mut [0_u8; 16][..]).unwrap_err();
    assert!(matches!(error, PolicyCliError::Output(_)), "{error:?}");
}

#[test]
fn the_contract_is_printed_without_changes() {
    let contract = std::fs::read_to_string(checkout().join("wit/policy.wit")).unwrap();
    assert_eq!(policy(&["contract"]).unwrap(), contract);
}
