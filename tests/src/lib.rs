//! Harness, simulator and demo: what the suites and `make demo` are made of.

pub mod debian;
pub mod debug_operator;
pub mod demo;
pub mod described;
pub mod documents;
pub mod figures;
pub mod flood;
pub mod guests;
pub mod http;
pub mod kueue;
pub mod lab;
#[cfg(feature = "suites")]
pub mod languages;
pub mod load;
pub mod mutations;
pub mod operator_process;
pub mod package;
#[cfg(feature = "suites")]
pub mod policy_load;
pub mod prometheus;
pub mod registry;
pub mod review;
pub mod simulator;
pub mod startup;
pub mod wait;
