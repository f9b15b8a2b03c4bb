//! Pure: why the simulated server rejects a request, in the text that it sends.

use super::Stage;

/// Why the server rejects a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// No block of IPUs is free.
    #[error("no {ipus} connected IPUs are free: the largest free block has {largest}")]
    Full {
        /// What was asked for.
        ipus: u32,
        /// What would fit.
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
    /// Something else is being done to the partition.
    #[error("partition {id:?} is busy: {stage:?}")]
    Busy {
        /// The partition.
        id: String,
        /// What is being done to it.
        stage: Stage,
    },
    /// The partition is in error.
    #[error("partition {id:?} is in error: {errors}")]
    Broken {
        /// The partition.
        id: String,
        /// What is wrong with it.
        errors: String,
    },
}
