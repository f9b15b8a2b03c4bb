//! Pure: plans the launcher of a job: its Pod, and the release of its command.

use ipu_api::naming;

use super::{Plan, Release, deletion};
use crate::build::{self, PodSettings, launcher, launcher_otherwise};
use crate::facts::partition::PartitionState;
use crate::facts::pod::PodState;
use crate::facts::{Facts, Instance};
use crate::validate::ValidJob;

impl Plan {
    /// Creates the launcher together with its workers, and releases its command when the main
    /// containers of all of them are Ready: it starts its processes there. The other containers of
    /// a worker may have ended, and its readiness gates are for Services. A launcher that cannot be
    /// held back is created only then.
    ///
    /// Recreates a launcher whose command has not started if its workers start again. The instances
    /// are planned before.
    pub(super) fn launch(&mut self, job: &ValidJob, facts: &Facts, settings: &PodSettings) {
        let Some(command) = &job.launcher else { return };
        let launcher = &facts.launcher;
        let ready = facts.workers().all(|worker| worker.state.main_ready());
        if is_superseded(facts) {
            self.remove(launcher);
        } else if launcher.is_held && ready && matches!(launcher.state, PodState::Pending(_)) {
            self.release_launcher = deletion(launcher).map(|pod| Release {
                name: pod.name,
                uid: pod.uid,
                at: facts.now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            });
        }
        let is_due = if launcher::is_held(job) {
            // It would be superseded at once.
            self.completes_workers(facts) && !facts.instances.iter().any(starts_again)
        } else {
            ready
        };
        let first = facts.instances.first();
        let placed = first.and_then(|first| first.partition.state.placed());
        if let (true, PodState::Absent, Some(placed)) = (is_due, &launcher.state, placed)
            && facts.may_create(&launcher.name)
        {
            let run = facts.run.number;
            self.create_config_maps
                .extend(build::launcher::config_map(job, placed));
            self.record_recreation(facts, launcher);
            self.create_pods.push(build::launcher::launcher(
                job,
                command,
                settings,
                (placed, run),
            ));
        }
    }

    /// Adds the form of the launcher that is created if the API server refuses the usual one. The
    /// launcher is complete.
    pub fn add_launcher_otherwise(&mut self, job: &ValidJob) {
        let name = naming::launcher(&job.name);
        let mut pods = self.create_pods.iter();
        let usual = pods.find(|pod| pod.metadata.name.as_ref() == Some(&name));
        let otherwise = usual.and_then(|usual| launcher_otherwise::otherwise(job, usual));
        self.launcher_otherwise = otherwise.map(Box::new);
    }

    /// Whether every worker exists, or is created now.
    fn completes_workers(&self, facts: &Facts) -> bool {
        let is_created = |name: &String| {
            let mut created = self.create_pods.iter();
            created.any(|pod| pod.metadata.name.as_ref() == Some(name))
        };
        let mut workers = facts.workers();
        workers.all(|worker| !worker.state.missing() || is_created(&worker.name))
    }
}

/// Whether the launcher is of no use any more, and has not started.
fn is_superseded(facts: &Facts) -> bool {
    let launcher = &facts.launcher;
    match launcher.state {
        PodState::Stale | PodState::Lost(_) => true,
        PodState::Pending(_) if launcher.is_held => facts.instances.iter().any(starts_again),
        PodState::Pending(_) => facts.instances.iter().any(Instance::incomplete),
        PodState::Rejected(_) => facts.replaces_rejected(launcher),
        _ => false,
    }
}

/// Whether an instance needs a reset or another partition before its workers can be Ready. A worker
/// that was not created, or whose node rejected it, only comes later. A reset that waits for the
/// end of existing workers does not keep them from being Ready.
fn starts_again(instance: &Instance) -> bool {
    match instance.partition.state {
        PartitionState::Ready(_) => instance.must_restart(),
        PartitionState::Unusable(..) => instance.incomplete(),
        PartitionState::Absent
        | PartitionState::Waiting(_)
        | PartitionState::Forming
        | PartitionState::Rejected(_)
        | PartitionState::Broken(_)
        | PartitionState::Draining(..)
        | PartitionState::Terminating(_) => true,
    }
}
