//! Carries out the effects of reconciles of jobs: requests to the API server, with injected faults.

use std::sync::Arc;

use ipu_api::ipujob_status::IPUJobStatus;
use ipu_api::ipupartition::IPUPartition;
use ipu_api::labels;
use ipu_jobs::plan::{Deletion, Release, Reset};
use ipu_jobs::status::Obstacle;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::api_server::{Conflict, Key, SLOTS, Stored, is_deleted, key_of};
use super::coverage::CoveragePoint;
use super::event_queue::{Event, JobTicket};
use super::executor::ApiFault;
use super::job_reconcile::{JobAnswer, JobEffect};
use super::job_server::{JobVersion, PodVersion};
use super::kubelet::DELETION;
use super::owners::Stage;
use super::world::World;
use crate::sim_reconcile::Failure;

/// What the caches of the replica expect after an effect.
#[derive(Debug)]
pub(super) enum Expected {
    Nothing,
    Job(JobVersion),
    Pods(Vec<Arc<Pod>>),
    PodGone(String),
    Partition(Stored),
    PartitionGone(String),
}

/// The answer to an effect, and what the caches expect when it arrives.
#[derive(Debug)]
pub(super) struct JobReply {
    answer: JobAnswer,
    expected: Expected,
}

impl JobReply {
    fn new(answer: JobAnswer, expected: Expected) -> Self {
        Self { answer, expected }
    }

    fn done(expected: Expected) -> Self {
        Self::new(JobAnswer::Done, expected)
    }

    fn failed(failure: Failure) -> Self {
        Self::new(JobAnswer::Failed(failure), Expected::Nothing)
    }

    /// A job was written, if it still exists.
    fn wrote(written: Result<Option<JobVersion>, Conflict>) -> Self {
        match written {
            Ok(Some(written)) => {
                Self::new(JobAnswer::Wrote(written.clone()), Expected::Job(written))
            }
            Ok(None) => Self::done(Expected::Nothing),
            Err(Conflict) => Self::failed(Failure::Conflict),
        }
    }
}

impl World {
    /// Carries out the effect that this reconcile of a job has asked for.
    pub(super) fn send_job(&mut self, ticket: JobTicket) {
        let Some((effect, stood)) = self.take_job_effect(ticket) else {
            return;
        };
        self.note(|| {
            let name = &self.jobs[ticket.job].uid;
            format!("replica {} on {name}: {}", ticket.who, brief(&effect))
        });
        let is_read = matches!(effect, JobEffect::HasPods(_) | JobEffect::HasPartition(_));
        if stood && !is_read {
            self.cover(CoveragePoint::JobZombieActed);
        }
        let is_last = self.is_last_step(ticket.who);
        let api_fault = self.api_fault();
        let reply = if api_fault == ApiFault::Before {
            self.cover(CoveragePoint::JobWriteFailed);
            JobReply::failed(Failure::Broken)
        } else {
            let reply = self.carry_out_job(ticket, effect);
            if api_fault == ApiFault::After {
                self.cover(CoveragePoint::JobReplyLost);
                JobReply::failed(Failure::Broken)
            } else {
                reply
            }
        };
        if matches!(reply.answer, JobAnswer::Failed(Failure::Conflict)) {
            self.cover(CoveragePoint::JobConflicted);
        }
        let delay = self.latency();
        let reply = Event::JobReply(ticket, Box::new(reply));
        self.event_queue.add(delay, reply);
        if is_last {
            self.death = None;
            self.kill(ticket.who, 1_000);
        }
    }

    /// The answer to an effect of a reconcile of a job has arrived.
    pub(super) fn job_reply(&mut self, ticket: JobTicket, reply: JobReply) {
        let now = self.instant();
        let Some(id) = self.job_read(ticket).map(|read| read.id) else {
            return;
        };
        if let Some(controller) = &mut self.replicas[ticket.who].jobs {
            match &reply.expected {
                Expected::Nothing => {}
                Expected::Job(job) => controller.expect_job(job, now),
                Expected::Pods(pods) => {
                    for pod in pods {
                        controller.expect_pod(pod, now);
                    }
                }
                Expected::PodGone(uid) => controller.expect_pod_gone(id, uid, now),
                Expected::Partition(stored) => controller.expect_partition(stored, now),
                Expected::PartitionGone(uid) => controller.expect_partition_gone(id, uid, now),
            }
        }
        self.advance_job(ticket, Some(reply.answer));
    }

    fn carry_out_job(&mut self, ticket: JobTicket, effect: JobEffect) -> JobReply {
        match effect {
            JobEffect::SetFinalizer(is_present) => self.set_job_finalizer(ticket, is_present),
            JobEffect::DeleteJob => self.delete_finished(ticket),
            JobEffect::WriteStatus(status) => self.write_job_status(ticket, *status),
            JobEffect::DeletePod(deletion) => self.delete_job_pod(&deletion),
            JobEffect::HasPods(instance) => self.list_pods(ticket.job, instance),
            JobEffect::HasPartition(name) => self.read_partition(ticket.job, &name),
            JobEffect::Reset(reset) => self.reset_for_job(ticket.job, &reset),
            JobEffect::CreatePartition(partition) => {
                self.create_job_partition(ticket.job, &partition)
            }
            JobEffect::CreatePod(pod) => self.create_job_pod(ticket, *pod),
            JobEffect::Release(release) => self.release_launcher(&release),
            JobEffect::DeletePartition(deletion) => {
                self.delete_job_partition(ticket.job, &deletion)
            }
        }
    }

    fn version_read(&mut self, ticket: JobTicket) -> Option<u64> {
        self.job_read(ticket).map(|read| read.version)
    }

    fn set_job_finalizer(&mut self, ticket: JobTicket, is_present: bool) -> JobReply {
        let version = self.version_read(ticket);
        let was_there = self.server.job(ticket.job).is_some();
        let written = self.server.change_job(ticket.job, version, |job| {
            let finalizers = job.metadata.finalizers.get_or_insert_default();
            finalizers.retain(|one| !labels::is_job_finalizer(one));
            if is_present {
                finalizers.push(labels::JOB_FINALIZER.to_owned());
            }
        });
        if was_there && self.server.job(ticket.job).is_none() {
            self.job_deleted(ticket.job);
        }
        JobReply::wrote(written)
    }

    fn delete_finished(&mut self, ticket: JobTicket) -> JobReply {
        let (version, now) = (self.version_read(ticket), Time(self.timestamp()));
        let written = self.server.change_job(ticket.job, version, |job| {
            job.metadata.deletion_timestamp.get_or_insert(now);
        });
        if written.is_ok() {
            self.cover(CoveragePoint::JobExpired);
        }
        JobReply::wrote(written)
    }

    fn write_job_status(&mut self, ticket: JobTicket, status: IPUJobStatus) -> JobReply {
        let version = self.version_read(ticket);
        let before = self
            .server
            .job(ticket.job)
            .map(|job| job.object.status.clone());
        let after = status.clone();
        let written = self
            .server
            .change_job(ticket.job, version, |job| job.status = status);
        if let (Ok(Some(_)), Some(before)) = (&written, before) {
            let uid = &self.jobs[ticket.job].uid;
            self.job_history.status_written(uid, &before, &after);
            let has_finished = after.completion_time.is_some();
            if has_finished && before.completion_time.is_none() {
                self.cover(CoveragePoint::JobFinished);
                self.jobs[ticket.job].stage = Stage::Ending;
            }
            if after.restart_count > before.restart_count {
                self.cover(CoveragePoint::JobRestarted);
            }
        }
        JobReply::wrote(written)
    }

    fn delete_job_pod(&mut self, deletion: &Deletion) -> JobReply {
        let found = self.server.pod_named(&deletion.name);
        let Some((number, _)) = found.filter(|(_, pod)| pod.uid() == deletion.uid) else {
            return JobReply::done(Expected::Nothing);
        };
        match self.request_pod_deletion(number, DELETION) {
            Some(pod) => JobReply::done(Expected::Pods(vec![pod])),
            None => JobReply::done(Expected::PodGone(deletion.uid.clone())),
        }
    }

    fn list_pods(&mut self, job: usize, instance: u32) -> JobReply {
        let instance = instance.to_string();
        let pods = self.server.pods_of_job(job);
        let pods = pods.filter(|(_, pod)| pod.label(labels::INSTANCE_LABEL) == Some(&instance));
        let pods: Vec<Arc<Pod>> = pods.map(|(_, pod)| Arc::clone(&pod.object)).collect();
        if !pods.is_empty() {
            self.cover(CoveragePoint::ResetAverted);
        }
        JobReply::new(JobAnswer::Exists(!pods.is_empty()), Expected::Pods(pods))
    }

    fn read_partition(&mut self, job: usize, name: &str) -> JobReply {
        let found = self.partition_of(job, name);
        let expected = found.map(|(_, stored)| Expected::Partition(stored.clone()));
        if expected.is_some() {
            self.cover(CoveragePoint::UseKept);
        }
        let exists = JobAnswer::Exists(expected.is_some());
        JobReply::new(exists, expected.unwrap_or(Expected::Nothing))
    }

    /// The IPUPartition of a job with this name, and its key.
    fn partition_of(&self, job: usize, name: &str) -> Option<(Key, &Stored)> {
        let keys = (0..SLOTS).map(|slot| key_of(job, slot));
        let mut found = keys.filter_map(|key| Some((key, self.api.get(key)?)));
        found.find(|(_, stored)| stored.object.metadata.name.as_deref() == Some(name))
    }

    /// The key of the IPUPartition of a job with this name and UID. A request for another one finds
    /// nothing.
    fn partition_with(&self, job: usize, name: &str, uid: &str) -> Option<Key> {
        let (key, stored) = self.partition_of(job, name)?;
        (stored.object.metadata.uid.as_deref() == Some(uid)).then_some(key)
    }

    fn reset_for_job(&mut self, job: usize, reset: &Reset) -> JobReply {
        let Some((key, stored)) = self.partition_of(job, &reset.name) else {
            return JobReply::done(Expected::Nothing);
        };
        if stored.object.metadata.uid.as_deref() != Some(&reset.uid) {
            return JobReply::failed(Failure::Conflict);
        }
        if stored.object.spec.reset_generation > reset.generation {
            // The API server refuses that, because each reset is counted.
            return JobReply::failed(Failure::Broken);
        }
        self.cover(CoveragePoint::ResetForJob);
        let generation = reset.generation;
        self.api
            .update(key, |object| object.spec.reset_generation = generation);
        JobReply::done(self.expected_partition(key))
    }

    fn expected_partition(&self, key: Key) -> Expected {
        let stored = self.api.get(key).cloned();
        stored.map_or(Expected::Nothing, Expected::Partition)
    }

    fn create_job_partition(&mut self, job: usize, partition: &IPUPartition) -> JobReply {
        let slot = usize::try_from(partition.spec.slot).expect("slots are few");
        let key = key_of(job, slot);
        let obstacle = self.api.get(key).and_then(|found| {
            is_deleted(&found.object).then(|| Obstacle::Terminating {
                object: "IPUPartition".to_owned(),
                is_owned: true,
            })
        });
        if self.api.get(key).is_none() {
            let now = Time(self.timestamp());
            self.api.create(key, partition.clone(), now);
        }
        JobReply::new(JobAnswer::Created(obstacle), self.expected_partition(key))
    }

    fn create_job_pod(&mut self, ticket: JobTicket, pod: Pod) -> JobReply {
        let name = pod.metadata.name.clone().unwrap_or_default();
        if let Some((_, found)) = self.server.pod_named(&name) {
            let obstacle = obstacle(found, ticket.job);
            let pods = Expected::Pods(vec![Arc::clone(&found.object)]);
            self.cover(CoveragePoint::PodExists);
            return JobReply::new(JobAnswer::Created(obstacle), pods);
        }
        self.numbers += 1;
        let (number, now) = (self.numbers, Time(self.timestamp()));
        self.server.create_pod(ticket.job, number, pod, now);
        self.pod_created(number);
        let created = self.server.pod(number);
        let created = created.map(|pod| Arc::clone(&pod.object));
        let expected = Expected::Pods(created.into_iter().collect());
        JobReply::new(JobAnswer::Created(None), expected)
    }

    fn release_launcher(&mut self, release: &Release) -> JobReply {
        let found = self.server.pod_named(&release.name);
        let Some((number, pod)) = found else {
            return JobReply::done(Expected::Nothing);
        };
        if pod.uid() != release.uid {
            return JobReply::failed(Failure::Conflict);
        }
        self.cover(CoveragePoint::LauncherReleased);
        let released = self.server.change_pod(number, |pod| {
            let annotations = pod.metadata.annotations.get_or_insert_default();
            annotations.insert(labels::START_ANNOTATION.to_owned(), release.at.clone());
        });
        self.command_released(number);
        JobReply::done(Expected::Pods(released.into_iter().collect()))
    }

    fn delete_job_partition(&mut self, job: usize, deletion: &Deletion) -> JobReply {
        let Some(key) = self.partition_with(job, &deletion.name, &deletion.uid) else {
            return JobReply::done(Expected::Nothing);
        };
        let now = Time(self.timestamp());
        self.api.delete(key, now);
        JobReply::done(match self.api.get(key) {
            Some(stored) => Expected::Partition(stored.clone()),
            None => Expected::PartitionGone(deletion.uid.clone()),
        })
    }
}

/// What stands in the way of a Pod of the same name, as `ipu_jobs::writes` finds it.
fn obstacle(found: &PodVersion, job: usize) -> Option<Obstacle> {
    let is_owned = found.job == job;
    let object = format!("Pod {}", found.name());
    (!is_owned || found.is_deleted()).then_some(Obstacle::Terminating { object, is_owned })
}

/// An effect in one line.
fn brief(effect: &JobEffect) -> String {
    match effect {
        JobEffect::WriteStatus(status) => format!(
            "write status: {:?} run {:?} {}",
            status.launcher_status,
            status.run.as_ref().map(|run| (run.number, &run.used)),
            status.last_message
        ),
        JobEffect::CreatePartition(partition) => {
            format!("create the IPUPartition of slot {}", partition.spec.slot)
        }
        JobEffect::CreatePod(pod) => {
            format!(
                "create Pod {}",
                pod.metadata.name.as_deref().unwrap_or_default()
            )
        }
        other => format!("{other:?}"),
    }
}
