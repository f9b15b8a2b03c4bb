//! The agent: one small static program that works in any container, whatever its C library.
//!
//! An init container copies it into the Pods of a job (`install`). There it is PID 1 of the workers
//! of a launcher job (`idle`) and carries mpirun's remote commands to them (`exec`). It is built
//! without the feature `operator`, so that nothing of the two processes in the cluster is in it.

pub mod exec;
pub mod idle;
pub mod install;

/// Annotation of a Pod: the container that `kubectl exec`, `kubectl logs` and the agent mean where
/// none is named (kubectl's own).
pub const DEFAULT_CONTAINER_ANNOTATION: &str = "kubectl.kubernetes.io/default-container";

/// Name of worker `index` of a job; the index counts over all instances.
pub fn worker(job: &str, index: u32) -> String {
    format!("{job}-worker-{index}")
}

/// Exit code for everything that went wrong in the agent itself; `ssh` does the same, and mpirun
/// was written for `ssh`.
pub const FAILED: u8 = 255;
