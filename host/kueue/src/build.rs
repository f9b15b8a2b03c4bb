//! Pure: the Workload of a job, and the patches of both.

use std::collections::BTreeMap;

use ipu_api::API_VERSION;
use ipu_api::condition;
use ipu_api::ipujob_status::{JobAdmission, JobCondition, JobState, PodSetUpdate};
use ipu_api::labels;
use ipu_api::naming;
use ipu_api::queueing::{
    ADMISSION_GATED_BY_ANNOTATION, GROUP, RESOURCE_IN_USE_FINALIZER, VERSION,
    WORKLOAD_JOB_UID_LABEL,
};
use ipu_jobs::raw::RawJob;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::{Value, json};

use crate::job::QueuedJob;
use crate::objects::{
    ADMITTED, EVICTED, FINISHED, PARTITION_RETRY, PODS_READY, QUOTA_RESERVED, REQUEUED, Workload,
};

/// Longest message of a condition of a Workload, in bytes. Kueue accepts 32,768.
const MESSAGE_MAX: usize = 1_024;

/// Reasons of an eviction after which a Workload is in the queue again at once. After the others,
/// Kueue requeues it.
const REQUEUED_AT_ONCE: [&str; 2] = ["Preempted", "NodeFailures"];

/// Reason of the eviction of a deactivated Workload, and the start of that reason with its cause.
const DEACTIVATED: &str = "Deactivated";

/// The priority of a Workload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Priority {
    /// Its class, as `spec.priorityClassRef`.
    pub class: Option<Value>,
    /// Its value.
    pub value: i32,
}

/// Builds the Workload of a job.
pub fn workload(job: &QueuedJob, priority: &Priority) -> Value {
    let reference = &job.reference;
    let annotations = gated_by(job);
    json!({
        "apiVersion": format!("{GROUP}/{VERSION}"),
        "kind": "Workload",
        "metadata": {
            "name": naming::workload(&reference.name, &reference.uid),
            "namespace": reference.namespace,
            "labels": {
                WORKLOAD_JOB_UID_LABEL: reference.uid,
                labels::MANAGED_BY_LABEL: labels::MANAGED_BY,
            },
            "annotations": annotations,
            "finalizers": [RESOURCE_IN_USE_FINALIZER],
            "ownerReferences": [owner(job)],
        },
        "spec": {
            "podSets": job.pod_sets,
            "queueName": job.queue,
            "priority": priority.value,
            "priorityClassRef": priority.class,
            "maximumExecutionTimeSeconds": job.max_execution_seconds,
        },
    })
}

fn owner(job: &QueuedJob) -> Value {
    let reference = &job.reference;
    json!({
        "apiVersion": API_VERSION, "kind": "IPUJob", "name": reference.name, "uid": reference.uid,
        "controller": true, "blockOwnerDeletion": true,
    })
}

fn gated_by(job: &QueuedJob) -> BTreeMap<&str, &str> {
    let gated_by = job.gated_by.as_deref();
    gated_by
        .map(|gates| (ADMISSION_GATED_BY_ANNOTATION, gates))
        .into_iter()
        .collect()
}

/// The merge patch that makes a job the owner of a Workload.
pub fn adoption(job: &QueuedJob, workload: &Workload) -> Value {
    let owners = workload.metadata.owner_references.iter().flatten();
    let owners: Vec<Value> = owners
        .map(|owner| json!(owner))
        .chain([owner(job)])
        .collect();
    let patch = json!({
        "ownerReferences": owners,
        "labels": {WORKLOAD_JOB_UID_LABEL: job.reference.uid},
    });
    json!({"metadata": with_version(workload, patch)})
}

/// The merge patch of a spec.
pub fn spec(workload: &Workload, fields: &Value) -> Value {
    json!({"metadata": with_version(workload, json!({})), "spec": fields})
}

/// The merge patch of the annotation that gates the admission.
pub fn gates(job: &QueuedJob, workload: &Workload) -> Value {
    let patch = json!({"annotations": {ADMISSION_GATED_BY_ANNOTATION: job.gated_by}});
    json!({"metadata": with_version(workload, patch)})
}

/// The merge patch that removes the finalizer of the operator's quota.
pub fn without_finalizer(workload: &Workload) -> Value {
    let finalizers = workload.metadata.finalizers.iter().flatten();
    let left: Vec<&String> = finalizers
        .filter(|one| *one != RESOURCE_IN_USE_FINALIZER)
        .collect();
    json!({"metadata": with_version(workload, json!({"finalizers": left}))})
}

/// The merge patch of a status.
pub fn status(workload: &Workload, fields: &Value) -> Value {
    json!({"metadata": with_version(workload, json!({})), "status": fields})
}

/// The fields of the status of a finished Workload.
pub fn finished(workload: &Workload, reason: &str, message: &str, now: Timestamp) -> Value {
    json!({"conditions": conditions(workload, &[(FINISHED, true, reason, message)], now)})
}

/// The fields of the status with the condition `PodsReady`.
pub fn pods_ready(workload: &Workload, is_ready: bool, reason: &str, now: Timestamp) -> Value {
    let message = match (is_ready, reason) {
        (true, _) => "All pods reached readiness and the workload is running",
        (false, "WaitForRecovery") => "At least one pod has failed, waiting for recovery",
        (false, _) => "Not all pods are ready or succeeded",
    };
    json!({"conditions": conditions(workload, &[(PODS_READY, is_ready, reason, message)], now)})
}

/// The fields of the status of an evicted Workload whose quota is released. After the retry of a
/// check, the operator requeues it.
pub fn released(workload: &Workload, is_retry: bool, now: Timestamp) -> Value {
    let evicted = workload.condition(EVICTED, "True");
    let (reason, message) = evicted.map_or(("Evicted", ""), |one| (&*one.reason, &*one.message));
    let is_requeued = REQUEUED_AT_ONCE.contains(&reason);
    let reason = match reason {
        _ if is_retry => PARTITION_RETRY,
        // The reason may contain a cause. Then Kueue would not requeue the Workload when a user
        // activates it.
        deactivated if deactivated.starts_with(DEACTIVATED) => DEACTIVATED,
        other => other,
    };
    let mut set = vec![
        (REQUEUED, is_requeued, reason, message),
        (QUOTA_RESERVED, false, "Pending", message),
    ];
    let mut fields = json!({"admission": null});
    if let Some(admitted) = workload.condition(ADMITTED, "True") {
        let text = "The workload has no reservation";
        set.push((ADMITTED, false, "NoReservation", text));
        let before = workload.status.as_ref();
        let before = before.and_then(|status| status.accumulated_past_execution_time_seconds);
        let seconds = now
            .duration_since(admitted.last_transition_time.0)
            .as_secs();
        let seconds = i64::from(before.unwrap_or(0)).saturating_add(seconds.max(0));
        fields["accumulatedPastExecutionTimeSeconds"] =
            json!(i32::try_from(seconds).unwrap_or(i32::MAX));
    }
    fields["conditions"] = json!(conditions(workload, &set, now));
    fields
}

/// The fields of the status of a Workload that is evicted because the Pods of its job could not
/// start. With this reason, Kueue requeues it behind those that wait already.
pub fn evicted(workload: &Workload, reason: &str, now: Timestamp) -> Value {
    let evicted = (EVICTED, true, "PodsReadyTimeout", reason);
    json!({"conditions": conditions(workload, &[evicted], now)})
}

/// The fields of the status of a Workload that is in the queue again.
pub fn requeued(workload: &Workload, now: Timestamp) -> Value {
    let message = "the delay of the admission check is over";
    let requeued = (REQUEUED, true, "BackoffFinished", message);
    json!({"conditions": conditions(workload, &[requeued], now)})
}

/// The admission that starts a job. The partitions that a check waited for stay.
pub fn started(job: &QueuedJob, updates: &[PodSetUpdate]) -> JobAdmission {
    let reserved = job.admission.as_ref();
    JobAdmission {
        pod_sets: updates.to_vec(),
        reserve_partitions: reserved.is_some_and(|admission| admission.reserve_partitions),
    }
}

/// The admission that creates the partitions of a suspended job.
pub fn reserved(updates: &[PodSetUpdate]) -> JobAdmission {
    JobAdmission {
        pod_sets: updates.to_vec(),
        reserve_partitions: true,
    }
}

/// The merge patch of the status of a job that it is admitted.
pub fn admission(job: &QueuedJob, admission: &JobAdmission) -> Value {
    job_status(job, json!({"admission": admission}))
}

/// The merge patch of the status of a job that is stopped. From then on its controller creates
/// nothing for it, even if a user resumes it at once: a job without an admission continues only if
/// its status does not say that it is suspended. Its conditions and its accounting stay: by them,
/// its controller counts what the job did until then.
pub fn stopped(job: &QueuedJob) -> Value {
    let state = JobState::Suspended;
    job_status(job, json!({"admission": null, "launcherStatus": state}))
}

/// The merge patch of fields in the status of a job. The CRD requires two more fields: the patch
/// has them until the controller of the job has written them.
pub fn job_status(job: &QueuedJob, mut fields: Value) -> Value {
    if !job.is_observed {
        fields["desiredReplicas"] = json!(job.instances);
        fields["lastMessage"] = json!("");
    }
    json!({
        "metadata": {"uid": job.reference.uid, "resourceVersion": job.resource_version},
        "status": fields,
    })
}

/// Whether a job that was written has an admission. The API server drops the field without an error
/// if the CRD is that of an earlier version.
pub fn has_admission(written: &RawJob) -> bool {
    let admission = written.status.get("admission");
    admission.is_some_and(|admission| !admission.is_null())
}

/// The conditions of a job without that of its quota.
pub fn without_quota(job: &QueuedJob) -> Vec<JobCondition> {
    let conditions = job.conditions.iter();
    let others = conditions.filter(|condition| condition.type_ != QUOTA_RESERVED);
    others.cloned().collect()
}

/// The merge patch that suspends a job or resumes it, if it still has this version. `None`:
/// whatever its version is.
pub fn suspension(job: &QueuedJob, is_suspended: bool, version: Option<&str>) -> Value {
    let mut metadata = json!({"uid": job.reference.uid});
    if let Some(version) = version {
        metadata["resourceVersion"] = json!(version);
    }
    json!({"metadata": metadata, "spec": {"suspend": is_suspended}})
}

fn with_version(workload: &Workload, mut metadata: Value) -> Value {
    metadata["uid"] = json!(workload.metadata.uid);
    metadata["resourceVersion"] = json!(workload.metadata.resource_version);
    metadata
}

/// The conditions of a Workload once these are set.
fn conditions(
    workload: &Workload,
    set: &[(&str, bool, &str, &str)],
    now: Timestamp,
) -> Vec<Condition> {
    let status = workload.status.as_ref();
    let mut conditions = status.map_or_else(Vec::new, |status| status.conditions.clone());
    for &(type_, is_true, reason, message) in set {
        let message = message[..message.floor_char_boundary(MESSAGE_MAX)].to_owned();
        let renewed = condition::renewed(&conditions, type_, is_true, (reason, message), now);
        let new = Condition {
            observed_generation: workload.metadata.generation,
            ..renewed
        };
        condition::put(&mut conditions, new);
    }
    conditions
}

#[cfg(test)]
mod tests;
