//! The operator on the real cluster in processes, installed as an admin installs it.
//!
//! [`operator::up`] builds a release, starts the cluster, and installs the operator from the release's package, with two
//! simulated V-IPU controllers. [`operator::helm`] is its Helm release. [`demo`] shows and checks three jobs of the examples,
//! and says what a run knows of the installed operator ([`demo::Operated`]). The program `lab` (`main.rs`) is what the
//! Makefile runs: `fetch`, `up`, `down`, `demo`, `dist` and `release`.
//!
//! The package decides neither how a cluster starts (`cluster`) nor what a release contains (`release`), and measures
//! nothing. It links no controller of the operator: it sees the operator through the API server.
#![forbid(unsafe_code)]

pub mod demo;
pub mod operator;
pub mod simulator_image;
