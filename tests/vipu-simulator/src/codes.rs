//! Pure: gRPC codes by their names, and which of them the simulated server sends in which case.

use serde::{Deserialize, Serialize};

use crate::pod::Rejection;

/// A gRPC status code, by the name that the gRPC documents use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[repr(i32)]
pub enum CodeName {
    /// The call was cancelled.
    Cancelled = 1,
    /// The code that a Go server sends for an error without a code.
    Unknown = 2,
    /// The request is invalid.
    InvalidArgument = 3,
    /// The deadline has passed.
    DeadlineExceeded = 4,
    /// The object does not exist.
    NotFound = 5,
    /// The object exists already.
    AlreadyExists = 6,
    /// The caller has no permission.
    PermissionDenied = 7,
    /// A resource is exhausted.
    ResourceExhausted = 8,
    /// The state of the object does not allow the request.
    FailedPrecondition = 9,
    /// Another call won a conflict.
    Aborted = 10,
    /// A value is out of range.
    OutOfRange = 11,
    /// The method does not exist.
    Unimplemented = 12,
    /// An internal error.
    Internal = 13,
    /// The service is unavailable.
    Unavailable = 14,
    /// Data is lost.
    DataLoss = 15,
    /// The caller is not authenticated.
    Unauthenticated = 16,
}

/// The code of each case. The codes of the real server are not published, so each of them can be
/// set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "snake_case")]
pub struct Codes {
    /// No block of IPUs is free.
    pub full: CodeName,
    /// The id is taken.
    pub exists: CodeName,
    /// No partition has this id.
    pub unknown: CodeName,
    /// The request breaks a rule.
    pub invalid: CodeName,
    /// Something else is being done to the partition.
    pub busy: CodeName,
    /// The partition is in the state ERROR.
    pub broken: CodeName,
    /// The caller's credentials are not the required ones.
    pub stranger: CodeName,
}

impl Default for Codes {
    fn default() -> Self {
        Codes {
            full: CodeName::ResourceExhausted,
            exists: CodeName::AlreadyExists,
            unknown: CodeName::NotFound,
            invalid: CodeName::InvalidArgument,
            busy: CodeName::FailedPrecondition,
            broken: CodeName::Internal,
            stranger: CodeName::Unauthenticated,
        }
    }
}

impl Codes {
    /// Returns the code of a rejection.
    pub fn code(&self, rejection: &Rejection) -> CodeName {
        match rejection {
            Rejection::Full { .. } => self.full,
            Rejection::Exists(_) => self.exists,
            Rejection::Unknown(_) => self.unknown,
            Rejection::Invalid(_) => self.invalid,
            Rejection::Busy { .. } => self.busy,
            Rejection::Broken { .. } => self.broken,
        }
    }
}
