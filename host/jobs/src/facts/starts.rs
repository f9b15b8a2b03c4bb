//! Pure: instances whose Pods cannot start.

use super::pending::StartState;
use super::pod::PodState;
use super::{Facts, Instance, Member};

impl Instance {
    /// Whether Pods of the instance cannot start, and none of its containers runs. Workers that wait for a launcher do
    /// nothing, although they run.
    pub fn is_blocked(&self, has_launcher: bool) -> bool {
        let mut workers = self.workers.iter();
        let runs = |worker: &Member| match worker.state {
            PodState::Running { .. } => !has_launcher,
            PodState::Pending(_) => worker.start == StartState::Begun,
            _ => false,
        };
        !workers.clone().any(runs) && workers.any(|worker| self.is_start_blocked(worker))
    }

    fn is_start_blocked(&self, worker: &Member) -> bool {
        let is_rejected = self.rejected.contains(&worker.name) && worker.state.missing();
        is_rejected || worker.is_start_blocked()
    }
}

impl Member {
    /// Adds the message of the node that cannot mount the volumes of the Pod, if nothing else stands in the way.
    pub(super) fn with_failed_mount(mut self, message: Option<&str>) -> Self {
        if let (PodState::Pending(None), Some(message)) = (&self.state, message) {
            self.state = PodState::Pending(Some(message.to_owned()));
            self.start = StartState::Blocked;
        }
        self
    }

    /// Whether Kubernetes reports that the Pod cannot start.
    pub fn is_start_blocked(&self) -> bool {
        match self.state {
            PodState::Rejected(_) => true,
            PodState::Pending(_) => self.start == StartState::Blocked,
            _ => false,
        }
    }
}

impl Facts {
    /// Whether a container of any desired instance of a job with a launcher is at work before the launcher runs.
    pub fn initializes(&self) -> bool {
        let members = self.workers().chain(std::iter::once(&self.launcher));
        let mut pending = members.filter(|member| matches!(member.state, PodState::Pending(_)));
        pending.any(|member| member.start == StartState::Begun)
    }
}
