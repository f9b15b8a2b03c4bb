//! The IPU Operator: a Kubernetes operator for Graphcore IPUs, extensible with WebAssembly.
//!
//! Entry points:
//! - [`cli`] is the command line of the binary, which calls one of the others.
//! - [`controller`] runs the controller process: the webhooks, and the reconcilers of IPUJobs,
//!   native Pods and Workloads of Kueue. [`proxy`] runs the vipu-proxy: the reconciler of
//!   IPUPartitions, the sweep and REST. [`certificates`] runs the process that issues the
//!   certificates of both and registers the webhooks' CA.
//! - [`node`] runs the process that checks a node, or the same checks once.
//! - [`exposition`] serves the metrics of a process, [`memory`] adds up the memory that it can use,
//!   and [`process_runtime`] ends its threads.
//! - [`verify`] runs one job to its end, [`support`] collects data for a bug report, and [`adopt`]
//!   adopts the partitions of Graphcore's operator.
//!
//! The package connects the others (`ipu-jobs`, `ipu-partitions` and so on), and the processes
//! share nothing but objects of the API server. It must not know a rule of jobs, partitions or
//! policies, except in `adopt/plan`: only the command `adopt` needs its rules about the partitions
//! of Graphcore's operator.
#![forbid(unsafe_code)]

pub mod adopt;
pub mod certificates;
pub mod cli;
pub mod controller;
pub mod exposition;
pub mod memory;
pub mod node;
pub mod process_runtime;
pub mod proxy;
mod shutdown;
pub mod support;
pub mod verify;
