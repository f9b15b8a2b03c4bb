//! What each job must reach after the last fault: it runs, it has finished and released everything,
//! or it waits for capacity that is not there.

use ipu_api::ipupartition::PartitionPhase;

use super::api_server::{self, SLOTS, key_of};
use super::invariants::{STEADY, demand};
use super::job_server::{JobVersion, PodVersion};
use super::world::World;

/// Bound on the writes of one job in ten minutes after everything was served. Each of six restarts
/// has up to 14; a job whose reconciles respond to their own writes has thousands.
const WRITES_MAX: usize = 100;

impl World {
    /// A job that is not what it must be.
    pub(super) fn job_complaint(&self) -> Option<String> {
        let mut jobs = self.server.jobs();
        jobs.find_map(|job| {
            let complaint = self.complaint_of_job(job)?;
            let status = &job.object.status;
            Some(format!(
                "job {} {complaint}: {:?} {}, {:?}",
                self.jobs[job.job].uid, status.launcher_status, status.last_message, status.run
            ))
        })
    }

    fn complaint_of_job(&self, found: &JobVersion) -> Option<&'static str> {
        let (owner, status) = (&self.jobs[found.job], &found.object.status);
        if found.object.metadata.deletion_timestamp.is_some() {
            return Some("is being deleted");
        }
        let programs = (0..SLOTS).map(|slot| self.pods_of(key_of(found.job, slot)).len());
        let programs: usize = programs.sum();
        let objects = (0..SLOTS).filter_map(|slot| self.api.get(key_of(found.job, slot)));
        if status.completion_time.is_some() {
            let has_objects = objects.count() > 0;
            return (has_objects || programs > 0).then_some("has finished, and holds partitions");
        }
        let waits = |phase| matches!(phase, PartitionPhase::Pending | PartitionPhase::Rejected);
        if objects
            .clone()
            .any(|stored| waits(api_server::phase(&stored.object)))
        {
            return None;
        }
        // A job without instances has nothing to end.
        if owner.runs.is_some() && owner.slots > 0 {
            return Some("has not finished");
        }
        // An instance may have ended before the job was scaled down.
        let is_wanted = |slot: &usize| {
            let run = status.run.as_ref();
            run.is_none_or(|run| !run.ended.contains_key(&slot.to_string()))
        };
        let instances = (0..owner.slots).filter(is_wanted).count();
        // A worker may end well before the others of its instance.
        let is_done = |pod: &PodVersion| {
            let slot = pod.key % SLOTS;
            !pod.is_launcher() && pod.has_ended() && !pod.is_deleted() && is_wanted(&slot)
        };
        let pods = self.server.pods_of_job(found.job);
        let done = pods.filter(|(_, pod)| is_done(pod)).count();
        let workers = usize::try_from(owner.workers).expect("workers are few");
        let workers = instances * workers;
        let wanted = workers + usize::from(owner.gang.is_some());
        (programs + done != wanted).then_some("does not run")
    }

    /// No job is written without end, from this change of the log of jobs on.
    pub(super) fn check_steady_jobs(&self, from: usize) {
        let written = &self.server.job_log()[from..];
        for job in 0..self.jobs.len() {
            let of_job = written.iter().filter(|change| change.object.job == job);
            let writes = of_job.count();
            demand(writes <= WRITES_MAX, STEADY, || {
                let last = written.iter().rfind(|change| change.object.job == job);
                let last = last.map(|change| &change.object.object.status);
                format!(
                    "{writes} writes of {}, the last one: {last:#?}",
                    self.jobs[job].uid
                )
            });
        }
    }
}
