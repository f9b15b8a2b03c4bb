//! Suites without external requirements: pure rules, generated files, in-process fakes of a
//! protocol.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "an error in a test's helper fails the test"
)]

mod agent;
mod chart;
mod contract;
mod dependencies;
mod documents;
mod fuzz;
mod house;
mod kubectl;
mod layering;
mod links;
mod metrics;
mod oci;
mod package;
mod pictures;
mod policy_cli;
mod preflight;
mod reasons;
mod released;
mod retired_words;
mod rules;
mod site;
mod sources;
mod test_commands;
mod versions;
mod vipu;
mod wasm;
