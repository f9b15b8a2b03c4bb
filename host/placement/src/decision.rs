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

impl PlacementDecision {
    /// Whether both decide the same. Reasons to wait may differ in figures, which move whenever
    /// anybody gets or releases IPUs.
    pub fn is_alike(&self, other: &Self) -> bool {
        let (Self::Wait(before), Self::Wait(now)) = (self, other) else {
            return self == other;
        };
        let mut each = before.iter().zip(now);
        before.len() == now.len() && each.all(|(before, now)| are_alike(before, now))
    }
}

/// Whether these are the same reasons, apart from their figures.
pub fn are_alike(before: &WaitingReason, now: &WaitingReason) -> bool {
    before.controller == now.controller && words(&before.reason).eq(words(&now.reason))
}

/// The words of a text, without those that are numbers. A number that is a part of a name stays.
pub fn words(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split([' ', '(', ')', ',', ';']);
    words.filter(|word| word.is_empty() || !word.bytes().all(|byte| byte.is_ascii_digit()))
}
