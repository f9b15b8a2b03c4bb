//! The effects of a reconcile of a job in the operator: requests to the API server, and what the
//! caches expect after them.

use futures::future::join_all;
use ipu_api::ipujob_status::IPUJobStatus;
use ipu_api::ipupartition::IPUPartition;
use ipu_api::uid::Uid;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use kube::api::Api;

use super::StepError;
use super::context::Context;
use super::executor::Effects;
use super::facts::Observed;
use super::job_object::{JobObject, job_uid};
use super::observe::Snapshot;
use super::plan::{Applicable, Deletion, DependentKind, PinUpdate, Plan, Release, Reset};
use super::pull_secrets;
use super::status::events;
use super::status::{Applied, Obstacle};
use super::validate::ValidJob;
use super::verified::Versions;
use super::writes::{self, ApplyResult};

/// The API server, as one reconcile of a job uses it.
pub(super) struct KubeEffects<'a> {
    context: &'a Context,
    /// What was read, with the job as it was last written.
    pub(super) snapshot: Box<Snapshot>,
    namespace: String,
    /// The job's UID.
    owner: String,
    job: Uid,
    pods: Api<Pod>,
    partitions: Api<IPUPartition>,
}

/// The rights of a launcher to read and, if they differ, to write.
struct StaleRights {
    /// The objects.
    objects: Vec<Applicable>,
    /// By kind: whether an object is expected to exist. Such an object is read before it is
    /// written.
    expected: [bool; DependentKind::COUNT],
}

impl<'a> KubeEffects<'a> {
    /// The effects of a reconcile that has read this.
    pub(super) fn new(context: &'a Context, snapshot: Box<Snapshot>) -> Self {
        let namespace = snapshot.job.namespace().unwrap_or_default();
        let owner = snapshot.job.uid().unwrap_or_default();
        Self {
            context,
            snapshot,
            job: job_uid(&namespace, &owner),
            pods: Api::namespaced(context.client.clone(), &namespace),
            partitions: Api::all(context.client.clone()),
            namespace,
            owner,
        }
    }

    /// Returns the rights that are not verified. A Role that does not exist is not withdrawn.
    fn stale_rights(&self, plan: &Plan) -> StaleRights {
        // All are created before the command of the launcher starts.
        let mut pods = self.snapshot.observed.pods.iter();
        let has_launcher = pods.any(|pod| pod.instance.is_none() && !pod.is_held);
        let verified = self.context.verified.lock();
        let exists = |kind: DependentKind| verified.exists(self.job, kind);
        let withdraw = plan
            .withdraw
            .iter()
            .filter(|role| exists(role.kind()).unwrap_or_default());
        StaleRights {
            objects: verified.stale(self.job, plan.apply.iter().chain(withdraw)),
            expected: DependentKind::ALL.map(|kind| exists(kind).unwrap_or(has_launcher)),
        }
    }

    async fn apply_object(&self, object: &Applicable, expected: bool) -> ApplyResult {
        let (client, namespace, owner) = (&self.context.client, &self.namespace, &self.owner);
        match object {
            Applicable::ServiceAccount(object) => {
                writes::apply(client, namespace, object, owner, expected).await
            }
            Applicable::Role(object) => {
                writes::apply(client, namespace, object, owner, expected).await
            }
            Applicable::RoleBinding(object) => {
                writes::apply(client, namespace, object, owner, expected).await
            }
        }
    }

    /// Applies all objects concurrently. Verified objects are not read again until a watch reports
    /// a change.
    async fn apply_own_rights(
        &mut self,
        plan: &Plan,
        kinds: &[DependentKind],
    ) -> Result<Applied, StepError> {
        let mut rights = self.stale_rights(plan);
        rights
            .objects
            .retain(|object| kinds.contains(&object.kind()));
        let mut applied = Applied::default();
        if rights.objects.is_empty() {
            return Ok(applied);
        }
        if let Some(job) = self.snapshot.job.job() {
            let job = self.context.views.references.shared(job);
            self.context.verified.lock().begin(job);
        }
        let mut versions = Versions::default();
        let applying = rights.objects.iter().map(|object| {
            let expected = rights.expected[object.kind().index()];
            self.apply_object(object, expected)
        });
        let applying: Vec<_> = applying.collect();
        for (object, result) in rights.objects.iter().zip(join_all(applying).await) {
            match result? {
                Ok(version) => versions[object.kind().index()] = version,
                Err(obstacle) => {
                    // No Pod uses a Role that is withdrawn.
                    applied.blocked |= plan.withdraw.as_ref() != Some(object);
                    applied.obstacles.push(obstacle);
                }
            }
        }
        if !applied.blocked {
            let mut verified = self.context.verified.lock();
            verified.record(self.job, &rights.objects, versions);
        }
        Ok(applied)
    }
}

impl Effects for KubeEffects<'_> {
    type Error = StepError;

    fn metadata(&self) -> &ObjectMeta {
        &self.snapshot.job.metadata
    }

    fn observed(&self) -> &Observed {
        &self.snapshot.observed
    }

    async fn set_finalizer(&mut self, is_present: bool) -> Result<(), StepError> {
        let written = self.context.set_finalizer(&self.snapshot, is_present);
        Ok(written.await?)
    }

    async fn delete_job(&mut self) -> Result<(), StepError> {
        let jobs = self.context.jobs(&self.snapshot);
        let view = &self.context.views.jobs;
        Ok(writes::delete_job(&jobs, &self.snapshot.job, view).await?)
    }

    async fn trial_refusal(&mut self, job: &ValidJob) -> Option<Obstacle> {
        self.context.trial_refusal(job).await
    }

    async fn add_pull_secrets(&mut self, job: &ValidJob, plan: &mut Plan) -> Result<(), StepError> {
        Ok(pull_secrets::add(&self.context.client, job, plan).await?)
    }

    async fn write_status(
        &mut self,
        status: IPUJobStatus,
        now: Timestamp,
    ) -> Result<(), StepError> {
        let written = self.context.write_status(&mut self.snapshot, status, now);
        Ok(written.await?)
    }

    fn expect_uncreated(&mut self, pod: &str) {
        self.context.views.uncreated.insert(self.job, pod);
    }

    fn expect_created(&mut self, pod: &str) {
        self.context.views.uncreated.remove(self.job, pod);
    }

    async fn delete_pod(&mut self, deletion: &Deletion) -> Result<(), StepError> {
        let view = &self.context.views.pods;
        Ok(writes::delete(&self.pods, deletion, self.job, view).await?)
    }

    async fn end_pod(&mut self, pod: &Deletion) -> Result<(), StepError> {
        Ok(writes::end_pod(&self.pods, pod, &self.context.views.pods).await?)
    }

    async fn has_pods(&mut self, instance: u32) -> Result<bool, StepError> {
        let view = &self.context.views.pods;
        Ok(writes::has_pods(&self.pods, (&self.owner, instance), view).await?)
    }

    async fn has_partition(&mut self, name: &str) -> Result<bool, StepError> {
        let view = &self.context.views.partitions;
        Ok(writes::has_partition(&self.partitions, name, view).await?)
    }

    async fn reset(&mut self, reset: &Reset) -> Result<(), StepError> {
        let view = &self.context.views.partitions;
        Ok(writes::reset(&self.partitions, reset, view).await?)
    }

    async fn update_pin(&mut self, update: &PinUpdate) -> Result<(), StepError> {
        let view = &self.context.views.partitions;
        Ok(writes::update_pin(&self.partitions, update, view).await?)
    }

    async fn create_partition(
        &mut self,
        partition: &IPUPartition,
    ) -> Result<Option<Obstacle>, StepError> {
        let view = &self.context.views.partitions;
        Ok(writes::create(&self.partitions, partition, &self.owner, view).await?)
    }

    async fn apply_rights(
        &mut self,
        plan: &Plan,
        kinds: &[DependentKind],
    ) -> Result<Applied, StepError> {
        let mut applied = self.apply_own_rights(plan, kinds).await?;
        let (context, policy) = (self.context, &self.context.settings.pods.launcher_policy);
        if let Some(policy) = policy {
            let shared = plan.shared.iter();
            let shared = shared.filter(|object| kinds.contains(&object.kind()));
            let rights = &context.shared_rights;
            let obstacles = rights
                .apply(&context.client, &self.namespace, policy, shared.collect())
                .await?;
            applied.blocked |= !obstacles.is_empty();
            applied.obstacles.extend(obstacles);
        }
        Ok(applied)
    }

    /// Creates the ConfigMaps concurrently.
    async fn create_config_maps(
        &mut self,
        config_maps: &[ConfigMap],
    ) -> Result<Vec<Obstacle>, StepError> {
        let (client, namespace, owner) = (&self.context.client, &self.namespace, &self.owner);
        let creating = config_maps
            .iter()
            .map(|object| writes::apply(client, namespace, object, owner, false));
        let created: Result<Vec<_>, _> = join_all(creating).await.into_iter().collect();
        Ok(created?.into_iter().filter_map(Result::err).collect())
    }

    async fn create_pod(&mut self, pod: &Pod) -> Result<Option<Obstacle>, StepError> {
        let view = &self.context.views.pods;
        Ok(writes::pod::create(&self.pods, pod, &self.owner, self.job, view).await?)
    }

    async fn release_launcher(&mut self, release: &Release) -> Result<(), StepError> {
        Ok(writes::release(&self.pods, release, &self.context.views.pods).await?)
    }

    async fn delete_partition(&mut self, deletion: &Deletion) -> Result<(), StepError> {
        let view = &self.context.views.partitions;
        Ok(writes::delete(&self.partitions, deletion, self.job, view).await?)
    }

    fn publish_writes(&mut self, plan: &Plan, applied: &Applied) {
        let events = events::write_events(plan, applied);
        self.context.publish(&self.snapshot.job, events);
    }
}
