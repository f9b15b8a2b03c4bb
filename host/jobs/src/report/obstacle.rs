//! Pure: what stands in the way of what a plan writes.

use serde::Serialize;

use crate::settled::Versions;

/// Something that keeps a job's objects from being written, and is for the user to know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Obstacle {
    /// The job's spec cannot be read.
    Unreadable {
        /// Kind and name of the job.
        object: String,
        /// What cannot be read, and what to do.
        reason: String,
    },
    /// An object of the name exists and belongs to somebody else.
    Stranger {
        /// Kind and name of the object, such as `Pod mnist-worker-0`.
        object: String,
        /// Whose it is, as far as it says.
        owner: String,
    },
    /// An object of the name exists, is ours or an earlier job's, and is being deleted.
    Leaving {
        /// Kind and name of the object.
        object: String,
        /// Whether it is this job's.
        is_ours: bool,
    },
    /// The API server refused the object.
    Refused {
        /// Kind and name of the object.
        object: String,
        /// What the API server said.
        reason: String,
    },
}

impl Obstacle {
    /// Kind and name of the object that it is about.
    pub fn object(&self) -> &str {
        match self {
            Self::Stranger { object, .. }
            | Self::Leaving { object, .. }
            | Self::Unreadable { object, .. }
            | Self::Refused { object, .. } => object,
        }
    }

    /// Whether what was to be made certainly was not: one of the name that is ours may have been there.
    pub fn is_unmade(&self) -> bool {
        !matches!(self, Self::Leaving { is_ours: true, .. })
    }
}

/// What became of a plan.
#[derive(Debug, Default)]
pub struct Applied {
    /// What stood in the way, which is for the user to know and no reason to stop.
    pub obstacles: Vec<Obstacle>,
    /// Whether files or rights are not the job's own yet, so that no Pod was made.
    pub blocked: bool,
    /// The versions at which files and rights were found or made.
    pub versions: Versions,
}

impl std::fmt::Display for Obstacle {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Stranger { object, owner } => write!(
                formatter,
                "{object} exists and belongs to {owner}; delete it, or give the job another name"
            ),
            Self::Leaving { object, .. } => {
                write!(formatter, "waiting for an earlier {object} to be gone")
            }
            Self::Refused { object, reason } => {
                write!(formatter, "the API server refused {object}: {reason}")
            }
            Self::Unreadable { reason, .. } => {
                write!(formatter, "nothing more is made for the job: {reason}")
            }
        }
    }
}
