//! Faults of Pods of jobs, and of the process that reconciles jobs.

use super::api_server::{Key, job_of};
use super::coverage::CoveragePoint;
use super::job_controller::JobController;
use super::kubelet::{DELETION, Disruption};
use super::world::World;

impl World {
    /// Kubernetes disrupts a Pod.
    pub(super) fn pod_is_disrupted(&mut self) {
        if let Some(pod) = self.some_pod() {
            let disruption = self.rng.pick(&[Disruption::Evicted, Disruption::Preempted]);
            self.disrupt_pod(pod, disruption);
        }
    }

    /// A user deletes a Pod.
    pub(super) fn pod_is_deleted(&mut self) {
        if let Some(pod) = self.some_pod() {
            self.cover(CoveragePoint::PodDeletedByHand);
            self.note(|| format!("Pod {pod} is deleted by hand"));
            self.request_pod_deletion(pod, DELETION);
        }
    }

    /// A user who has deleted an IPUPartition of a job deletes its Pods, too, so that it can go.
    pub(super) fn pods_of_partition_are_deleted(&mut self, key: Key) {
        if self.jobs[job_of(key)].is_foreign {
            return;
        }
        let pods = self.server.pods_of_job(job_of(key));
        let pods = pods.filter(|(_, pod)| pod.key == key && !pod.has_ended());
        let pods: Vec<u64> = pods.map(|(number, _)| number).collect();
        for pod in pods {
            self.request_pod_deletion(pod, DELETION);
        }
    }

    /// The process that reconciles jobs crashes and starts again, beside that of the ledger.
    pub(super) fn job_process_dies(&mut self) {
        let who = self.rng.below(2);
        let replica = &self.replicas[who];
        if self.is_dead(who) || !replica.acts {
            return;
        }
        let jobs = replica.jobs.as_ref();
        if jobs.is_some_and(JobController::is_at_work) {
            self.cover(CoveragePoint::JobProcessCrashedAtWork);
        }
        self.note(|| format!("replica {who} forgets its jobs"));
        self.begin_jobs(who);
    }
}
