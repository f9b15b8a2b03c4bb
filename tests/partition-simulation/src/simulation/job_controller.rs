//! The reconciler of jobs in a replica: its caches, which are the operator's own, and the schedule
//! of its reconciles.

use std::collections::BTreeMap;
use std::fmt::{self, Debug, Formatter};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ipu_api::ipupartition::IPUPartition;
use ipu_api::labels;
use ipu_api::uid::Uid;
use ipu_jobs::cache::Cache;
use ipu_jobs::facts::Observed;
use ipu_jobs::job_object::{JobRef, JobRefs};
use ipu_jobs::views::UncreatedPods;
use ipu_runtime::watch_store::TrackedStore;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::watcher::Event as WatchEvent;

use super::api_server::Stored;
use super::coverage::CoveragePoint;
use super::event_queue::{Event, JobTicket};
use super::job_reconcile::{Ended, JobAnswer, JobEffect, JobReconcile, PodNote};
use super::job_server::JobVersion;
use super::job_watches::versioned;
use super::world::World;
use crate::sim_reconcile::Failure;

/// Requeue delay of a job whose cache is stale, in milliseconds.
const CACHE_STALE: u64 = 1_000;

/// The reconciler of jobs of a replica, while that leads.
pub(super) struct JobController {
    jobs: TrackedStore<Uid, JobVersion>,
    pods: Cache<Pod>,
    pub partitions: Cache<IPUPartition>,
    uncreated: UncreatedPods,
    /// By kind: changes that its watch has delivered.
    pub positions: [usize; 3],
    tasks: BTreeMap<usize, JobTask>,
    wakes: BTreeMap<usize, u64>,
}

/// A reconcile of a job that is under way.
struct JobTask {
    serial: u64,
    reconcile: JobReconcile,
    /// The effect that it has asked for, and that is not carried out yet.
    effect: Option<JobEffect>,
    /// Whether its replica was paused between decision and execution.
    stood: bool,
    /// Whether the job or its objects have changed since it began.
    again: bool,
}

impl Debug for JobController {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobController")
            .field("positions", &self.positions)
            .finish_non_exhaustive()
    }
}

impl JobController {
    pub(super) fn new() -> Self {
        let references = Arc::<JobRefs>::default();
        Self {
            jobs: TrackedStore::default(),
            pods: Cache::new(Arc::clone(&references)),
            partitions: Cache::new(references),
            uncreated: UncreatedPods::default(),
            positions: [0; 3],
            tasks: BTreeMap::new(),
            wakes: BTreeMap::new(),
        }
    }

    /// Whether a reconcile is under way.
    pub(super) fn is_at_work(&self) -> bool {
        !self.tasks.is_empty()
    }

    /// The job and its objects, as `ipu_jobs::observe` reads them from its caches. `None`: the
    /// caches are stale; and inside, the job is unknown.
    fn read(&self, id: Uid, now: Instant) -> Option<Option<(JobVersion, Observed)>> {
        if self.jobs.is_stale(id, now) {
            return None;
        }
        let mut pods = self.pods.of(id, now)?;
        let mut partitions = self.partitions.of(id, now)?;
        pods.sort_by(|one, other| one.object.name().cmp(other.object.name()));
        partitions.sort_by(|one, other| one.object.name().cmp(other.object.name()));
        let job = self.jobs.objects().get(&id).cloned();
        let found = job.map(|job| {
            let observed = Observed {
                pods,
                partitions,
                uncreated: self.uncreated.of(id),
                status: job.object.status.clone(),
                ..Observed::default()
            };
            (job, observed)
        });
        Some(found)
    }

    pub(super) fn apply_job_event(&mut self, event: WatchEvent<JobVersion>) -> Option<Uid> {
        let (key, store) = (|job: &JobVersion| Some(job.id), &mut self.jobs);
        let changes = store.apply_event(event, key, |_, job, _| Some(job));
        let changed = changes.into_iter().next().map(|change| change.key);
        if let Some(id) = changed.filter(|id| !self.jobs.objects().contains_key(id)) {
            self.uncreated.forget(id);
        }
        changed
    }

    pub(super) fn apply_pod_event(&mut self, event: WatchEvent<Pod>) -> Vec<Arc<JobRef>> {
        let jobs = &self.jobs;
        let is_known = |id| jobs.objects().contains_key(&id);
        self.uncreated.apply_event(&event, is_known);
        self.pods.apply_event(event)
    }

    fn note(&mut self, id: Uid, notes: Vec<PodNote>) {
        for note in notes {
            match note {
                PodNote::Uncreated(pod) => self.uncreated.insert(id, &pod),
                PodNote::Created(pod) => self.uncreated.remove(id, &pod),
            }
        }
    }

    /// Expects a job that was written.
    pub(super) fn expect_job(&mut self, job: &JobVersion, now: Instant) {
        let id = job.id;
        self.jobs.expect(&id, (id, id), job.version, now);
    }

    /// Expects a Pod that was written or read.
    pub(super) fn expect_pod(&mut self, pod: &Pod, now: Instant) {
        self.pods.expect_update(pod, now);
    }

    /// Expects that a Pod of a job is gone.
    pub(super) fn expect_pod_gone(&mut self, id: Uid, uid: &str, now: Instant) {
        self.pods.expect_delete(id, uid, now);
    }

    /// Expects an IPUPartition that was written or read.
    pub(super) fn expect_partition(&mut self, stored: &Stored, now: Instant) {
        self.partitions.expect_update(&versioned(stored), now);
    }

    /// Expects that an IPUPartition of a job is gone.
    pub(super) fn expect_partition_gone(&mut self, id: Uid, uid: &str, now: Instant) {
        self.partitions.expect_delete(id, uid, now);
    }
}

impl World {
    /// Schedules a reconcile of a job, or again once the present one has ended.
    pub(super) fn requeue_job(&mut self, who: usize, job: usize, delay: u64) {
        let Some(controller) = &mut self.replicas[who].jobs else {
            return;
        };
        match controller.tasks.get_mut(&job) {
            Some(task) => task.again = true,
            None => self.trigger_job(who, job, delay),
        }
    }

    /// Schedules a reconcile of a job, instead of any earlier schedule.
    pub(super) fn trigger_job(&mut self, who: usize, job: usize, delay: u64) {
        self.numbers += 1;
        let number = self.numbers;
        if let Some(controller) = &mut self.replicas[who].jobs {
            controller.wakes.insert(job, number);
            let wake = Event::JobWake { who, job, number };
            self.event_queue.add(delay, wake);
        }
    }

    /// Reconciles a job, unless that was deferred or is under way.
    pub(super) fn wake_job(&mut self, who: usize, job: usize, number: u64) {
        let (now, instant) = (self.timestamp(), self.instant());
        let Some(id) = self.server.job(job).map(|job| job.id) else {
            return;
        };
        let replica = &mut self.replicas[who];
        let Some(controller) = replica.jobs.as_mut().filter(|_| replica.acts) else {
            return;
        };
        if controller.wakes.get(&job) != Some(&number) || controller.tasks.contains_key(&job) {
            return;
        }
        controller.wakes.remove(&job);
        let Some(read) = controller.read(id, instant) else {
            self.cover(CoveragePoint::JobCacheStale);
            self.trigger_job(who, job, CACHE_STALE);
            return;
        };
        let Some((read, observed)) = read else {
            return;
        };
        let metadata = &read.object.metadata;
        let mut finalizers = metadata.finalizers.iter().flatten();
        let is_ours = finalizers.any(|one| labels::is_job_finalizer(one));
        if metadata.deletion_timestamp.is_some() && !is_ours {
            return;
        }
        let settings = Arc::clone(&self.pod_settings);
        self.numbers += 1;
        let serial = self.numbers;
        let task = JobTask {
            serial,
            reconcile: JobReconcile::begin(read, observed, settings, now),
            effect: None,
            stood: false,
            again: false,
        };
        controller.tasks.insert(job, task);
        self.advance_job(JobTicket { who, job, serial }, None);
    }

    fn job_task(&mut self, ticket: JobTicket) -> Option<&mut JobTask> {
        let controller = self.replicas[ticket.who].jobs.as_mut()?;
        let task = controller.tasks.get_mut(&ticket.job);
        task.filter(|task| task.serial == ticket.serial)
    }

    /// The job that a reconcile has read or written last, while it is under way.
    pub(super) fn job_read(&mut self, ticket: JobTicket) -> Option<JobVersion> {
        Some(self.job_task(ticket)?.reconcile.read.clone())
    }

    /// The effect that a reconcile has asked for, and whether its replica was paused since.
    pub(super) fn take_job_effect(&mut self, ticket: JobTicket) -> Option<(JobEffect, bool)> {
        let task = self.job_task(ticket)?;
        Some((task.effect.take()?, std::mem::take(&mut task.stood)))
    }

    /// The replica is paused before it carries out an effect.
    pub(super) fn job_stands(&mut self, ticket: JobTicket) {
        if let Some(task) = self.job_task(ticket) {
            task.stood = true;
        }
    }

    /// The executor goes on with this answer, to its next effect or to its end.
    pub(super) fn advance_job(&mut self, ticket: JobTicket, answer: Option<JobAnswer>) {
        let Some(task) = self.job_task(ticket) else {
            return;
        };
        let id = task.reconcile.read.id;
        let (next, notes) = task.reconcile.advance(answer);
        match next {
            Ok(effect) => {
                task.effect = Some(effect);
                let pause = self.rng.between(0, 2);
                self.event_queue.add(pause, Event::JobSend(ticket));
            }
            Err(ended) => self.finish_job(ticket, ended),
        }
        if let Some(controller) = &mut self.replicas[ticket.who].jobs {
            controller.note(id, notes);
        }
    }

    /// A reconcile has ended. The next one follows after this delay, or at the next change.
    fn finish_job(&mut self, JobTicket { who, job, .. }: JobTicket, ended: Ended) {
        let retry = self.rng.between(500, 2_000);
        let controller = self.replicas[who].jobs.as_mut();
        let task = controller.and_then(|controller| controller.tasks.remove(&job));
        let pause = match ended {
            Ok(pause) => pause.map(milliseconds),
            Err(Failure::Conflict) => Some(100),
            Err(Failure::Broken) => Some(retry),
        };
        if task.is_some_and(|task| task.again) {
            self.trigger_job(who, job, 0);
        } else if let Some(pause) = pause {
            self.trigger_job(who, job, pause);
        }
    }
}

fn milliseconds(delay: Duration) -> u64 {
    delay.as_millis().try_into().expect("a delay is short")
}
