//! The simulated API server: IPUJobs and their Pods with versions, and a log of changes of each
//! kind for watches.

use std::collections::BTreeMap;
use std::sync::Arc;

use ipu_api::ipujob_status::IPUJobStatus;
use ipu_api::labels;
use ipu_api::uid::Uid;
use ipu_jobs::job_object::job_uid;
use ipu_jobs::validate::ValidJob;
use ipu_runtime::watch_store::Tracked;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

use super::api_server::{Conflict, Key, key_of};
use super::owners;

/// The namespace of all jobs.
pub(super) const NAMESPACE: &str = "default";

/// An IPUJob. Its spec is the one that the operator has read from it.
#[derive(Clone, Debug)]
pub(super) struct JobObject {
    pub metadata: ObjectMeta,
    pub valid: Arc<ValidJob>,
    pub status: IPUJobStatus,
}

/// One version of an IPUJob.
#[derive(Clone, Debug)]
pub(super) struct JobVersion {
    /// Its index in the world.
    pub job: usize,
    /// What the operator knows it by.
    pub id: Uid,
    pub version: u64,
    pub object: Arc<JobObject>,
}

impl Tracked<Uid> for JobVersion {
    fn identity(key: &Uid, _: Option<&Self>) -> Option<(Uid, Uid)> {
        Some((*key, *key))
    }

    fn version(&self) -> u64 {
        self.version
    }
}

/// One version of a Pod of an IPUJob.
#[derive(Clone, Debug)]
pub(super) struct PodVersion {
    /// The job's index in the world.
    pub job: usize,
    /// The slot whose partition it uses. A launcher uses that of the first one.
    pub key: Key,
    /// The partition that it was created for.
    pub id: String,
    pub object: Arc<Pod>,
}

impl PodVersion {
    pub(super) fn name(&self) -> &str {
        self.object.metadata.name.as_deref().unwrap_or_default()
    }

    pub(super) fn uid(&self) -> &str {
        self.object.metadata.uid.as_deref().unwrap_or_default()
    }

    /// A label of the Pod.
    pub(super) fn label(&self, key: &str) -> Option<&str> {
        let labels = self.object.metadata.labels.as_ref()?;
        labels.get(key).map(String::as_str)
    }

    pub(super) fn is_launcher(&self) -> bool {
        self.label(labels::INSTANCE_LABEL).is_none()
    }

    pub(super) fn is_deleted(&self) -> bool {
        self.object.metadata.deletion_timestamp.is_some()
    }

    /// Whether a kubelet has it.
    pub(super) fn has_node(&self) -> bool {
        let spec = self.object.spec.as_ref();
        spec.is_some_and(|spec| spec.node_name.is_some())
    }

    /// Whether its containers have ended.
    pub(super) fn has_ended(&self) -> bool {
        let phase = self.object.status.as_ref();
        let phase = phase.and_then(|status| status.phase.as_deref());
        matches!(phase, Some("Succeeded" | "Failed"))
    }

    /// The run of its job.
    pub(super) fn run(&self) -> i64 {
        let run = self.label(labels::RUN_LABEL);
        run.and_then(|run| run.parse().ok()).unwrap_or(0)
    }
}

/// A change of an object, as watches deliver it.
#[derive(Debug)]
pub(super) struct Change<T> {
    /// The object, or its last state.
    pub object: T,
    pub is_delete: bool,
}

/// All IPUJobs and their Pods as they are now.
#[derive(Debug, Default)]
pub(super) struct JobServer {
    jobs: BTreeMap<usize, JobVersion>,
    /// By the number of the Pod.
    pods: BTreeMap<u64, PodVersion>,
    job_log: Vec<Change<JobVersion>>,
    pod_log: Vec<Change<PodVersion>>,
    version: u64,
}

/// The jobs at one moment.
#[derive(Debug)]
pub(super) struct JobBackup(BTreeMap<usize, JobVersion>);

impl JobServer {
    pub(super) fn job(&self, job: usize) -> Option<&JobVersion> {
        self.jobs.get(&job)
    }

    pub(super) fn jobs(&self) -> impl Iterator<Item = &JobVersion> {
        self.jobs.values()
    }

    pub(super) fn pod(&self, number: u64) -> Option<&PodVersion> {
        self.pods.get(&number)
    }

    pub(super) fn pods(&self) -> impl Iterator<Item = (u64, &PodVersion)> {
        self.pods.iter().map(|(number, pod)| (*number, pod))
    }

    /// The Pods of a job, with their numbers.
    pub(super) fn pods_of_job(&self, job: usize) -> impl Iterator<Item = (u64, &PodVersion)> {
        self.pods().filter(move |(_, pod)| pod.job == job)
    }

    /// The Pod of this name.
    pub(super) fn pod_named(&self, name: &str) -> Option<(u64, &PodVersion)> {
        self.pods().find(|(_, pod)| pod.name() == name)
    }

    /// The live Pods with this id whose programs do not use it yet, by name.
    pub(super) fn unattached<'a>(
        &'a self,
        id: &'a str,
        attached: &'a BTreeMap<u64, owners::Pod>,
    ) -> impl Iterator<Item = String> + 'a {
        let pods = self.pods().filter(move |(number, pod)| {
            pod.id == id && !pod.has_ended() && !attached.contains_key(number)
        });
        pods.map(|(number, _)| format!("default/pod-{number}"))
    }

    /// All changes of jobs so far.
    pub(super) fn job_log(&self) -> &[Change<JobVersion>] {
        &self.job_log
    }

    /// All changes of Pods so far.
    pub(super) fn pod_log(&self) -> &[Change<PodVersion>] {
        &self.pod_log
    }

    /// Stores a job.
    pub(super) fn put_job(&mut self, job: usize, object: JobObject) -> JobVersion {
        self.version += 1;
        let known = self.jobs.get(&job).map(|known| known.id);
        let uid = object.metadata.uid.as_deref().unwrap_or_default();
        let id = known.unwrap_or_else(|| job_uid(NAMESPACE, uid));
        let stored = JobVersion {
            job,
            id,
            version: self.version,
            object: Arc::new(object),
        };
        self.jobs.insert(job, stored.clone());
        self.job_log.push(Change {
            object: stored.clone(),
            is_delete: false,
        });
        stored
    }

    /// Changes a job, if it is still at the version that was read, where that matters. `None`: it
    /// does not exist. A deleted job without a finalizer is gone.
    pub(super) fn change_job(
        &mut self,
        job: usize,
        version: Option<u64>,
        change: impl FnOnce(&mut JobObject),
    ) -> Result<Option<JobVersion>, Conflict> {
        let Some(stored) = self.jobs.get(&job) else {
            return Ok(None);
        };
        if version.is_some_and(|version| version != stored.version) {
            return Err(Conflict);
        }
        let mut object = JobObject::clone(&stored.object);
        change(&mut object);
        let mut finalizers = object.metadata.finalizers.iter().flatten();
        if object.metadata.deletion_timestamp.is_some() && finalizers.next().is_none() {
            self.remove_job(job);
            return Ok(None);
        }
        Ok(Some(self.put_job(job, object)))
    }

    /// A job is gone.
    pub(super) fn remove_job(&mut self, job: usize) {
        if let Some(mut object) = self.jobs.remove(&job) {
            self.version += 1;
            object.version = self.version;
            let is_delete = true;
            self.job_log.push(Change { object, is_delete });
        }
    }

    /// Creates a Pod of a job. The caller has checked that the name is free.
    pub(super) fn create_pod(&mut self, job: usize, number: u64, mut pod: Pod, now: Time) {
        pod.metadata.uid = Some(format!("pod-uid-{number}"));
        pod.metadata.creation_timestamp = Some(now);
        let labels = pod.metadata.labels.as_ref();
        let label = |key: &str| labels.and_then(|labels| labels.get(key)).cloned();
        let slot = label(labels::INSTANCE_LABEL).and_then(|slot| slot.parse().ok());
        let stored = PodVersion {
            job,
            key: key_of(job, slot.unwrap_or(0)),
            id: label(labels::PARTITION_ID_LABEL).unwrap_or_default(),
            object: Arc::new(pod),
        };
        self.store_pod(number, stored);
    }

    /// Changes a Pod, if it exists.
    pub(super) fn change_pod(
        &mut self,
        number: u64,
        change: impl FnOnce(&mut Pod),
    ) -> Option<Arc<Pod>> {
        let mut stored = self.pods.get(&number)?.clone();
        change(Arc::make_mut(&mut stored.object));
        Some(self.store_pod(number, stored))
    }

    /// A Pod is gone.
    pub(super) fn remove_pod(&mut self, number: u64) {
        if let Some(object) = self.pods.remove(&number) {
            let is_delete = true;
            self.pod_log.push(Change { object, is_delete });
        }
    }

    fn store_pod(&mut self, number: u64, mut pod: PodVersion) -> Arc<Pod> {
        self.version += 1;
        let version = Some(self.version.to_string());
        Arc::make_mut(&mut pod.object).metadata.resource_version = version;
        self.pods.insert(number, pod.clone());
        let object = Arc::clone(&pod.object);
        self.pod_log.push(Change {
            object: pod,
            is_delete: false,
        });
        object
    }

    /// All jobs.
    pub(super) fn back_up(&self) -> JobBackup {
        JobBackup(self.jobs.clone())
    }

    /// Restores all jobs from a backup, and those Pods of it that their kubelets still have.
    /// Versions are not set back.
    pub(super) fn restore(&mut self, backup: JobBackup, is_kept: impl Fn(u64) -> bool) {
        self.pods.retain(|number, _| is_kept(*number));
        self.jobs.clear();
        for (job, stored) in backup.0 {
            self.put_job(job, JobObject::clone(&stored.object));
        }
    }
}
