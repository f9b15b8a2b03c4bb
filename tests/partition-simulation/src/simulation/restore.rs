//! Changes that the ledger must survive: a new release in place of an earlier one, and a restore of
//! the API server.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ipu_api::ipupartition::IPUPartition;

use super::api_server::Key;
use super::coverage::CoveragePoint;
use super::job_server::JobBackup;
use super::owners::{Job, Stage};
use super::repair::Repair;
use super::sim_adapter;
use super::world::World;

/// The API server at one moment.
#[derive(Debug)]
pub(super) struct Backup {
    objects: BTreeMap<Key, Arc<IPUPartition>>,
    jobs: Vec<Job>,
    pods: BTreeSet<u64>,
    server: JobBackup,
}

impl World {
    /// The release is uninstalled, and another one continues in another namespace, sometimes in
    /// another cluster to which all objects were moved.
    pub(super) fn release_is_replaced(&mut self) {
        self.cover(CoveragePoint::HandedOver);
        self.handovers += 1;
        if self.rng.permille(250) {
            self.cover(CoveragePoint::BroughtElsewhere);
            self.history.cluster += 1;
        }
        let cluster = self.history.cluster;
        self.note(|| format!("another release takes over, in cluster {cluster}"));
        let release = format!("release-{}", self.handovers);
        self.settings.identity = sim_adapter::identity(cluster, &release);
        self.restart_replicas();
    }

    /// A backup is made, from which the API server is restored a while later.
    pub(super) fn back_up(&mut self) {
        let (None, Some(objects)) = (&self.backup, self.api.back_up()) else {
            return;
        };
        self.note(|| "the API server is backed up".to_owned());
        let of_jobs = self.server.pods().map(|(number, _)| number);
        self.backup = Some(Backup {
            objects,
            jobs: self.jobs.clone(),
            pods: self.pods.keys().copied().chain(of_jobs).collect(),
            server: self.server.back_up(),
        });
        let pause = self.rng.pick(&[2_000, 20_000, 120_000]);
        let pause = self.rng.between(500, pause);
        self.repair_later(pause, Repair::BackupRestored);
    }

    /// The API server is restored, and V-IPU controllers are not. The operator was stopped before,
    /// as the documents require. Pods that were created since the backup are unknown to their
    /// kubelets; those that have ended do not return.
    pub(super) fn restore(&mut self) {
        let Some(backup) = self.backup.take().filter(|_| !self.is_over) else {
            return;
        };
        self.cover(CoveragePoint::WentBack);
        self.restores += 1;
        self.restart_replicas();
        let on_their_way = self.event_queue.calls().map(|call| call.id.clone());
        let objects = backup.objects.values().map(Arc::as_ref);
        let held = sim_adapter::held(objects.clone());
        if self.ours().iter().any(|(_, id)| !held.contains(*id)) {
            self.coverage.count(CoveragePoint::Forgot);
        }
        self.history.restored(objects, on_their_way);
        self.missing.restored();
        self.pods.retain(|pod, _| backup.pods.contains(pod));
        let is_kept = |pod| backup.pods.contains(&pod);
        self.server.restore(backup.server, is_kept);
        self.job_history.restored();
        for (index, job) in self.jobs.iter_mut().enumerate() {
            match backup.jobs.get(index) {
                Some(before) => *job = before.clone(),
                None => job.stage = Stage::Away,
            }
            job.is_due = false;
        }
        self.api.restore(backup.objects);
        for job in 0..self.jobs.len() {
            self.schedule_tick(job, 0);
        }
    }

    fn restart_replicas(&mut self) {
        for who in 0..self.replicas.len() {
            let downtime = self.rng.between(500, 20_000);
            self.kill(who, downtime);
        }
    }
}
