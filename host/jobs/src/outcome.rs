//! Pure: how a run of a job ended.

use serde::Serialize;

/// End of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum Outcome {
    /// All instances have succeeded.
    Completed,
    /// The run failed.
    Failed(RunFailure),
}

/// Failure of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RunFailure {
    /// The message, with the names of Pod and container.
    pub message: String,
    /// Exit code of the failed container. `None` if no program failed.
    pub exit_code: Option<i32>,
    /// The condition's reason, if it differs from the usual one.
    pub reason: Option<&'static str>,
    /// Whether the job fails regardless of its restart policy.
    pub is_final: bool,
}

impl Outcome {
    /// Creates a failure after which the restart policy decides.
    pub(super) fn failed(message: String, exit_code: Option<i32>) -> Self {
        Self::Failed(RunFailure {
            message,
            exit_code,
            ..RunFailure::default()
        })
    }
}
