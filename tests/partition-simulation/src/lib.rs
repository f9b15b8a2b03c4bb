//! Drives jobs, the ledger and placement of IPUPartitions through crashes, delays and lost
//! messages, and checks their guarantees.
//!
//! - `simulation` runs many lives of jobs in virtual time, each from a seed, by the executors of
//!   jobs and of the ledger. It meets every fault that it can think of.
//! - `model` explores all orders of events of small worlds.
//! - `proptests` and [`fuzzing`] give the ledger any status, beside a controller and an API server
//!   that cooperate.
//!
//! All of them call the production cores by `sim_adapter`.
#![forbid(unsafe_code)]

mod cooperative_env;
pub mod fuzzing;
#[cfg(test)]
mod model;
#[cfg(test)]
mod proptests;
#[cfg_attr(
    not(test),
    expect(dead_code, reason = "the simulation needs more of it")
)]
mod sim_adapter;
#[cfg_attr(
    not(test),
    expect(dead_code, reason = "the simulation needs more of it")
)]
mod sim_reconcile;
#[cfg(test)]
mod simulation;
