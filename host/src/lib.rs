//! The IPU Operator: a Kubernetes operator for Graphcore IPUs, extensible with WebAssembly.
#![deny(unsafe_code)]

pub mod adopt;
pub mod api_client;
pub mod bounded_json;
pub mod certificates;
pub mod cli;
pub mod clock;
pub mod controller;
#[cfg(any(test, feature = "fuzzing"))]
mod crd_schema;
pub mod events;
pub mod exposition;
pub mod fair_semaphore;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod job;
pub mod json_difference;
mod label_watch;
pub mod lease;
pub mod memory;
pub mod metrics;
pub mod namespaces;
pub mod oci;
mod packed;
pub mod panics;
pub mod partition;
pub mod policy;
pub mod policy_cli;
pub mod port;
pub mod proxy;
pub mod release;
pub mod rest;
pub mod scope;
pub mod support;
pub mod telemetry;
mod trimmed;
pub mod verify;
pub mod wasm;
mod watch_store;
pub mod webhook;
pub mod work_queue;
