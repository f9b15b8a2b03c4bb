//! The watches of the reconciler of jobs: of jobs, of Pods and of IPUPartitions. Each is late by
//! itself.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ipu_api::ipupartition::IPUPartition;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::watcher::Event as WatchEvent;

use super::api_server::Stored;
use super::event_queue::Event;
use super::job_controller::JobController;
use super::world::World;

/// A kind of objects that the reconciler of jobs watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Jobs,
    Pods,
    Partitions,
}

impl Kind {
    pub(super) const ALL: [Kind; 3] = [Kind::Jobs, Kind::Pods, Kind::Partitions];
}

impl World {
    /// The time in the form that the caches need.
    pub(super) fn instant(&self) -> Instant {
        self.epoch + Duration::from_millis(self.event_queue.now())
    }

    /// The replica begins to reconcile jobs: it lists everything.
    pub(super) fn begin_jobs(&mut self, who: usize) {
        let mut controller = JobController::new();
        controller.positions = Kind::ALL.map(|kind| self.changes_of(kind));
        controller.apply_job_event(WatchEvent::Init);
        controller.apply_pod_event(WatchEvent::Init);
        controller.partitions.apply_event(WatchEvent::Init);
        let mut jobs = Vec::new();
        for job in self.server.jobs() {
            jobs.push(job.job);
            controller.apply_job_event(WatchEvent::InitApply(job.clone()));
        }
        for (_, pod) in self.server.pods() {
            controller.apply_pod_event(WatchEvent::InitApply(with_version(&pod.object)));
        }
        for (_, stored) in self.api.list() {
            let event = WatchEvent::InitApply(versioned(stored));
            controller.partitions.apply_event(event);
        }
        controller.apply_job_event(WatchEvent::InitDone);
        controller.apply_pod_event(WatchEvent::InitDone);
        controller.partitions.apply_event(WatchEvent::InitDone);
        self.replicas[who].jobs = Some(controller);
        for job in jobs {
            self.trigger_job(who, job, 0);
        }
    }

    /// Notifies the reconcilers of jobs of changes.
    pub(super) fn announce_to_jobs(&mut self, kind: Kind) {
        let upto = self.changes_of(kind);
        let announced = &mut self.announced_to_jobs[kind as usize];
        if std::mem::replace(announced, upto) == upto {
            return;
        }
        for who in 0..self.replicas.len() {
            if self.replicas[who].jobs.is_some() {
                let lag = self.replicas[who].lag + self.latency();
                let watch = Event::JobWatch { who, kind, upto };
                self.event_queue.add(lag, watch);
            }
        }
    }

    /// The number of changes of a kind so far.
    pub(super) fn changes_of(&self, kind: Kind) -> usize {
        match kind {
            Kind::Jobs => self.server.job_log().len(),
            Kind::Pods => self.server.pod_log().len(),
            Kind::Partitions => self.api.log().len(),
        }
    }

    /// A watch of the reconciler of jobs delivers the changes up to this one.
    pub(super) fn watch_jobs(&mut self, who: usize, kind: Kind, upto: usize) {
        let Some(controller) = &mut self.replicas[who].jobs else {
            return;
        };
        let position = &mut controller.positions[kind as usize];
        let from = (*position).min(upto);
        *position = (*position).max(upto);
        let mut changed = BTreeSet::new();
        for index in from..upto {
            match kind {
                Kind::Jobs => {
                    let change = &self.server.job_log()[index];
                    let job = change.object.clone();
                    changed.extend(controller.apply_job_event(event(job, change.is_delete)));
                }
                Kind::Pods => {
                    let change = &self.server.pod_log()[index];
                    let pod = event(with_version(&change.object.object), change.is_delete);
                    let jobs = controller.apply_pod_event(pod);
                    changed.extend(jobs.iter().map(|job| job.uid));
                }
                Kind::Partitions => {
                    let change = &self.api.log()[index];
                    let is_delete = change.now.is_none();
                    let Some(stored) = change.now.as_ref().or(change.last.as_ref()) else {
                        continue;
                    };
                    let partition = event(versioned(stored), is_delete);
                    let jobs = controller.partitions.apply_event(partition);
                    changed.extend(jobs.iter().map(|job| job.uid));
                }
            }
        }
        for id in changed {
            if let Some(job) = self.job_ids.get(&id).copied() {
                self.requeue_job(who, job, 0);
            }
        }
    }
}

/// An IPUPartition with its version.
pub(super) fn versioned(stored: &Stored) -> IPUPartition {
    let mut object = IPUPartition::clone(&stored.object);
    object.metadata.resource_version = Some(stored.version.to_string());
    object
}

fn with_version(pod: &Arc<Pod>) -> Pod {
    Pod::clone(pod)
}

fn event<T>(object: T, is_delete: bool) -> WatchEvent<T> {
    if is_delete {
        WatchEvent::Delete(object)
    } else {
        WatchEvent::Apply(object)
    }
}
