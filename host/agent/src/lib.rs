//! The agent: one small static program that works in any container, whatever its C library.
//!
//! An init container copies it into the Pods of a job with a launcher. Each entry point is a
//! command, too.
//!
//! Entry points:
//! - [`install::install`] copies the program and writes the files that mpirun reads.
//! - [`idle::idle`] is PID 1 of the workers of a launcher job.
//! - [`hold::hold`] is PID 1 of a launcher until its workers are Ready, and then becomes its
//!   command.
//! - [`exec::run`] carries mpirun's remote commands to the workers.
//! - [`run::exec`] starts such a command in a worker, if its launcher cannot read Pods.
//! - [`host_name::exec`] runs such a command with another host name than that of its node.
//!
//! It must stay small. It must not know the CRDs, the V-IPU, or any package of this workspace
//! except `ipu-text`. The operator defines some of the same names; a test of the whole workspace
//! compares them (`tests/suite/agent.rs`).
#![forbid(unsafe_code)]

mod ending;
pub mod exec;
pub mod hold;
pub mod host_name;
pub mod idle;
pub mod install;
pub mod names;
pub mod run;

/// Annotation of a worker: the container that runs the program.
pub const MAIN_CONTAINER_ANNOTATION: &str = "graphcore.ai/main-container";

/// Annotation of a Pod: the default container of `kubectl exec` and `kubectl logs` (defined by
/// kubectl), and of the agent where nothing names the main container.
pub const DEFAULT_CONTAINER_ANNOTATION: &str = "kubectl.kubernetes.io/default-container";

/// Exit code for errors of the agent itself. mpirun expects the exit code of `ssh` here.
pub const FAILED: u8 = 255;
