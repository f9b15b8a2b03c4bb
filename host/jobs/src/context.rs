//! The state that all reconciles of jobs share: the client, the watch caches, and the verified
//! rights. It only saves requests; a restart of the process loses nothing.

use std::borrow::Cow;
use std::sync::Arc;

use futures::future::join_all;
use ipu_api::ipujob_status::IPUJobStatus;
use ipu_api::labels;
use ipu_api::uid::Uid;
use ipu_runtime::api_client::API_TIMEOUT;
use ipu_runtime::clock;
use ipu_runtime::events::{Event, EventQueue};
use ipu_runtime::telemetry::trace::{self, TracedObject};
use ipu_runtime::work_queue::metrics::Reconciles;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::Api;
use kube::{Client, Resource, ResourceExt};
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::timeout;

use super::build::PodSettings;
use super::cache_sync::CacheSync;
use super::job_object::{JobObject, JobRef, job_uid};
use super::observe::Snapshot;
use super::raw::RawJob;
use super::shared_rights::SharedRights;
use super::status::events;
use super::status::{self, Obstacle};
use super::validate::ValidJob;
use super::verified::Verified;
use super::views::Views;
use super::writes::{self, WriteError};
use super::{JobSettings, Shared, lost_node, trial};
use crate::metrics::{JobMetrics, Jobs};

/// The shared state of all reconciles.
pub(super) struct Context {
    pub(super) client: Client,
    pub(super) settings: JobSettings,
    pub(super) shared: Shared,
    pub(super) events: EventQueue,
    pub(super) verified: Mutex<Verified>,
    pub(super) shared_rights: SharedRights,
    pub(super) views: Arc<Views>,
    pub(super) cache_sync: CacheSync,
    pub(super) reconciles: Reconciles,
    pub(super) counts: Jobs,
}

impl Context {
    /// Creates the state of a new process.
    pub(super) fn new(
        client: Client,
        settings: JobSettings,
        shared: Shared,
        metrics: &JobMetrics,
    ) -> Self {
        Self {
            events: EventQueue::new(
                &client,
                labels::FIELD_MANAGER,
                settings.instance.as_deref(),
                metrics.reconciles.events_lost.clone(),
            ),
            client,
            shared,
            cache_sync: CacheSync::new(metrics.jobs.clone(), &settings.scope),
            settings,
            verified: Mutex::default(),
            shared_rights: SharedRights::default(),
            views: Arc::default(),
            reconciles: metrics.reconciles.clone(),
            counts: metrics.jobs.clone(),
        }
    }

    /// Forgets a deleted job.
    pub(super) fn forget(&self, job: Uid) {
        self.verified.lock().forget(job);
        self.views.uncreated.forget(job);
    }

    /// Whether there is any state of a job.
    #[cfg(test)]
    pub(super) fn remembers(&self, job: Uid) -> bool {
        self.verified.lock().contains(job) || !self.views.uncreated.of(job).is_empty()
    }

    /// Forgets a job that was deleted meanwhile.
    pub(super) fn forget_if_deleted(&self, job: Uid) {
        if !self.views.jobs.contains(job) {
            self.forget(job);
        }
    }

    /// The settings of new Pods.
    pub(super) fn pod_settings(&self) -> Cow<'_, PodSettings> {
        self.shared.mountable.chosen(&self.settings.pods)
    }

    pub(super) fn jobs(&self, snapshot: &Snapshot) -> Api<RawJob> {
        let namespace = snapshot.job.namespace().unwrap_or_default();
        Api::namespaced(self.client.clone(), &namespace)
    }

    /// Tries the first worker and the launcher by a dry run before the job requests its first
    /// partition. A job whose Pods the API server refuses takes no IPUs. The webhook has tried the
    /// Pods of a new job a moment before, unless another process did. An API server that does not
    /// answer in time delays no job.
    pub(super) async fn trial_refusal(&self, job: &ValidJob) -> Option<Obstacle> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &job.namespace);
        let tried = trial::of_job(job, &self.pod_settings());
        // A Pod is large.
        let trials = Box::pin(async {
            let refusals = tried
                .iter()
                .map(|forms| forms.new_refusal(&self.shared.dry_runs, &pods));
            let refused = tried.iter().zip(join_all(refusals).await);
            let mut refused = refused.filter_map(|(forms, reason)| Some((forms, reason?)));
            refused
                .next()
                .map(|(forms, reason)| Obstacle::TrialRefused {
                    object: format!("Pod {}", forms.usual.name_any()),
                    reason,
                })
        });
        timeout(API_TIMEOUT, trials).await.ok().flatten()
    }

    pub(super) fn publish(&self, job: &RawJob, events: Vec<Event>) {
        self.events.publish(job.object_ref(&()), events);
    }

    /// Force-deletes Pods that cannot terminate because their node is lost.
    pub(super) async fn force_delete_pods(&self, snapshot: &Snapshot) -> Result<(), WriteError> {
        let (Some(timeout), observed) = (self.settings.lost_node, &snapshot.observed) else {
            return Ok(());
        };
        let now = clock::now();
        let lost_pods = lost_node::lost_pods(&observed.pods, &observed.nodes, timeout, now);
        let namespace = snapshot.job.namespace().unwrap_or_default();
        let uid = snapshot.job.uid().unwrap_or_default();
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &namespace);
        let job = job_uid(&namespace, &uid);
        for lost in &lost_pods {
            writes::force_delete(&pods, &lost.pod, job, &self.views.pods).await?;
        }
        let events = lost_pods.iter().map(events::pod_force_deleted).collect();
        self.publish(&snapshot.job, events);
        Ok(())
    }

    /// Writes a changed status, and publishes the events of the change. Updates the snapshot to the
    /// written job.
    pub(super) async fn write_status(
        &self,
        snapshot: &mut Snapshot,
        new: IPUJobStatus,
        now: Timestamp,
    ) -> Result<(), WriteError> {
        let uid = snapshot.job.uid().unwrap_or_default();
        let old = &snapshot.observed.status;
        let object = status::with_status(&snapshot.object, &new);
        let (name, view) = (snapshot.job.name_any(), &self.views.jobs);
        let written = writes::status::replace(&self.jobs(snapshot), &name, &object, view).await?;
        let first_run = self.counts.record_status(&snapshot.job, old, &new, now);
        if first_run
            && let Some(created) = snapshot.job.creation_timestamp()
            && let Some(job) = snapshot.job.job()
        {
            trace::runs(&traced(&job, &uid), created.0, now);
        }
        let events = events::status_events(old, &new);
        self.publish(&snapshot.job, events);
        if let Some(written) = written {
            (snapshot.object, snapshot.job) = (written.as_json(), written);
        }
        snapshot.observed.status = new;
        Ok(())
    }

    pub(super) async fn set_finalizer(
        &self,
        snapshot: &Snapshot,
        present: bool,
    ) -> Result<(), WriteError> {
        let mut finalizers = snapshot.job.finalizers().to_vec();
        finalizers.retain(|finalizer| !labels::is_job_finalizer(finalizer));
        if present {
            finalizers.push(labels::JOB_FINALIZER.to_owned());
        }
        // The version that was read protects a finalizer that another client has set meanwhile.
        let patch = json!({"metadata": {
            "finalizers": finalizers,
            "resourceVersion": snapshot.job.resource_version(),
        }});
        let (name, view) = (snapshot.job.name_any(), &self.views.jobs);
        writes::patch_job(&self.jobs(snapshot), &name, &patch, view).await
    }
}

/// The job as the attributes of its spans name it.
pub(super) fn traced<'a>(job: &'a JobRef, uid: &'a str) -> TracedObject<'a> {
    TracedObject {
        kind: "IPUJob",
        namespace: &job.namespace,
        name: &job.name,
        uid,
    }
}
