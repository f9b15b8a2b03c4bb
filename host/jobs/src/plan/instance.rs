//! Pure: plans the next step of one instance: its partition, a reset, its Pods, and their release.

use super::{Plan, Reset, deletion};
use crate::build::{PodSettings, partitions, workers};
use crate::facts::partition::{PartitionState, PlacedPartition};
use crate::facts::pod::{PodState, SidecarState};
use crate::facts::{Facts, Instance, Member};
use crate::pod_set;
use crate::validate::ValidJob;

impl Plan {
    /// Requests the partition of an instance, then creates its Pods. An instance beyond the
    /// admission gets none.
    ///
    /// If the partition is broken, if a Pod that may have used it is missing, or if a missing Pod
    /// waits for its reset, all Pods restart together after a reset. A partition is never reset
    /// under a live Pod.
    pub(super) fn reconcile_instance(
        &mut self,
        job: &ValidJob,
        facts: &Facts,
        instance: &Instance,
        settings: &PodSettings,
    ) {
        if instance.refused {
            return self.release(instance);
        }
        if instance.partition.state == PartitionState::Absent
            && !pod_set::exceeds_admission(job, instance.index)
        {
            let avoided = &instance.start.avoided_controllers;
            self.create_partitions
                .push(partitions::partition(job, instance.index, avoided));
        }
        match instance.partition.state {
            PartitionState::Broken(_) => return self.restart_instance(instance),
            // The proxy moves it when no Pod uses it any more.
            PartitionState::Draining(..) => return self.delete_all(instance),
            _ if instance.must_restart() => {
                // The launcher is deleted first: it may run although its status does not show that
                // yet, and then the job has failed because of the worker that is lost now.
                if !may_start(&facts.launcher.state) {
                    self.restart_instance(instance);
                }
                return;
            }
            _ => {}
        }
        for (gcd, worker) in (0..).zip(&instance.workers) {
            match (&worker.state, instance.partition.state.usable()) {
                (PodState::Stale | PodState::Lost(_), _) => self.remove(worker),
                (PodState::Rejected(_), _) if facts.replaces_rejected(worker) => {
                    self.remove(worker);
                }
                (PodState::Absent, Some(placed))
                    if facts.may_create(&worker.name) && !lacks_partition(job, facts) =>
                {
                    let run = facts.run.number;
                    let indexes = (instance.index, gcd, run);
                    self.record_use(facts, instance, placed);
                    self.create_config_maps
                        .extend(workers::config_map(job, gcd, placed));
                    self.record_recreation(facts, worker);
                    self.create_pods
                        .push(workers::worker(job, settings, indexes, placed));
                }
                (
                    PodState::Absent
                    | PodState::Terminating { .. }
                    | PodState::Rejected(_)
                    | PodState::Pending(_)
                    | PodState::Running { .. }
                    | PodState::Succeeded(_)
                    | PodState::Failed(_),
                    _,
                ) => {}
            }
        }
    }

    /// Records the use of a partition before the creation of the first Pod that may use it.
    fn record_use(&mut self, facts: &Facts, instance: &Instance, placed: &PlacedPartition) {
        let (index, key) = (instance.index.to_string(), placed.use_key());
        if facts.run.used.get(&index) != Some(&key) {
            self.new_uses.insert(index, key);
        }
    }

    pub(super) fn record_recreation(&mut self, facts: &Facts, member: &Member) {
        if facts.is_recorded_as_rejected(&member.name) {
            self.recreated.insert(member.name.clone());
        }
    }

    fn restart_instance(&mut self, instance: &Instance) {
        self.delete_all(instance);
        let no_pods = instance.workers.iter().all(|worker| worker.uid.is_none());
        let owned = &instance.partition;
        if let (true, Some(resets), Some(uid)) = (no_pods, owned.state.resets(), &owned.uid) {
            self.reset_partitions.push(Reset {
                name: owned.name.clone(),
                uid: uid.clone(),
                instance: instance.index,
                generation: resets.saturating_add(1),
            });
        }
    }

    /// Deletes the Pods that still run in an instance that has ended because one failed, ends the
    /// sidecars of the others, and releases the partition.
    pub(super) fn finish_instance(&mut self, instance: &Instance) {
        for worker in &instance.workers {
            if !worker.state.ended() {
                self.remove(worker);
            }
        }
        let workers = instance.workers.iter();
        let lingering = workers.filter(|worker| worker.sidecars == SidecarState::Running);
        self.end_pods.extend(lingering.filter_map(deletion));
        self.release(instance);
    }

    /// Deletes the Pods of an instance, and releases its partition.
    pub(super) fn release_instance(&mut self, instance: &Instance) {
        self.delete_all(instance);
        self.release(instance);
    }

    pub(super) fn delete_all(&mut self, instance: &Instance) {
        for worker in &instance.workers {
            self.remove(worker);
        }
    }

    pub(super) fn remove(&mut self, member: &Member) {
        self.delete_pods.extend(deletion(member));
    }

    /// Releases a partition if no Pod uses it.
    pub(super) fn release(&mut self, instance: &Instance) {
        if !instance.live() {
            self.delete_partitions.extend(deletion(&instance.partition));
        }
    }
}

/// Whether a launcher of this run may have started, and its status does not show that.
fn may_start(launcher: &PodState) -> bool {
    matches!(
        launcher,
        PodState::Pending(_) | PodState::Terminating { .. }
    )
}

/// Whether a job with a launcher lacks a partition of an instance. Its Pods would prevent the
/// release of the others.
fn lacks_partition(job: &ValidJob, facts: &Facts) -> bool {
    let mut instances = facts.instances.iter();
    job.launcher.is_some() && instances.any(|one| one.partition.state.placed().is_none())
}
