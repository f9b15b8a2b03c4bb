//! Pure: Pods that their nodes rejected, and when they are created again.

use ipu_api::ipujob_status::RunStatus;

use super::pod::PodState;
use super::{Facts, Member};

/// Whether the record of a run names this Pod as rejected and not created again.
pub(super) fn records(run: &RunStatus, pod: &str) -> bool {
    let rejections = run.rejections.as_ref();
    rejections.is_some_and(|rejections| rejections.pods.iter().any(|name| name == pod))
}

impl Facts {
    /// Whether a Pod was rejected, and the status records that. Until then it is not deleted:
    /// later, only the status shows that it has not used its partition.
    pub fn is_recorded_as_rejected(&self, pod: &str) -> bool {
        records(&self.run, pod)
    }

    /// Whether a Pod may be created now: the back-off after its rejection is over.
    pub fn may_create(&self, pod: &str) -> bool {
        let waits = self.deadlines.in_rejection_backoff && self.is_recorded_as_rejected(pod);
        !(self.deadlines.in_backoff || waits)
    }

    /// Whether a rejected Pod is deleted now, so that it is created again.
    pub fn replaces_rejected(&self, pod: &Member) -> bool {
        matches!(pod.state, PodState::Rejected(_))
            && self.is_recorded_as_rejected(&pod.name)
            && !self.deadlines.in_rejection_backoff
    }
}
