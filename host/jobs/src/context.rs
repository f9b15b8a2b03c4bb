//! What all reconciles of jobs share: the client, the views, and what is remembered from one to the
//! next. Nothing of it is lost with the process: it only saves requests.

use std::sync::Arc;

use ipu_api::ipujob_status::IPUJobStatus;
use ipu_api::names;
use ipu_api::uid::Uid;
use ipu_runtime::clock;
use ipu_runtime::events::{Event, EventQueue};
use ipu_runtime::telemetry::trace;
use ipu_runtime::work_queue::metrics::Reconciles;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::Api;
use kube::{Client, Resource, ResourceExt};
use parking_lot::{Mutex, MutexGuard};
use serde_json::json;

use super::kept::OfJob;
use super::lists::Lists;
use super::observe::Seen;
use super::plan::{Applicable, Plan};
use super::raw::RawJob;
use super::report::events;
use super::report::{self, Obstacle};
use super::settled::Settled;
use super::watches::Views;
use super::writes::{self, WriteError};
use super::{JobSettings, apply, stranded};
use crate::metrics::{JobMetrics, Jobs};

/// What every reconcile shares.
pub(super) struct Context {
    pub(super) client: Client,
    pub(super) settings: JobSettings,
    pub(super) events: EventQueue,
    settled: Mutex<Settled>,
    pub(super) views: Arc<Views>,
    pub(super) lists: Lists,
    pub(super) reconciles: Reconciles,
    pub(super) counts: Jobs,
}

impl Context {
    /// With nothing remembered yet.
    pub(super) fn new(client: Client, settings: JobSettings, metrics: &JobMetrics) -> Self {
        Self {
            events: EventQueue::new(
                &client,
                names::FIELD_MANAGER,
                settings.instance.as_deref(),
                metrics.reconciles.events_lost.clone(),
            ),
            client,
            lists: Lists::new(metrics.jobs.clone(), &settings.scope),
            settings,
            settled: Mutex::default(),
            views: Arc::default(),
            reconciles: metrics.reconciles.clone(),
            counts: metrics.jobs.clone(),
        }
    }

    /// Forgets a job that is gone.
    pub(super) fn forget(&self, job: Uid) {
        self.settled().forget(job);
        self.views.unmade.forget(job);
    }

    /// Whether anything is remembered of a job.
    #[cfg(test)]
    pub(super) fn remembers(&self, job: Uid) -> bool {
        self.settled().knows(job) || !self.views.unmade.of(job).is_empty()
    }

    /// Forgets what was remembered of a job after it was gone.
    pub(super) fn forget_unless_known(&self, job: Uid) {
        if !self.views.jobs.knows(job) {
            self.forget(job);
        }
    }

    pub(super) fn settled(&self) -> MutexGuard<'_, Settled> {
        self.settled.lock()
    }

    pub(super) fn jobs(&self, seen: &Seen) -> Api<RawJob> {
        let namespace = seen.job.namespace().unwrap_or_default();
        Api::namespaced(self.client.clone(), &namespace)
    }

    /// Carries out a plan, and tells of it. Objects that were found as they should be are not read again
    /// before a watch tells of a change.
    pub(super) async fn apply(
        &self,
        seen: &Seen,
        plan: &Plan,
    ) -> Result<Vec<Obstacle>, WriteError> {
        let namespace = seen.job.namespace().unwrap_or_default();
        let uid = seen.job.uid().unwrap_or_default();
        let job = Uid::of(&uid);
        let holds = self.settled().holds(job, &plan.apply);
        let objects: &[Applicable] = if holds { &[] } else { &plan.apply };
        // They are made before the first Pod.
        let expected = self.settled().knows(job) || !seen.observed.pods.is_empty();
        if !objects.is_empty() {
            seen.job
                .job()
                .into_iter()
                .for_each(|job| self.settled().look(job));
        }
        let views = &self.views;
        let objects = (objects, expected);
        let applied = apply::apply(&self.client, &namespace, &uid, plan, objects, views);
        let applied = applied.await?;
        if !applied.blocked && !objects.0.is_empty() {
            self.settled().found(job, objects.0, applied.versions);
        }
        let events = events::of_writes(plan, &applied);
        self.publish(&seen.job, events);
        Ok(applied.obstacles)
    }

    fn publish(&self, job: &RawJob, events: Vec<Event>) {
        self.events.publish(job.object_ref(&()), events);
    }

    /// Deletes by force what never ends, because its node is lost.
    pub(super) async fn free(&self, seen: &Seen) -> Result<(), WriteError> {
        let (Some(patience), observed) = (self.settings.lost_node, &seen.observed) else {
            return Ok(());
        };
        let now = clock::now();
        let stranded = stranded::stranded(&observed.pods, &observed.nodes, patience, now);
        let namespace = seen.job.namespace().unwrap_or_default();
        let uid = seen.job.uid().unwrap_or_default();
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &namespace);
        for stranded in &stranded {
            writes::delete_by_force(&pods, &stranded.pod, &uid, &self.views.pods).await?;
        }
        let events = stranded.iter().map(events::of_stranded).collect();
        self.publish(&seen.job, events);
        Ok(())
    }

    /// Writes the status where it changed, and tells what turned. From then on the job is seen as it was
    /// written.
    pub(super) async fn report(
        &self,
        seen: &mut Seen,
        status: IPUJobStatus,
        now: Timestamp,
    ) -> Result<(), WriteError> {
        let uid = seen.job.uid().unwrap_or_default();
        let old = &seen.observed.status;
        let Some(new) = report::changed(old, status, now) else {
            return Ok(());
        };
        let object = report::with_status(&seen.object, &new);
        let (name, view) = (seen.job.name_any(), &self.views.jobs);
        let written = writes::replace_job_status(&self.jobs(seen), &name, &object, view).await?;
        let runs = self.counts.reported(&seen.job, old, &new, now);
        if let (true, Some(created)) = (runs, seen.job.creation_timestamp()) {
            let job = seen.job.job().map(|job| job.to_string());
            trace::runs(&uid, job.unwrap_or_default(), created.0, now);
        }
        let events = events::of_status(old, &new);
        self.publish(&seen.job, events);
        if let Some(written) = written {
            (seen.object, seen.job) = (written.as_json(), written);
        }
        seen.observed.status = new;
        Ok(())
    }

    pub(super) async fn set_finalizer(&self, seen: &Seen, wanted: bool) -> Result<(), WriteError> {
        let mut finalizers = seen.job.finalizers().to_vec();
        finalizers.retain(|finalizer| !names::is_job_finalizer(finalizer));
        if wanted {
            finalizers.push(names::JOB_FINALIZER.to_owned());
        }
        // With the version that was read: a finalizer that somebody else set since is kept.
        let patch = json!({"metadata": {
            "finalizers": finalizers,
            "resourceVersion": seen.job.resource_version(),
        }});
        let (name, view) = (seen.job.name_any(), &self.views.jobs);
        writes::patch_job(&self.jobs(seen), &name, &patch, view).await
    }
}
