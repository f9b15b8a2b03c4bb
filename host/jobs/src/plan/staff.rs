//! Pure: what one instance needs next: a partition, a reset of it, Pods; and how it gives them back.

use super::{Deletion, Plan, Reset, deletion};
use crate::build::{self, PodSettings, partitions, workers};
use crate::facts::partition::{Held, PartitionState};
use crate::facts::pod::{Aftermath, PodState};
use crate::facts::{Facts, Instance, Member};
use crate::validate::ValidJob;

impl Plan {
    /// Asks for the partition of an instance, then makes its Pods.
    ///
    /// Where Pods may have begun to use the partition and one of them is gone, or the partition is
    /// broken, all of them start again together: it is reset first, and never under a live Pod.
    pub(super) fn staff(
        &mut self,
        job: &ValidJob,
        facts: &Facts,
        instance: &Instance,
        settings: &PodSettings,
    ) {
        if instance.refused {
            return self.release(instance);
        }
        if instance.partition.state == PartitionState::Absent {
            self.create_partitions
                .push(partitions::partition(job, instance.index));
        }
        match instance.partition.state {
            PartitionState::Broken(_) => return self.start_again(instance),
            // The proxy moves it once no Pod uses it.
            PartitionState::Leaving(..) => return self.delete_all(instance),
            _ if instance.spent && instance.has_lost_a_pod() => {
                // The launcher goes first: it may run though nothing says so yet, and then the job has
                // failed by the worker that is lost now, and by no other.
                if !may_start(&facts.launcher.state) {
                    self.start_again(instance);
                }
                return;
            }
            _ => {}
        }
        for (gcd, worker) in (0..).zip(&instance.workers) {
            match (&worker.state, instance.partition.state.usable()) {
                (PodState::Stale | PodState::Lost(_), _) => self.remove(worker),
                (PodState::Absent, Some(held)) if !facts.due.held_back && !forms(job, facts) => {
                    let run = facts.run.number;
                    let of = (instance.index, gcd, run);
                    self.begin(facts, instance, held);
                    self.create_pods
                        .push(workers::worker(job, settings, of, held));
                }
                (
                    PodState::Absent
                    | PodState::Going { .. }
                    | PodState::Pending(_)
                    | PodState::Running { .. }
                    | PodState::Succeeded(_)
                    | PodState::Failed(_),
                    _,
                ) => {}
            }
        }
    }

    /// Has the use of a partition written down before the first Pod that may use it.
    fn begin(&mut self, facts: &Facts, instance: &Instance, held: &Held) {
        let (index, used) = (instance.index.to_string(), held.use_key());
        if facts.run.used.get(&index) != Some(&used) {
            self.begins.insert(index, used);
        }
    }

    fn start_again(&mut self, instance: &Instance) {
        self.delete_all(instance);
        let all_gone = instance.workers.iter().all(|worker| worker.uid.is_none());
        let owned = &instance.partition;
        if let (true, Some(resets), Some(uid)) = (all_gone, owned.state.resets(), &owned.uid) {
            self.reset_partitions.push(Reset {
                name: owned.name.clone(),
                uid: uid.clone(),
                instance: instance.index,
                generation: resets.saturating_add(1),
            });
        }
    }

    /// An instance that has run to its end: its sidecars end, and its partition is given back.
    pub(super) fn finish(&mut self, instance: &Instance) {
        let workers = instance.workers.iter();
        let lingering = workers.filter(|worker| worker.aftermath == Aftermath::Sidecars);
        self.end_pods.extend(lingering.filter_map(deletion));
        self.release(instance);
    }

    /// An instance that is not wanted, or not now.
    pub(super) fn give_up(&mut self, instance: &Instance) {
        self.delete_all(instance);
        self.release(instance);
    }

    pub(super) fn delete_all(&mut self, instance: &Instance) {
        for worker in &instance.workers {
            self.remove(worker);
        }
    }

    pub(super) fn remove(&mut self, member: &Member) {
        let wanted: Option<Deletion> = deletion(member);
        self.delete_pods.extend(wanted);
    }

    /// Gives a partition back once no Pod uses it.
    pub(super) fn release(&mut self, instance: &Instance) {
        if !instance.live() {
            self.delete_partitions.extend(deletion(&instance.partition));
        }
    }

    /// Makes the launcher once all workers are Ready. One that was made and has not started is made
    /// again where a worker was lost meanwhile.
    pub(super) fn launch(&mut self, job: &ValidJob, facts: &Facts, settings: &PodSettings) {
        let Some(command) = &job.launcher else { return };
        let launcher = &facts.launcher;
        let lost_a_worker = facts.instances.iter().any(Instance::incomplete);
        let in_vain = match launcher.state {
            PodState::Stale | PodState::Lost(_) => true,
            PodState::Pending(_) => lost_a_worker,
            _ => false,
        };
        if in_vain {
            self.remove(launcher);
        }
        let ready = facts.workers().all(|worker| worker.state.ready());
        let first = facts.instances.first();
        let held = first.and_then(|first| first.partition.state.held());
        if let (true, PodState::Absent, Some(held)) = (ready, &launcher.state, held)
            && !facts.due.held_back
        {
            let run = facts.run.number;
            self.create_pods.push(build::launcher::launcher(
                job,
                command,
                settings,
                (held, run),
            ));
        }
    }
}

/// Whether a launcher of this run is not known to have started, and may have.
fn may_start(launcher: &PodState) -> bool {
    matches!(launcher, PodState::Pending(_) | PodState::Going { .. })
}

/// Whether a job whose instances are of use only together lacks one of their partitions: its Pods
/// would keep the others from being given back.
fn forms(job: &ValidJob, facts: &Facts) -> bool {
    let mut instances = facts.instances.iter();
    job.launcher.is_some() && instances.any(|one| one.partition.state.held().is_none())
}
