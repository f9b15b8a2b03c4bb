//! Errors of calls of a guest without a usable answer, and whether the guest is the cause.

use ipu_api::ipupolicy::Hook;
use wasmtime::Trap;

use super::call_state::Starved;
use super::limits::OverLimit;
use super::wasi::UnsupportedWasi;

/// Error of a call of a guest without a usable answer.
#[derive(Debug, thiserror::Error)]
pub enum GuestError {
    /// No module is loaded for this hook.
    #[error("no {0} guest is loaded")]
    Missing(Hook),
    /// The guest is not ready.
    #[error("the guest is not ready: {0}")]
    NotReady(String),
    /// The evaluation of `spec.match` failed.
    #[error("failed to evaluate spec.match of the policy: {0}")]
    MatchFailed(String),
    /// The evaluation of `spec.match` had no turn in time.
    #[error("the process is too busy to evaluate spec.match of the policy: {0}")]
    MatchBusy(String),
    /// All guests of the request together exceeded its time.
    #[error(
        "the time limit of {0:?} for all guests of a request ended before this guest answered; \
         another guest may be the slow one"
    )]
    OutOfTime(std::time::Duration),
    /// No permit was free within the timeout.
    #[error(
        "the {hook} guest is busy: none of its permits for calls became free within {waited:?}; \
         try again"
    )]
    Busy {
        /// The hook.
        hook: Hook,
        /// Wait time of the call.
        waited: std::time::Duration,
    },
    /// The call exceeded its deadline.
    #[error("the guest did not answer within its deadline of {0:?}")]
    Deadline(std::time::Duration),
    /// The call got too little CPU time.
    #[error(
        "the guest did not answer in time: it got much less CPU time than its deadline of {deadline:?}, because the \
         process lacks CPU"
    )]
    Starved {
        /// The deadline, in CPU time.
        deadline: std::time::Duration,
        /// Its CPU time.
        #[source]
        source: Starved,
    },
    /// The call exceeded its memory limit.
    #[error("the guest exceeded its memory limit")]
    Memory(#[source] OverLimit),
    /// The guest trapped.
    #[error("the guest trapped: {0}")]
    Trap(Trap),
    /// The guest called an unsupported function of WASI.
    #[error("the guest called an unsupported WASI function: guests have no files, network or exit")]
    UnsupportedWasi(#[source] UnsupportedWasi),
    /// The answer exceeded its limit.
    #[error("the guest's answer has {size} bytes, more than the limit of {limit}")]
    OutputTooLarge {
        /// Size of the answer, in bytes.
        size: usize,
        /// Largest allowed size, in bytes.
        limit: usize,
    },
    /// The guest refuses its settings.
    #[error("the guest does not accept its settings: {0}")]
    Settings(String),
    /// The guest reported an error.
    #[error("the guest failed: {0}")]
    Failed(String),
    /// The answer violates the contract.
    #[error("the guest's answer breaks the contract: {0}")]
    BadAnswer(String),
    /// The host could not make the call or read its answer.
    #[error("failed to call the guest")]
    Call(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl GuestError {
    /// Whether the guest caused the failure.
    pub fn is_failure(&self) -> bool {
        match self {
            Self::Deadline(_)
            | Self::Memory(_)
            | Self::Trap(_)
            | Self::UnsupportedWasi(_)
            | Self::OutputTooLarge { .. }
            | Self::Settings(_)
            | Self::Failed(_)
            | Self::BadAnswer(_)
            | Self::Call(_) => true,
            Self::Missing(_)
            | Self::NotReady(_)
            | Self::MatchFailed(_)
            | Self::MatchBusy(_)
            | Self::OutOfTime(_)
            | Self::Busy { .. }
            | Self::Starved { .. } => false,
        }
    }

    /// Whether the process lacks time for the call. Who sends many requests can cause this, so that
    /// it must open no rule.
    pub fn is_overload(&self) -> bool {
        match self {
            Self::MatchBusy(_) | Self::OutOfTime(_) | Self::Busy { .. } | Self::Starved { .. } => {
                true
            }
            Self::Missing(_)
            | Self::NotReady(_)
            | Self::MatchFailed(_)
            | Self::Deadline(_)
            | Self::Memory(_)
            | Self::Trap(_)
            | Self::UnsupportedWasi(_)
            | Self::OutputTooLarge { .. }
            | Self::Settings(_)
            | Self::Failed(_)
            | Self::BadAnswer(_)
            | Self::Call(_) => false,
        }
    }
}
