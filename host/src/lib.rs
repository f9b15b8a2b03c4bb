//! The IPU Operator: a Kubernetes operator for Graphcore IPUs, extensible with WebAssembly.
#![forbid(unsafe_code)]

pub mod adopt;
pub mod cli;
pub mod controller;
pub mod exposition;
pub mod memory;
pub mod proxy;
pub mod support;
pub mod verify;
