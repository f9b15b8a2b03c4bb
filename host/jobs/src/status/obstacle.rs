//! Pure: the obstacles that the writes of a plan can meet.

use serde::Serialize;

/// A reason for which an object of a job cannot be written, which a user must know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Obstacle {
    /// The job's spec is unreadable.
    Unreadable {
        /// Kind and name of the job.
        object: String,
        /// The unreadable field, and the remedy.
        reason: String,
    },
    /// An object of the name exists, and the job does not own it.
    NotOwned {
        /// Kind and name of the object, such as `Pod mnist-worker-0`.
        object: String,
        /// Its owner, if it names one.
        owner: String,
    },
    /// An object of the name exists, belongs to this or an earlier job, and is terminating.
    Terminating {
        /// Kind and name of the object.
        object: String,
        /// Whether this job owns it.
        is_owned: bool,
    },
    /// A dry run before the first request for IPUs shows that the API server refuses the object.
    TrialRefused {
        /// Kind and name of the object.
        object: String,
        /// The message of the API server.
        reason: String,
    },
    /// The admission policy does not bind launchers with shared rights, so that nothing uses these.
    Unbound {
        /// Kind and name of the policy.
        object: String,
        /// What keeps it from denying.
        defect: String,
    },
    /// A user has created an object of the name that the jobs of a namespace share.
    NotShared {
        /// Kind and name of the object.
        object: String,
    },
    /// The API server refused the object.
    Refused {
        /// Kind and name of the object.
        object: String,
        /// The message of the API server.
        reason: String,
    },
}

impl Obstacle {
    /// Returns kind and name of the object.
    pub fn object(&self) -> &str {
        match self {
            Self::NotOwned { object, .. }
            | Self::Terminating { object, .. }
            | Self::Unreadable { object, .. }
            | Self::TrialRefused { object, .. }
            | Self::Unbound { object, .. }
            | Self::NotShared { object }
            | Self::Refused { object, .. } => object,
        }
    }

    /// Whether the object was certainly not created: an object of the name that the job owns may be
    /// an earlier one.
    pub fn is_not_created(&self) -> bool {
        !matches!(self, Self::Terminating { is_owned: true, .. })
    }
}

/// The result of applying a plan.
#[derive(Debug, Default)]
pub struct Applied {
    /// The obstacles. They do not stop the other writes.
    pub obstacles: Vec<Obstacle>,
    /// Whether an object that Pods use is not the job's own, so that no Pod was created.
    pub blocked: bool,
}

impl std::fmt::Display for Obstacle {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotOwned { object, owner } => write!(
                formatter,
                "{object} exists and belongs to {owner}; delete it, or give the job another name"
            ),
            Self::Terminating { object, .. } => {
                write!(formatter, "waiting for an earlier {object} to be gone")
            }
            Self::TrialRefused { object, reason } => write!(
                formatter,
                "no IPUs are requested, because the API server refused {object}: {reason}"
            ),
            Self::Unbound { object, defect } => write!(
                formatter,
                "{object} does not bind launchers to their own workers: {defect}; let an admin run `helm upgrade` \
                 with launcher.sharedRights=true to restore it, or with false to give each launcher rights of its own"
            ),
            Self::NotShared { object } => write!(
                formatter,
                "{object} exists, and the operator did not create it for the launchers of the namespace; delete it, or \
                 let an admin set launcher.sharedRights=false"
            ),
            Self::Refused { object, reason } => {
                write!(formatter, "the API server refused {object}: {reason}")
            }
            Self::Unreadable { reason, .. } => {
                write!(
                    formatter,
                    "the operator creates no more objects for the job: {reason}"
                )
            }
        }
    }
}
