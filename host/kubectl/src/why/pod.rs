//! Pure: the page of a Pod that requests IPUs.

use ipu_api::labels;
use ipu_api::pod_request::PodRequest;
use ipu_api::queueing::QUEUE_LABEL;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::Around;
use super::advise::Advice;
use super::job::{own, waits};
use crate::advice::of_reason;
use crate::condition::{ShownCondition, shown};
use crate::page::{Kueue, Page};
use crate::partitions::{self, PartitionLine};
use crate::{pods, queue, warnings};

/// The page of a Pod. `around.pods` is not used.
pub fn pod(pod: &Pod, around: &Around, now: Timestamp) -> Page {
    let metadata = &pod.metadata;
    let name = metadata.name.as_deref().unwrap_or_default();
    let namespace = metadata.namespace.as_deref().unwrap_or_default();
    let uid = metadata.uid.as_deref();
    let is_about = |kind: &str, about: &str, of: Option<&str>| {
        kind == "Pod" && about == name && (of.is_none() || of == uid)
    };
    let events = around.events.allowed();
    let cause = pods::cause(pod);
    let message = cause.as_ref().map(|cause| match &cause.message {
        Some(message) => format!("{}: {message}", cause.reason),
        None => cause.reason.clone(),
    });
    let mut page = Page {
        object: shown(&format!("Pod {namespace}/{name}")),
        state: pods::phase(pod),
        created: metadata.creation_timestamp.as_ref().map(|time| time.0),
        request: request(pod),
        message,
        accounting: None,
        conditions: conditions(pod),
        kueue: label(metadata, QUEUE_LABEL).map(|queue| Kueue { queue, quota: None }),
        partitions: partitions(pod, around, now),
        capacity: None,
        pods: None,
        warnings: events.map_or_else(Vec::new, |all| warnings::last(all, is_about)),
        not_shown: around.not_shown(),
        advice: Vec::new(),
    };
    page.capacity = around.capacity(uid).filter(|_| waits(&page));
    let mut advice = Advice::default();
    match label(metadata, labels::JOB_NAME_LABEL) {
        Some(job) => advice.add(format!(
            "the Pod belongs to the IPUJob {job}: kubectl ipu why {job} --namespace {namespace} shows its partitions"
        )),
        None if page.request.is_none() => advice.add(format!(
            "the Pod requests no IPUs: set the annotation or the limit {} of its template, and create it again",
            labels::IPU_RESOURCE
        )),
        None => {}
    }
    advice.add_all(&page);
    if let Some(cause) = &cause
        && let Some(what) = of_reason(&cause.reason)
    {
        advice.add(format!("{}: {what}", cause.reason));
    }
    page.advice = advice.or(match page.state.as_str() {
        "Running" => "nothing: the Pod runs",
        "Succeeded" => "nothing: the Pod has succeeded",
        _ => "wait; the next page shows the progress",
    });
    page
}

/// Whether a Pod has ended.
pub fn has_ended(pod: &Pod) -> bool {
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

fn label(metadata: &ObjectMeta, key: &str) -> Option<String> {
    let value = metadata.labels.as_ref()?.get(key)?;
    Some(shown(value)).filter(|value| !value.is_empty())
}

fn request(pod: &Pod) -> Option<String> {
    match PodRequest::of_pod(pod) {
        Ok(None) => None,
        Ok(Some(PodRequest::New(new))) => Some(format!("{} IPUs", new.ipus)),
        Ok(Some(PodRequest::Existing(one))) => {
            Some(format!("GCD {} of the IPUPartition {}", one.gcd, one.name))
        }
        Err(error) => Some(format!("IPUs, but {}", shown(&error.to_string()))),
    }
}

/// The condition of the operator, while it explains something.
fn conditions(pod: &Pod) -> Vec<ShownCondition> {
    let status = pod.status.iter();
    let all = status.flat_map(|status| status.conditions.iter().flatten());
    let conditions = all.map(ShownCondition::from);
    conditions
        .filter(|one| one.is(labels::PARTITION_READY_CONDITION, "False"))
        .collect()
}

/// The IPUPartition of the Pod: its own, or the one that it names.
fn partitions(pod: &Pod, around: &Around, now: Timestamp) -> Vec<PartitionLine> {
    let mut found = own(around, pod.metadata.uid.as_deref(), now);
    if let Ok(Some(PodRequest::Existing(named))) = PodRequest::of_pod(pod)
        && let Some(all) = around.partitions.allowed()
    {
        let order = queue::order(&all.readable, now);
        let is_named = |name: &Option<String>| name.as_deref() == Some(&*named.name);
        let others = all.readable.iter();
        let others = others.filter(|one| is_named(&one.metadata.name));
        found.extend(others.map(|one| partitions::line(one, &order)));
    }
    found
}
