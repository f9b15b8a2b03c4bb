//! The operator on the real cluster in processes, installed as an admin installs it.
//!
//! Entry points:
//! - [`operator::up`] builds a release, starts the cluster, and installs the operator from the
//!   release's package, with two simulated V-IPU controllers. [`operator::helm`] is its Helm
//!   release.
//! - [`demo`] runs and checks three jobs of the examples, and describes the installed operator to
//!   other tests ([`demo::Operated`]).
//! - [`operator_process`] finds the operator's processes on the nodes, to read their memory and to
//!   kill them.
//! - The Makefile runs the program `harness` (`main.rs`): `up`, `down`, `demo`, `dist`, `release`
//!   and `previous-release`.
//!
//! It runs no benchmark, and links no controller of the operator: it reads the operator's state
//! from the API server. It must not know how a cluster starts (`cluster`) or what a release
//! contains (`release`).
#![forbid(unsafe_code)]

pub mod demo;
pub mod operator;
pub mod operator_process;
pub mod simulator_image;
