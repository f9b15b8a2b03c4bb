//! Pure: what decisions read of an IPUJob that waits in a queue of Kueue.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ipu_api::ipujob_status::{IPUJobStatus, JobAdmission, JobCondition, JobState, PodSetUpdate};
use ipu_api::object_ref::ObjectRef;
use ipu_api::queueing::{
    self, ADMISSION_GATED_BY_ANNOTATION, MAX_EXECUTION_TIME_LABEL, MULTIKUEUE, PREBUILT_WORKLOAD,
    PRIORITY_CLASS_LABEL, QUEUE_LABEL,
};
use ipu_api::{API_VERSION, ipujob};
use ipu_jobs::build::PodSettings;
use ipu_jobs::job_conditions::{
    self, CONTAINERS_WAITING, PODS_READY, RUNNING, Recorded, WORKER_FAILED,
};
use ipu_jobs::raw::RawJob;
use ipu_jobs::status;
use ipu_jobs::validate::{self, Suspension, ValidJob};
use serde_json::Value;

use crate::objects::PodSet;
use crate::pod_sets;

/// End of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// Whether it succeeded.
    pub has_succeeded: bool,
    /// Its last message.
    pub message: String,
}

/// An IPUJob that waits in a queue, was admitted, or has left its queue.
#[derive(Clone, Debug, PartialEq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own, and any of them may hold together"
)]
pub struct QueuedJob {
    /// Its names.
    pub reference: Arc<ObjectRef>,
    /// The version of the object, for preconditions.
    pub resource_version: String,
    /// Its LocalQueue. `None`: it has left its queue.
    pub queue: Option<String>,
    /// Its WorkloadPriorityClass.
    pub priority_class: Option<String>,
    /// The Workload that exists already.
    pub prebuilt: Option<String>,
    /// Seconds after its admission at which Kueue deactivates it.
    pub max_execution_seconds: Option<i32>,
    /// Controllers without which Kueue does not admit it.
    pub gated_by: Option<String>,
    /// Its Pods as Kueue counts them.
    pub pod_sets: Vec<PodSet>,
    /// Number of its instances.
    pub instances: u32,
    /// Workers of each instance.
    pub workers: u32,
    /// Its instances that have ended while others run.
    pub ended: BTreeSet<u32>,
    /// Whether it is suspended.
    pub suspension: Suspension,
    /// The admission in its status.
    pub admission: Option<JobAdmission>,
    /// Whether it runs on another cluster, so that this one has neither Pods nor partitions of it.
    pub is_elsewhere: bool,
    /// Whether its controller has written a status.
    pub is_observed: bool,
    /// Whether its status shows that its Pods may have used a partition, and that it was not
    /// suspended since.
    pub has_started: bool,
    /// Whether its controller has observed that it is suspended, and has ended its work.
    pub has_settled: bool,
    /// Whether it runs, and no Pod is known not to start.
    pub is_running: bool,
    /// The reason for which its Pods could not start, if its partitions are being released because
    /// of that.
    pub start_failure: Option<String>,
    /// Its end.
    pub end: Option<End>,
    /// Its conditions.
    pub conditions: Vec<JobCondition>,
}

impl QueuedJob {
    /// Reads a job. `None`: it is in no queue, or its spec is unreadable.
    pub fn of(job: &RawJob, settings: &PodSettings) -> Option<Self> {
        let object = job.as_json();
        if !queueing::is_queued(&object) || job.metadata.deletion_timestamp.is_some() {
            return None;
        }
        let mut valid = validate::read(&object, u32::MAX).ok()?;
        // Kueue counts the Pods as the user describes them.
        valid.pod_set_updates.clear();
        let (labels, annotations) = (&valid.labels, &valid.annotations);
        let prebuilt = labels
            .get(PREBUILT_WORKLOAD)
            .or(annotations.get(PREBUILT_WORKLOAD));
        let max_execution = labels.get(MAX_EXECUTION_TIME_LABEL);
        Some(Self {
            queue: Some(labels.get(QUEUE_LABEL).cloned()?),
            priority_class: labels.get(PRIORITY_CLASS_LABEL).cloned(),
            prebuilt: prebuilt.cloned(),
            max_execution_seconds: max_execution.and_then(|seconds| seconds.parse().ok()),
            gated_by: annotations.get(ADMISSION_GATED_BY_ANNOTATION).cloned(),
            pod_sets: pod_sets::pod_sets(&valid, settings),
            ..Self::without_queue(job, &object, Some(&valid))?
        })
    }

    /// Reads a job that is not deleted and has left its queue. `None`: it is in its queue, or it
    /// belongs to another controller, whose Workloads are not the operator's.
    pub fn unqueued(job: &RawJob) -> Option<Self> {
        let object = job.as_json();
        let is_elsewhere = ipujob::is_managed_by_another(&object);
        let manager = job.spec.get("managedBy").and_then(Value::as_str);
        let is_of_others = is_elsewhere && manager != Some(MULTIKUEUE);
        let valid = validate::read(&object, u32::MAX).ok();
        let is_in_queue = queueing::is_queued(&object) && valid.is_some();
        if is_of_others || is_in_queue || job.metadata.deletion_timestamp.is_some() {
            return None;
        }
        Self::without_queue(job, &object, valid.as_ref())
    }

    /// Reads what a job has without its queue. An unreadable job has no size, and is not suspended
    /// by its admission.
    fn without_queue(job: &RawJob, object: &Value, valid: Option<&ValidJob>) -> Option<Self> {
        let status = validate::decode_status(object);
        let is_elsewhere = ipujob::is_managed_by_another(object);
        let suspends = job.spec.get("suspend").and_then(Value::as_bool) == Some(true);
        let unread = if suspends {
            Suspension::Suspended
        } else {
            Suspension::Active
        };
        Some(Self {
            reference: Arc::new(ObjectRef::of(&job.metadata)?),
            resource_version: job.metadata.resource_version.clone().unwrap_or_default(),
            queue: None,
            priority_class: None,
            prebuilt: None,
            max_execution_seconds: None,
            gated_by: None,
            pod_sets: Vec::new(),
            instances: valid.map_or(0, |valid| valid.instances),
            workers: valid.map_or(0, |valid| valid.size.workers),
            ended: ended(&status),
            suspension: valid.map_or(unread, |valid| valid.suspension),
            admission: validate::admission(object),
            is_elsewhere,
            is_observed: status.observed_generation.is_some(),
            has_started: !is_elsewhere && status::has_started(&status),
            has_settled: has_settled(job, valid, &status),
            is_running: is_running(&status),
            start_failure: start_failure(&status),
            end: end(&status),
            conditions: status.conditions,
        })
    }

    /// Whether something must be taken back before the job is stopped.
    pub fn is_started(&self) -> bool {
        self.suspension != Suspension::Suspended || self.admission.is_some()
    }

    /// Whether it runs without an admission: an earlier version of the operator, which knew no
    /// queues, has started it or has dropped the admission from its status, or it got the label of
    /// its queue while it ran.
    pub fn runs_unadmitted(&self) -> bool {
        self.suspension == Suspension::Active
            && self.admission.is_none()
            && self.has_started
            && self.end.is_none()
    }

    /// Whether its status has an admission with these updates.
    pub fn is_admitted_with(&self, updates: &[PodSetUpdate]) -> bool {
        let admission = self.admission.as_ref();
        admission.is_some_and(|admission| admission.pod_sets == *updates)
    }

    /// Whether it has no Pods.
    pub fn is_suspended(&self) -> bool {
        self.suspension != Suspension::Active
    }
}

/// The names of a job, from the owner reference of its Workload.
pub fn controlling_job(metadata: &kube::api::ObjectMeta) -> Option<ObjectRef> {
    let mut owners = metadata.owner_references.iter().flatten();
    let owner = owners.find(|owner| {
        owner.controller == Some(true) && owner.kind == "IPUJob" && owner.api_version == API_VERSION
    })?;
    Some(ObjectRef {
        namespace: metadata.namespace.as_deref()?.into(),
        name: owner.name.as_str().into(),
        uid: owner.uid.as_str().into(),
    })
}

/// Whether the status shows the suspension of this generation. That of an unreadable job shows its
/// failure instead.
fn has_settled(job: &RawJob, valid: Option<&ValidJob>, status: &IPUJobStatus) -> bool {
    let is_suspended = valid.is_none() || status.launcher_status == JobState::Suspended;
    status.observed_generation == job.metadata.generation && is_suspended
}

/// Whether the job runs. A job without a launcher runs in its status while its Pods cannot start,
/// as in Graphcore's operator. A worker that fails while others run does not stop it, and neither
/// does a container beside the main one.
fn is_running(status: &IPUJobStatus) -> bool {
    let mut conditions = status.conditions.iter();
    let waits = conditions.any(|condition| {
        let reason = condition.reason.as_str();
        condition.type_ == PODS_READY
            && condition.status == "False"
            && ![CONTAINERS_WAITING, WORKER_FAILED].contains(&reason)
    });
    job_conditions::is_condition_true(status, RUNNING) && !waits
}

fn start_failure(status: &IPUJobStatus) -> Option<String> {
    let starts = status.run.iter().flat_map(|run| run.starts.values());
    let mut releasing = starts.filter(|start| start.releasing);
    releasing.next().map(|start| start.message.clone())
}

fn ended(status: &IPUJobStatus) -> BTreeSet<u32> {
    let run = status.run.as_ref();
    let ended: Option<&BTreeMap<String, _>> = run.map(|run| &run.ended);
    let keys = ended.into_iter().flat_map(BTreeMap::keys);
    keys.filter_map(|key| key.parse().ok()).collect()
}

fn end(status: &IPUJobStatus) -> Option<End> {
    let has_succeeded = match job_conditions::recorded_end(status)? {
        Recorded::Completed => true,
        Recorded::Failed => false,
    };
    Some(End {
        has_succeeded,
        message: status.last_message.clone(),
    })
}
