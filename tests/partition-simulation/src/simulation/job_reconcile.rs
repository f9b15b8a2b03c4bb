//! One reconcile of a job by the operator's executor, one effect at a time: the simulation carries
//! out the effect and gives the executor its answer.
//!
//! It omits the rights of launchers, ConfigMaps, pull secrets, dry runs and events. No job of the
//! simulation has sidecars or changes its restart policy.

use std::fmt::{self, Debug, Formatter};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use ipu_api::ipujob_status::IPUJobStatus;
use ipu_api::ipupartition::IPUPartition;
use ipu_jobs::build::PodSettings;
use ipu_jobs::executor::{self, Effects};
use ipu_jobs::facts::Observed;
use ipu_jobs::plan::{Deletion, DependentKind, PinUpdate, Plan, Release, Reset};
use ipu_jobs::status::{Applied, Obstacle};
use ipu_jobs::validate::ValidJob;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::job_server::JobVersion;
use crate::sim_reconcile::Failure;

/// An effect that the executor asks for.
#[derive(Clone, Debug)]
pub(super) enum JobEffect {
    /// Adds or removes the finalizer.
    SetFinalizer(bool),
    DeleteJob,
    WriteStatus(Box<IPUJobStatus>),
    DeletePod(Deletion),
    HasPods(u32),
    HasPartition(String),
    Reset(Reset),
    CreatePartition(Box<IPUPartition>),
    CreatePod(Box<Pod>),
    Release(Release),
    DeletePartition(Deletion),
}

/// The answer to an effect.
#[derive(Clone, Debug)]
pub(super) enum JobAnswer {
    Done,
    /// The job was written, and is this now.
    Wrote(JobVersion),
    /// Whether there are such objects.
    Exists(bool),
    /// An object was created, or exists.
    Created(Option<Obstacle>),
    Failed(Failure),
}

/// What a process remembers of a Pod between its reconciles.
#[derive(Clone, Debug)]
pub(super) enum PodNote {
    Uncreated(String),
    Created(String),
}

/// The end of a reconcile: when the next one follows, if no watch reports anything before.
pub(super) type Ended = Result<Option<Duration>, Failure>;

/// One reconcile of one job.
pub(super) struct JobReconcile {
    future: Pin<Box<dyn Future<Output = Ended> + Send>>,
    exchange: Arc<Mutex<Exchange>>,
    /// The job as it was read or last written.
    pub read: JobVersion,
}

/// What the executor asks for, and what the simulation answers.
#[derive(Default)]
struct Exchange {
    asked: Option<JobEffect>,
    answer: Option<JobAnswer>,
    notes: Vec<PodNote>,
}

impl JobReconcile {
    /// Begins with a job and its objects, as they were read.
    pub(super) fn begin(
        read: JobVersion,
        observed: Observed,
        settings: Arc<PodSettings>,
        now: Timestamp,
    ) -> Self {
        let exchange = Arc::new(Mutex::new(Exchange::default()));
        let mut effects = OneEffect {
            job: read.clone(),
            observed,
            exchange: Arc::clone(&exchange),
        };
        let job = Arc::clone(&read.object);
        let future = async move {
            if job.metadata.deletion_timestamp.is_some() {
                executor::finalize(&mut effects, now).await
            } else {
                executor::reconcile(&job.valid, &settings, &mut effects, now).await
            }
        };
        Self {
            future: Box::pin(future),
            exchange,
            read,
        }
    }

    /// Goes on, with the answer to the last effect. Returns the next effect, or how the reconcile
    /// ended; and what the process remembers from now on.
    pub(super) fn advance(
        &mut self,
        answer: Option<JobAnswer>,
    ) -> (Result<JobEffect, Ended>, Vec<PodNote>) {
        if let Some(JobAnswer::Wrote(written)) = &answer {
            self.read = written.clone();
        }
        lock(&self.exchange).answer = answer;
        let polled = self
            .future
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()));
        let mut exchange = lock(&self.exchange);
        let notes = std::mem::take(&mut exchange.notes);
        let next = match polled {
            Poll::Ready(ended) => Err(ended),
            Poll::Pending => Ok(exchange.asked.take().expect("only an effect is waited for")),
        };
        (next, notes)
    }
}

impl Debug for JobReconcile {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobReconcile")
            .field("read", &self.read)
            .finish_non_exhaustive()
    }
}

fn lock(exchange: &Mutex<Exchange>) -> std::sync::MutexGuard<'_, Exchange> {
    exchange.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The effects of the simulation: each is asked for, and waits for its answer.
struct OneEffect {
    job: JobVersion,
    observed: Observed,
    exchange: Arc<Mutex<Exchange>>,
}

impl OneEffect {
    async fn ask(&mut self, effect: JobEffect) -> JobAnswer {
        lock(&self.exchange).asked = Some(effect);
        let exchange = Arc::clone(&self.exchange);
        poll_fn(move |_| match lock(&exchange).answer.take() {
            Some(answer) => Poll::Ready(answer),
            None => Poll::Pending,
        })
        .await
    }

    /// An effect that answers only whether it failed.
    async fn done(&mut self, effect: JobEffect) -> Result<(), Failure> {
        match self.ask(effect).await {
            JobAnswer::Done => Ok(()),
            JobAnswer::Wrote(written) => {
                self.job = written;
                Ok(())
            }
            JobAnswer::Failed(failure) => Err(failure),
            answer => unreachable!("a write is answered with {answer:?}"),
        }
    }

    async fn created(&mut self, effect: JobEffect) -> Result<Option<Obstacle>, Failure> {
        match self.ask(effect).await {
            JobAnswer::Created(obstacle) => Ok(obstacle),
            JobAnswer::Failed(failure) => Err(failure),
            answer => unreachable!("a creation is answered with {answer:?}"),
        }
    }

    async fn exists(&mut self, effect: JobEffect) -> Result<bool, Failure> {
        match self.ask(effect).await {
            JobAnswer::Exists(exists) => Ok(exists),
            JobAnswer::Failed(failure) => Err(failure),
            answer => unreachable!("a read is answered with {answer:?}"),
        }
    }

    fn note(&self, note: PodNote) {
        lock(&self.exchange).notes.push(note);
    }
}

impl Effects for OneEffect {
    type Error = Failure;

    fn metadata(&self) -> &ObjectMeta {
        &self.job.object.metadata
    }

    fn observed(&self) -> &Observed {
        &self.observed
    }

    async fn set_finalizer(&mut self, is_present: bool) -> Result<(), Failure> {
        self.done(JobEffect::SetFinalizer(is_present)).await
    }

    async fn delete_job(&mut self) -> Result<(), Failure> {
        self.done(JobEffect::DeleteJob).await
    }

    async fn trial_refusal(&mut self, _: &ValidJob) -> Option<Obstacle> {
        None
    }

    async fn add_pull_secrets(&mut self, _: &ValidJob, _: &mut Plan) -> Result<(), Failure> {
        Ok(())
    }

    async fn write_status(&mut self, status: IPUJobStatus, _: Timestamp) -> Result<(), Failure> {
        let effect = JobEffect::WriteStatus(Box::new(status.clone()));
        self.done(effect).await?;
        self.observed.status = status;
        Ok(())
    }

    fn expect_uncreated(&mut self, pod: &str) {
        self.note(PodNote::Uncreated(pod.to_owned()));
    }

    fn expect_created(&mut self, pod: &str) {
        self.note(PodNote::Created(pod.to_owned()));
    }

    async fn delete_pod(&mut self, deletion: &Deletion) -> Result<(), Failure> {
        self.done(JobEffect::DeletePod(deletion.clone())).await
    }

    async fn end_pod(&mut self, pod: &Deletion) -> Result<(), Failure> {
        unreachable!("{pod:?} has no sidecars")
    }

    async fn has_pods(&mut self, instance: u32) -> Result<bool, Failure> {
        self.exists(JobEffect::HasPods(instance)).await
    }

    async fn has_partition(&mut self, name: &str) -> Result<bool, Failure> {
        self.exists(JobEffect::HasPartition(name.to_owned())).await
    }

    async fn reset(&mut self, reset: &Reset) -> Result<(), Failure> {
        self.done(JobEffect::Reset(reset.clone())).await
    }

    async fn update_pin(&mut self, update: &PinUpdate) -> Result<(), Failure> {
        unreachable!("no restart policy changes: {update:?}")
    }

    async fn create_partition(
        &mut self,
        partition: &IPUPartition,
    ) -> Result<Option<Obstacle>, Failure> {
        let effect = JobEffect::CreatePartition(Box::new(partition.clone()));
        self.created(effect).await
    }

    async fn apply_rights(&mut self, _: &Plan, _: &[DependentKind]) -> Result<Applied, Failure> {
        Ok(Applied::default())
    }

    async fn create_config_maps(&mut self, _: &[ConfigMap]) -> Result<Vec<Obstacle>, Failure> {
        Ok(Vec::new())
    }

    async fn create_pod(&mut self, pod: &Pod) -> Result<Option<Obstacle>, Failure> {
        self.created(JobEffect::CreatePod(Box::new(pod.clone())))
            .await
    }

    async fn release_launcher(&mut self, release: &Release) -> Result<(), Failure> {
        self.done(JobEffect::Release(release.clone())).await
    }

    async fn delete_partition(&mut self, deletion: &Deletion) -> Result<(), Failure> {
        let effect = JobEffect::DeletePartition(deletion.clone());
        self.done(effect).await
    }

    fn publish_writes(&mut self, _: &Plan, _: &Applied) {}
}
