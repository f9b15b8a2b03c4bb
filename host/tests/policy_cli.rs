//! The built operator as the tool of a policy's author: the real program, with its own allocator
//! and its threads' own stacks, which tests inside a process do not have.
#![allow(
    clippy::unwrap_used,
    reason = "what a test's helper cannot do fails the test"
)]

use std::path::Path;
use std::process::{Command, Output};

use ipu_api::ipupolicy::Hook;
use ipu_guest_host::componentize;

/// A validation policy that finds nothing wrong, of about the size that real ones have: threads
/// that begin after it was compiled find the allocator with nothing at hand.
fn policy() -> Vec<u8> {
    let function = "(func (param i32) (result i32) local.get 0 i32.const 7 i32.mul)";
    let functions = function.repeat(2000);
    let text = r#"(module FUNCTIONS
      (memory (export "memory") 2)
      (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (i32.const 1024))
      (func (export "ipu:policy/validator@0.1.0#validate-settings") (param i32 i32) (result i32)
        (i32.const 16))
      (func (export "ipu:policy/validator@0.1.0#validate")
        (param i32) (result i32)
        (i32.const 16)))"#
        .replace("FUNCTIONS", &functions);
    componentize(&wat::parse_str(text).unwrap(), Some(Hook::Validation)).unwrap()
}

fn run(arguments: &[&str], file: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ipu-operator"))
        .env("RUST_BACKTRACE", "1")
        .arg("policy")
        .args(arguments)
        .arg(file)
        .output()
        .unwrap()
}

#[test]
fn every_subcommand_that_calls_a_policy_ends_well() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("calm.wasm");
    std::fs::write(&file, policy()).unwrap();
    for arguments in [&["check"][..], &["run"], &["bench", "--calls", "200"]] {
        let output = run(arguments, &file);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {said}");
        assert!(!output.stdout.is_empty(), "{arguments:?} says nothing");
    }
}

#[test]
fn an_error_is_one_line_and_no_backtrace() {
    let folder = tempfile::tempdir().unwrap();
    let output = run(&["check"], &folder.path().join("none.wasm"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(
        said.starts_with("Error: ") && said.lines().count() == 1,
        "{said}"
    );
    assert!(said.contains("none.wasm"), "{said}");
}

#[test]
fn an_audit_distinguishes_errors_from_wrong_command_lines() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("none.wasm");
    let code = |arguments: &[&str]| run(arguments, &missing).status.code();
    assert_eq!(code(&["audit"]), Some(1));
    assert_eq!(code(&["audit", "--output", "page"]), Some(2));
}
