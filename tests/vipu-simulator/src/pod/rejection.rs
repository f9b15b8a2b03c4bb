//! Pure: why the simulated server rejects a request, in the text that it sends.

use super::Stage;

/// Reason for the rejection of a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// No block of IPUs is free.
    #[error("no {ipus} connected IPUs are free: the largest free block has {largest}")]
    Full {
        /// The requested number of IPUs.
        ipus: u32,
        /// The size of the largest free block.
        largest: u32,
    },
    /// The id is taken.
    #[error("partition {0:?} exists already")]
    Exists(String),
    /// No partition has this id.
    #[error("there is no partition {0:?}")]
    Unknown(String),
    /// The request breaks a rule.
    #[error("{0}")]
    Invalid(String),
    /// Another operation on the partition is in progress.
    #[error("partition {id:?} is busy: {stage:?}")]
    Busy {
        /// The partition.
        id: String,
        /// The operation.
        stage: Stage,
    },
    /// The partition is in the state ERROR.
    #[error("partition {id:?} is in error: {errors}")]
    Broken {
        /// The partition.
        id: String,
        /// Its errors.
        errors: String,
    },
}
