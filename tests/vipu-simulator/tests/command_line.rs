//! The simulator as a program, as the image of a cluster starts it.
#![allow(
    clippy::unwrap_used,
    reason = "what a test's helper cannot do fails the test"
)]

use std::process::{Command, Output};

fn simulator(arguments: &[&str]) -> Output {
    let mut simulator = Command::new(env!("CARGO_BIN_EXE_vipu-simulator"));
    simulator.args(arguments).output().unwrap()
}

#[test]
fn a_certificate_needs_its_key() {
    let output = simulator(&["--tls-cert", "tls.crt"]);
    let printed = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success());
    assert!(printed.contains("--tls-key <TLS_KEY>"), "{printed}");
}

#[test]
fn an_address_in_use_ends_it() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let output = simulator(&["--listen", &taken, "--control", "127.0.0.1:0"]);
    let printed = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success());
    assert!(printed.contains(&taken), "{printed}");
}
