//! The output of `ipu-operator policy` for policy authors, with the guests of this repository.

mod audit;
mod cases;
mod cel;
mod compare;
mod errors;
mod evaluate;
mod new;
mod record;
mod replay;
mod run;

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use clap::Parser;
use insta::assert_snapshot;
use ipu_authoring::PolicyCliError;
use ipu_guest_host::model::built_in_file;
use ipu_operator::cli::{Arguments, Task};
use release::guests::{GUESTS, checkout, core_module};
use serde_json::{Value, json};
use tempfile::TempDir;
use tests::guests::hostile;

use crate::wasm::guests;

/// Runs the command as a shell would.
fn run(arguments: &[&str], out: &mut impl std::io::Write) -> Result<(), PolicyCliError> {
    let given = ["ipu-operator", "policy"].iter().chain(arguments);
    let Task::Policy(arguments) = Arguments::try_parse_from(given).unwrap().task else {
        panic!("{arguments:?} is about policies");
    };
    ipu_authoring::run(arguments, out)
}

/// A folder in which commands run. Command lines and output call it `.`.
struct Folder(TempDir);

impl Folder {
    /// A folder with the guests of this repository.
    fn new() -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        for guest in GUESTS {
            let file = format!("{}.wasm", guest.name);
            symlink(guests().join(&file), folder.path(&file)).unwrap();
        }
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Adds a file.
    fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::write(self.path(name), content).unwrap();
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    /// Runs a command. Returns its output, and its error with the causes as the program prints
    /// them.
    fn run(&self, line: &str) -> (String, Option<String>) {
        let folder = format!("{}/", self.0.path().display());
        let words = line.split(' ').map(|word| match word.strip_prefix("./") {
            Some(name) => format!("{folder}{name}"),
            None => word.to_owned(),
        });
        let words: Vec<_> = words.collect();
        let mut printed = Vec::new();
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        let result = run(&words, &mut printed);
        let error = result
            .err()
            .map(|error| format!("{:#}", anyhow::Error::from(error)));
        let shown = |text: String| text.replace(&folder, "./");
        (shown(String::from_utf8(printed).unwrap()), error.map(shown))
    }

    /// The output of a command that succeeds.
    fn policy(&self, line: &str) -> String {
        let (printed, error) = self.run(line);
        assert_eq!(error, None, "{line}: {printed}");
        printed
    }

    /// The output of a command that prints JSON.
    fn json(&self, line: &str) -> Value {
        serde_json::from_str(&self.policy(line)).unwrap()
    }

    /// Commands, each with its output and its error, without the digests, sizes and fuel of guests,
    /// which every change of a guest changes.
    fn transcript(&self, lines: &[&str]) -> String {
        let changing = ["digest", "a  sha256", "b  sha256", "fuel: "];
        let mut transcript = String::new();
        for line in lines {
            let (printed, error) = self.run(line);
            writeln!(transcript, "$ {line}").unwrap();
            let is_stable = |line: &&str| {
                let line = line.trim_start_matches([' ', '"']);
                !changing.iter().any(|start| line.starts_with(start))
            };
            for line in printed.lines().filter(is_stable) {
                writeln!(transcript, "{line}").unwrap();
            }
            if let Some(error) = error {
                writeln!(transcript, "Error: {error}").unwrap();
            }
        }
        transcript
    }
}

/// Asserts that a text contains these parts.
fn assert_says(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "no {part:?} in: {text}");
    }
}

#[test]
fn built_guests_are_checked_inspected_and_components_of_their_modules() {
    let folder = Folder::new();
    for guest in GUESTS {
        let file = format!("./{}.wasm", guest.name);
        // The first world of a guest that serves several.
        let world = match guest.name {
            "namespace-quota" => "validation",
            _ => guest.hook.world(),
        };
        let size = fs::metadata(folder.path(&file)).unwrap().len();
        let inspected = folder.json(&format!("inspect {file} --json"));
        let found = ["world", "accepted", "lacks", "size"].map(|field| &inspected[field]);
        assert_eq!(json!(found), json!([world, true, [], size]));
        let plain = folder.policy(&format!("inspect {file}"));
        let digest = inspected["digest"].as_str().unwrap();
        assert_says(&plain, &[digest, inspected["package"].as_str().unwrap()]);
        let parts = [
            &format!("world    {world}\n"),
            &format!("size     {size} bytes\n"),
            &format!("digest   {digest}\n"),
            "imports  ipu:policy/types@0.2.0\n",
            "answered a sample request",
            "To use it, name this digest in an IPUPolicy with hook: ",
        ];
        for options in [String::new(), format!(" --world {world}")] {
            assert_says(&folder.policy(&format!("check {file}{options}")), &parts);
        }
        symlink(core_module(guest), folder.path("core.wasm")).unwrap();
        let component = built_in_file(guest.hook);
        let componentize = format!("componentize ./core.wasm --output ./new-{component}");
        assert_eq!(folder.policy(&componentize), "");
        let made = fs::read(folder.path(&format!("new-{component}"))).unwrap();
        assert!(made == fs::read(folder.path(&file)).unwrap(), "{file}");
        fs::remove_file(folder.path("core.wasm")).unwrap();
    }
}

#[test]
fn imports_and_exports_are_shown_and_obstacles_named() {
    let folder = Folder::new();
    folder.write("a.wasm", hostile::placement());
    let unknown = r#"(component
        (import "wasi:http/outgoing-handler@0.2.0" (instance))
        (import "acme:database/sql@1.0.0" (instance)))"#;
    folder.write("wrong.wasm", hostile::component(unknown));
    assert_snapshot!(folder.transcript(&["inspect ./a.wasm", "inspect ./wrong.wasm"]));
}

#[test]
fn the_contract_is_printed_without_changes() {
    let contract = fs::read_to_string(checkout().join("wit/0.2.0/policy.wit")).unwrap();
    assert_eq!(Folder::new().policy("contract"), contract);
    let error = run(&["contract"], &mut &mut [0_u8; 16][..]).unwrap_err();
    assert!(matches!(error, PolicyCliError::Output(_)), "{error:?}");
}
