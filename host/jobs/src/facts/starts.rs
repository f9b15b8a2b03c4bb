//! Pure: instances whose Pods cannot start.

use ipu_runtime::pod_start::node_report::NodeReport;
use ipu_runtime::pod_start::{self, StartState};

use super::pod::PodState;
use super::{Facts, Instance, Member};

impl Instance {
    /// Whether Pods of the instance cannot start, and none of its programs runs. Workers that wait
    /// for a launcher do nothing, although they run.
    pub fn is_blocked(&self, has_launcher: bool) -> bool {
        let mut workers = self.workers.iter();
        let runs = |worker: &Member| match worker.state {
            PodState::Running { .. } => !has_launcher,
            PodState::Pending(_) => worker.start == StartState::Initializing,
            _ => false,
        };
        let is_blocked = |worker: &Member| {
            self.is_start_blocked(worker) || (has_launcher && worker.is_unready())
        };
        !workers.clone().any(runs) && workers.any(is_blocked)
    }

    /// Whether an image of one of its workers is being pulled again after a failure.
    pub fn pulls_again(&self) -> bool {
        self.workers.iter().any(Member::pulls_again)
    }

    fn is_start_blocked(&self, worker: &Member) -> bool {
        let is_rejected = self.rejected.contains(&worker.name) && worker.state.missing();
        is_rejected || worker.is_start_blocked()
    }
}

impl Member {
    /// Adds what the events of the Pod show: the failure of its node, if nothing else stands in the
    /// way, and that an image is being pulled again, which takes as long as it takes.
    pub(super) fn with_report(mut self, report: &NodeReport) -> Self {
        match (&self.state, &report.obstacle) {
            (PodState::Pending(None), Some(obstacle)) => {
                self.state = PodState::Pending(Some(obstacle.clone()));
                self.start = StartState::Blocked;
            }
            (PodState::Pending(Some(reason)), _)
                if self.start == StartState::Unpulled && report.is_pulling =>
            {
                self.state = PodState::Pending(Some(pod_start::pulled_again(reason)));
                self.start = StartState::PullingAgain;
            }
            _ => {}
        }
        self
    }

    /// Whether its main container runs and is not Ready. A launcher waits for it.
    pub fn is_unready(&self) -> bool {
        matches!(
            self.state,
            PodState::Running {
                main_ready: false,
                ..
            }
        )
    }

    /// Whether one of its images is being pulled again after a failure.
    pub fn pulls_again(&self) -> bool {
        matches!(self.state, PodState::Pending(_)) && self.start == StartState::PullingAgain
    }

    /// Whether Kubernetes reports that the Pod cannot start.
    pub fn is_start_blocked(&self) -> bool {
        match self.state {
            PodState::Rejected(_) => true,
            PodState::Pending(_) => self.start.is_blocked(),
            _ => false,
        }
    }
}

impl Facts {
    /// Whether a container of any desired instance of a job with a launcher is at work before the
    /// launcher runs.
    pub fn initializes(&self) -> bool {
        let members = self.workers().chain(std::iter::once(&self.launcher));
        let mut pending = members.filter(|member| matches!(member.state, PodState::Pending(_)));
        pending.any(|member| member.start == StartState::Initializing)
    }
}
