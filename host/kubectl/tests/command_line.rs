//! The plugin as a program: its output and its exit status without an API server.
#![allow(
    clippy::unwrap_used,
    reason = "what a test's helper cannot do fails the test"
)]

use std::fs;
use std::os::unix::fs::symlink;
use std::process::{Command, Output};

/// Runs the plugin with a kubeconfig of this content.
fn plugin(kubeconfig: &str, arguments: &[&str]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kubeconfig");
    fs::write(&path, kubeconfig).unwrap();
    let mut plugin = Command::new(env!("CARGO_BIN_EXE_kubectl-ipu"));
    plugin.args(arguments).env("KUBECONFIG", &path);
    plugin.output().unwrap()
}

/// Standard output of a command that succeeds.
fn printed(arguments: &[&str]) -> String {
    let output = plugin("", arguments);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Standard error of a command that fails.
fn refused(kubeconfig: &str, arguments: &[&str]) -> String {
    let output = plugin(kubeconfig, arguments);
    assert!(!output.status.success(), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn version_and_commands_are_printed() {
    let version = format!("kubectl-ipu {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(printed(&["--version"]), version);
    let help = printed(&["--help"]);
    assert!(help.contains("Usage: kubectl ipu "), "{help}");
    for command in [
        "why",
        "top",
        "goodput",
        "nodes",
        "doctor",
        "cordon",
        "uncordon",
        "drain",
        "completion",
        "version",
    ] {
        assert!(help.contains(&format!("\n  {command} ")), "{help}");
    }
}

#[test]
fn an_unusable_kubeconfig_is_named() {
    let empty = refused("{}", &["why", "train"]);
    assert!(empty.contains("failed to read the kubeconfig"), "{empty}");
    let context = refused("{}", &["why", "train", "--context", "lab"]);
    assert!(context.contains("lab"), "{context}");
    let missing = refused("{}", &["top", "--kubeconfig", "/nowhere/config"]);
    assert!(missing.contains("/nowhere/config"), "{missing}");
}

#[test]
fn a_namespace_does_not_go_with_controllers() {
    let error = refused("{}", &["top", "controllers", "--namespace", "team"]);
    assert!(error.contains("--namespace team"), "{error}");
}

#[test]
fn it_completes_its_command_line_for_shells_and_for_kubectl() {
    for shell in ["bash", "zsh", "fish", "powershell"] {
        let script = printed(&["completion", shell]);
        assert!(script.contains("goodput"), "{shell}: {script}");
    }
    // kubectl runs the plugin under another name, with the words of the command line.
    let folder = tempfile::tempdir().unwrap();
    let completer = folder.path().join("kubectl_complete-ipu");
    symlink(env!("CARGO_BIN_EXE_kubectl-ipu"), &completer).unwrap();
    let output = Command::new(&completer)
        .args(["goodput", "--by", "st"])
        .output()
        .unwrap();
    let answer = String::from_utf8(output.stdout).unwrap();
    assert_eq!(answer, "state\tState of the IPUs\n:4\n");
}

#[test]
fn what_an_admin_types_is_checked_before_anything_is_read() {
    for (arguments, expected) in [
        (&["cordon"][..], "CONTROLLER"),
        (
            &["drain", "node/a"],
            "is neither the name of a VIPUController",
        ),
        (&["drain", "a", "--timeout", "soon"], "is not a duration"),
        (&["goodput", "--since", "1y"], "31d at most, or all"),
    ] {
        let error = refused("{}", arguments);
        assert!(error.contains(expected), "{error}");
    }
}
