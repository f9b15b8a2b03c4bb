//! Pure: the decision about the V-IPU controller of a partition.

use ipu_api::ipupartition::{ControllerRef, DecidedBy, WaitingReason};

/// The placement decision for a partition, after the host has checked it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PlacementDecision {
    /// Create it on this controller, which this policy chose.
    Try(ControllerRef, DecidedBy),
    /// Wait, for these reasons.
    Wait(Vec<WaitingReason>),
    /// No controller can ever create it, for this reason.
    Reject(String),
}
