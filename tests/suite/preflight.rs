//! The first check of every `make` target: it reports missing requirements in one sentence.

use std::path::Path;
use std::process::{Command, Output};

use crate::sources::repository;

/// Every program that a target requires.
const PROGRAMS: [&str; 14] = [
    "cargo", "cc", "unshare", "setsid", "go", "apt-get", "dpkg", "perl", "npm", "rustc", "c++",
    "basenc", "rustup", "python3",
];
/// The output of the fake `uname` and `id` on a suitable machine: `uname -s`, `uname -m` and
/// `id -u`.
const GOOD: [&str; 3] = ["Linux", "x86_64", "0"];

/// Runs the check on a machine with `programs`. `facts` is the output of `uname` and `id`.
fn preflight(target: &str, programs: &[&str], [system, machine, user]: [&str; 3]) -> Output {
    let path = tempfile::tempdir().unwrap();
    for program in programs {
        // The check also runs the compiler to find a nightly toolchain.
        let script = if *program == "rustc" {
            "exit 0"
        } else {
            "exit 1"
        };
        make_program(&path.path().join(program), script);
    }
    let uname = format!("case $1 in -s) echo {system} ;; -m) echo {machine} ;; esac");
    make_program(&path.path().join("uname"), &uname);
    make_program(&path.path().join("id"), &format!("echo {user}"));
    Command::new("/bin/sh")
        .arg(repository().join("tests/preflight.sh"))
        .arg(target)
        .env("PATH", path.path())
        .output()
        .unwrap()
}

/// Another process writes it: one that a test beside this one forks would inherit the open file,
/// and Linux runs no file that is open for writing.
fn make_program(path: &Path, script: &str) {
    let write = r#"printf '#!/bin/sh\n%s\n' "$2" > "$1" && chmod 755 "$1""#;
    let mut shell = Command::new("/bin/sh");
    let written = shell
        .args(["-c", write, "sh"])
        .arg(path)
        .arg(script)
        .status();
    assert!(written.unwrap().success());
}

/// The check refuses with exactly one line on standard error.
fn assert_refused(output: &Output, target: &str, reason: &str) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        said,
        format!("make {target} cannot run here: {reason}\n"),
        "{reason}"
    );
    assert_eq!(output.status.code(), Some(1), "{reason}");
    assert!(output.stdout.is_empty(), "{reason}");
}

#[test]
fn a_suitable_machine_passes_without_output() {
    for target in [
        "advisories",
        "bench",
        "bench-start",
        "demo",
        "dist",
        "down",
        "flood",
        "fuzz",
        "generate",
        "lint",
        "mutants",
        "placement",
        "plugins",
        "race",
        "release",
        "release-twice",
        "site",
        "soak",
        "test",
        "test-apiserver",
        "test-nodes",
        "test-versions",
        "unit",
        "up",
        "verify-generated",
    ] {
        let output = preflight(target, &PROGRAMS, GOOD);
        assert!(output.status.success(), "{target}: {output:?}");
        assert!(output.stderr.is_empty(), "{target}: {output:?}");
    }
}

#[test]
fn a_missing_program_is_named_with_what_to_install() {
    let packages = "runc and the packet-filter tools come from Debian packages; use Debian 12";
    for (target, program, advice) in [
        ("demo", "cargo", "install Rust 1.95 or later"),
        (
            "lint",
            "cc",
            "install a C compiler (apt-get install gcc libc6-dev)",
        ),
        (
            "down",
            "setsid",
            "install util-linux (apt-get install util-linux)",
        ),
        (
            "up",
            "unshare",
            "install util-linux (apt-get install util-linux)",
        ),
        ("demo", "go", "install Go 1.26 or later"),
        (
            "fuzz",
            "c++",
            "libFuzzer is written in C++ (apt-get install g++)",
        ),
        ("test", "apt-get", packages),
        ("bench", "dpkg", packages),
        (
            "demo",
            "perl",
            "mmdebstrap, which makes the jobs' image, needs it (apt-get install perl)",
        ),
        (
            "test",
            "npm",
            "axe-core, which tests the dashboard, is an npm package (apt-get install npm)",
        ),
        (
            "test-apiserver",
            "npm",
            "axe-core, which tests the dashboard, is an npm package (apt-get install npm)",
        ),
        ("test-nodes", "go", "install Go 1.26 or later"),
        (
            "plugins",
            "rustup",
            "only rustup has the standard libraries for Windows and macOS; install it",
        ),
        (
            "soak",
            "cc",
            "install a C compiler (apt-get install gcc libc6-dev)",
        ),
    ] {
        let there = PROGRAMS.into_iter().filter(|name| *name != program);
        let output = preflight(target, &there.collect::<Vec<_>>(), GOOD);
        let reason = format!("there is no {program} on PATH; {advice}.");
        assert_refused(&output, target, &reason);
    }
}

#[test]
fn without_a_nightly_compiler_nothing_is_fuzzed() {
    let there = PROGRAMS.into_iter().filter(|name| *name != "rustc");
    let output = preflight("fuzz", &there.collect::<Vec<_>>(), GOOD);
    let reason = "there is no nightly compiler, and only that can count coverage; \
                  install one (rustup toolchain install nightly).";
    assert_refused(&output, "fuzz", reason);
}

#[test]
fn another_machine_or_user_gets_advice() {
    let cases = [
        (
            ["Darwin", "x86_64", "0"],
            "this is Darwin, and real nodes need Linux; use a virtual machine with Debian 12.",
        ),
        (
            ["Linux", "aarch64", "0"],
            "this machine is aarch64, and the harness builds for x86_64; use an x86_64 machine.",
        ),
        (
            ["Linux", "x86_64", "1000"],
            "namespaces and network devices need root; \
             run it as root (sudo env \"PATH=$PATH\" make demo).",
        ),
    ];
    for (facts, reason) in cases {
        assert_refused(&preflight("demo", &PROGRAMS, facts), "demo", reason);
    }
}

#[test]
fn targets_that_change_nothing_need_neither_root_nor_go() {
    let user = ["Linux", "x86_64", "1000"];
    for target in [
        "advisories",
        "unit",
        "dist",
        "fuzz",
        "mutants",
        "placement",
        "soak",
    ] {
        let output = preflight(target, &["cargo", "cc", "rustc", "c++", "basenc"], user);
        assert!(output.status.success(), "{target}: {output:?}");
    }
}
