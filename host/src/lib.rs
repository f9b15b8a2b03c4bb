//! The IPU Operator: a Kubernetes operator for Graphcore IPUs, extensible with WebAssembly.
#![deny(unsafe_code)]

#[cfg(feature = "operator")]
pub mod adopt;
pub mod agent;
#[cfg(feature = "operator")]
pub mod api;
#[cfg(feature = "operator")]
pub mod bounded_json;
#[cfg(feature = "operator")]
pub mod certificates;
#[cfg(feature = "operator")]
pub mod cli;
#[cfg(feature = "operator")]
pub mod clock;
#[cfg(feature = "operator")]
pub mod controller;
#[cfg(feature = "operator")]
pub mod events;
#[cfg(feature = "operator")]
pub mod fair_semaphore;
#[cfg(any(all(test, feature = "operator"), feature = "fuzzing"))]
pub mod fuzzing;
#[cfg(feature = "operator")]
pub mod job;
#[cfg(feature = "operator")]
pub mod json_difference;
#[cfg(feature = "operator")]
mod label_watch;
#[cfg(feature = "operator")]
pub mod lease;
#[cfg(feature = "operator")]
pub mod memory;
#[cfg(feature = "operator")]
pub mod metrics;
#[cfg(feature = "operator")]
pub mod names;
#[cfg(feature = "operator")]
pub mod namespaces;
#[cfg(feature = "operator")]
pub mod object_names;
#[cfg(feature = "operator")]
pub mod oci;
#[cfg(feature = "operator")]
mod packed;
#[cfg(feature = "operator")]
pub mod panics;
#[cfg(feature = "operator")]
pub mod partition;
#[cfg(feature = "operator")]
pub mod policy;
#[cfg(feature = "operator")]
pub mod policy_cli;
#[cfg(feature = "operator")]
pub mod port;
#[cfg(feature = "operator")]
pub mod proxy;
#[cfg(feature = "operator")]
pub mod release;
#[cfg(feature = "operator")]
pub mod rest;
#[cfg(feature = "operator")]
pub mod scope;
#[cfg(feature = "operator")]
pub mod support;
#[cfg(feature = "operator")]
pub mod telemetry;
#[cfg(feature = "operator")]
mod trimmed;
#[cfg(feature = "operator")]
mod uid;
#[cfg(feature = "operator")]
pub mod verify;
#[cfg(feature = "operator")]
pub mod vipu;
#[cfg(feature = "operator")]
pub mod wasm;
#[cfg(feature = "operator")]
mod watch_store;
#[cfg(feature = "operator")]
pub mod webhook;
#[cfg(feature = "operator")]
mod work_queue;
