//! Pure: the page of an IPUJob.

use ipu_api::ipujob_status::{IPUJobStatus, JobCondition, JobState};
use ipu_api::naming;
use ipu_api::queueing::QUEUE_LABEL;
use jiff::Timestamp;
use kube::core::DynamicObject;
use serde_json::Value;

use super::Around;
use super::advise::{Advice, WAITING};
use crate::condition::{ShownCondition, shown};
use crate::page::{Kueue, Page};
use crate::partitions::{self, PartitionLine};
use crate::{pods, queue, warnings};

/// Condition of an IPUJob that repeats what Kueue says.
const QUOTA_RESERVED: &str = "QuotaReserved";

/// Conditions that explain a state while they are True.
const EXPLAIN_TRUE: [&str; 4] = ["Succeeded", "Failed", "Restarting", "Suspended"];

/// Conditions that explain a state while they are False.
const EXPLAIN_FALSE: [&str; 4] = [
    "PartitionsReady",
    "PodsReady",
    "TemplateCurrent",
    "PartitionsReleased",
];

/// The page of an IPUJob.
pub fn job(job: &DynamicObject, around: &Around, now: Timestamp) -> Page {
    let metadata = &job.metadata;
    let name = metadata.name.as_deref().unwrap_or_default();
    let namespace = metadata.namespace.as_deref().unwrap_or_default();
    let uid = metadata.uid.as_deref();
    let status: Option<IPUJobStatus> = job
        .data
        .get("status")
        .and_then(|status| serde_json::from_value(status.clone()).ok());
    let all = status.iter().flat_map(|status| &status.conditions);
    let conditions: Vec<ShownCondition> = all
        .filter(|one| explains(one))
        .map(ShownCondition::from)
        .collect();
    let is_about = |kind: &str, about: &str, of: Option<&str>| match kind {
        "IPUJob" => about == name && (of.is_none() || of == uid),
        "Pod" => is_pod_of(about, name),
        _ => false,
    };
    let events = around.events.allowed();
    let mut page = Page {
        object: shown(&format!("IPUJob {namespace}/{name}")),
        state: state(job, status.as_ref()),
        created: metadata.creation_timestamp.as_ref().map(|time| time.0),
        request: Some(request(&job.data)),
        message: status.as_ref().map(|status| shown(&status.last_message)),
        accounting: status.as_ref().and_then(|status| status.accounting.clone()),
        conditions,
        kueue: kueue(job, status.as_ref()),
        partitions: own(around, uid, now),
        capacity: None,
        pods: around.pods.allowed().map(|all| pods::of(all)),
        warnings: events.map_or_else(Vec::new, |all| warnings::last(all, is_about)),
        not_shown: around.not_shown(),
        advice: Vec::new(),
    };
    page.capacity = around.capacity(uid).filter(|_| waits(&page));
    page.advice = advice(&page, status.as_ref());
    page
}

/// Whether an IPUJob has ended permanently. An invalid one has not: it continues after a
/// correction.
pub fn has_ended(job: &DynamicObject) -> bool {
    let completion = job.data.pointer("/status/completionTime");
    completion.is_some_and(|time| !time.is_null())
}

/// Whether something on the page waits for a V-IPU controller.
pub(super) fn waits(page: &Page) -> bool {
    let has_reason = page.conditions.iter().any(|one| one.reason == WAITING);
    has_reason || page.partitions.iter().any(|one| one.queue.is_some())
}

/// The IPUPartitions of an owner, by slot.
pub(super) fn own(around: &Around, owner: Option<&str>, now: Timestamp) -> Vec<PartitionLine> {
    let Some((all, owner)) = around.partitions.allowed().zip(owner) else {
        return Vec::new();
    };
    let order = queue::order(&all.readable, now);
    let own = all.readable.iter();
    let own = own.filter(|one| one.spec.owner.uid == owner);
    let mut own: Vec<_> = own.map(|one| partitions::line(one, &order)).collect();
    own.sort_by_key(|one| one.slot);
    own
}

/// Whether a Pod's name is one that the operator gives to Pods of the job.
fn is_pod_of(pod: &str, job: &str) -> bool {
    let worker = pod.strip_prefix(job);
    let worker = worker.and_then(|rest| rest.strip_prefix("-worker-"));
    let is_index = |index: &str| index.bytes().all(|byte| byte.is_ascii_digit());
    pod == naming::launcher(job) || worker.is_some_and(is_index)
}

fn explains(condition: &JobCondition) -> bool {
    let of = match condition.status.as_str() {
        "True" => EXPLAIN_TRUE,
        "False" => EXPLAIN_FALSE,
        _ => return false,
    };
    of.contains(&condition.type_.as_str())
}

fn state(job: &DynamicObject, status: Option<&IPUJobStatus>) -> String {
    let state = match status {
        Some(status) => format!("{:?}", status.launcher_status),
        None => "not seen by the operator yet".to_owned(),
    };
    if job.metadata.deletion_timestamp.is_some() {
        format!("{state}, being deleted")
    } else {
        state
    }
}

fn request(job: &Value) -> String {
    let number = |field: &str| {
        let value = job.get("spec").and_then(|spec| spec.get(field));
        match value {
            Some(Value::String(text)) => shown(text),
            Some(value) => shown(&value.to_string()),
            None => "?".to_owned(),
        }
    };
    let instances = number("jobInstances");
    let noun = if instances == "1" {
        "instance"
    } else {
        "instances"
    };
    format!(
        "{instances} {noun} of {} IPUs",
        number("ipusPerJobInstance")
    )
}

fn kueue(job: &DynamicObject, status: Option<&IPUJobStatus>) -> Option<Kueue> {
    let labels = job.metadata.labels.as_ref()?;
    let queue = labels.get(QUEUE_LABEL).filter(|queue| !queue.is_empty())?;
    let mut conditions = status.iter().flat_map(|status| &status.conditions);
    let quota = conditions.find(|one| one.type_ == QUOTA_RESERVED);
    Some(Kueue {
        queue: shown(queue),
        quota: quota.map(ShownCondition::from),
    })
}

fn advice(page: &Page, status: Option<&IPUJobStatus>) -> Vec<String> {
    let mut advice = Advice::default();
    let Some(status) = status else {
        advice.add(
            "no controller has looked at the IPUJob yet: ask an admin whether the operator runs, and whether it serves \
             this namespace",
        );
        return advice.or("");
    };
    let state = status.launcher_status;
    if let Some(kueue) = page.kueue.as_ref().filter(|_| state == JobState::Suspended) {
        advice.add(format!(
            "Kueue decides when the job starts: wait, or ask the admin of the queue {}; do not change spec.suspend, which \
             Kueue changes back",
            kueue.queue
        ));
    }
    advice.add_all(page);
    advice.or(match state {
        JobState::Running => "nothing: the job runs",
        JobState::Completed => "nothing: the job has completed",
        JobState::Failed => "read the message above",
        JobState::Pending | JobState::Suspended => "wait; the next page shows the progress",
    })
}
