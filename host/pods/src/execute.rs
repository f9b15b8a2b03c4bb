//! Carries out the steps of native Pods on the API server, and reads their nodes.

use std::time::Instant;

use ipu_api::dns1123::can_exist;
use ipu_api::ipupartition::IPUPartition;
use ipu_api::object_ref::ObjectRef;
use ipu_runtime::clock;
use ipu_runtime::lost_node::lost_since;
use ipu_runtime::pod_start::node_report;
use ipu_runtime::requests;
use ipu_runtime::work_queue::StepError;
use ipu_text::explain;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod, PodCondition};
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use thiserror::Error;

use super::Context;
use super::build;
use super::observed::ObservedPod;
use super::partition::{Partition, PartitionRef, State};
use super::plan::Step;
use super::pod::NativePod;
use super::report::{self, Disruption, Report};

/// Field manager of the condition: another one than that of the gate, so that neither apply removes
/// fields of the other.
const STATUS_MANAGER: &str = "ipu-operator-pods";

/// Field manager of the condition of an eviction, for the same reason.
const DISRUPTION_MANAGER: &str = "ipu-operator-evictions";

/// A request that did not succeed.
#[derive(Debug, Error)]
#[error("failed to {action}")]
pub(super) struct RequestError {
    action: &'static str,
    #[source]
    source: kube::Error,
}

impl RequestError {
    /// Whether the API server does not accept the object as it is.
    fn is_refusal(&self) -> bool {
        matches!(&self.source, kube::Error::Api(status) if [400, 403, 422].contains(&status.code))
    }
}

impl StepError for RequestError {
    fn category(&self) -> &'static str {
        "Write"
    }

    fn is_stale(&self) -> bool {
        matches!(&self.source, kube::Error::Api(status) if status.code == 409)
    }
}

/// Names what failed.
fn failed_to(action: &'static str) -> impl Fn(kube::Error) -> RequestError {
    move |source| RequestError { action, source }
}

/// Applies a step. Returns the content of the condition if the API server refuses the step.
pub(super) async fn step(
    context: &Context,
    seen: &ObservedPod,
    step: Step,
) -> Result<Option<Report>, RequestError> {
    let done = match step {
        Step::Create(ipus) => create(context, &seen.pod, ipus).await,
        Step::Claim(partition) => claim(context, &seen.pod.reference, &partition).await,
        Step::Bind(partition_ref) => bind(context, &seen.pod, &partition_ref).await,
        Step::Release(partition) => release(context, &partition).await,
        Step::Evict(disruption) => evict(context, &seen.pod.reference, &disruption).await,
        Step::ForceDelete => {
            let pod = &seen.pod.reference;
            delete_pod(context, pod, of_uid(&pod.uid).grace_period(0)).await
        }
    };
    let Err(error) = done else {
        return Ok(None);
    };
    if !error.is_refusal() {
        return Err(error);
    }
    let why = explain(&error);
    tracing::warn!(pod = %seen.pod.reference, "the API server refuses what a Pod needs: {why}");
    Ok(Some(report::refused(&why)))
}

/// Creates the IPUPartition of a Pod. One that exists already was created a moment ago: its name
/// contains a hash of the Pod's UID.
async fn create(context: &Context, pod: &NativePod, ipus: u32) -> Result<(), RequestError> {
    let partitions: Api<IPUPartition> = Api::all(context.client.clone());
    let wanted = build::partition(pod, ipus);
    match partitions.create(&requests::post(), &wanted).await {
        Ok(created) => context.observed.expect_partition(created, Instant::now()),
        Err(kube::Error::Api(status)) if status.is_already_exists() => {
            let name = wanted.metadata.name.unwrap_or_default();
            let found = partitions.get_opt(&name).await;
            let found = found.map_err(failed_to("read the IPUPartition of the Pod"))?;
            if let Some(found) = found {
                context.observed.expect_partition(found, Instant::now());
            }
        }
        Err(source) => return Err(failed_to("create the IPUPartition of the Pod")(source)),
    }
    Ok(())
}

/// Claims an IPUPartition of the Pod's Workload. Where another Pod was faster, the next reconcile
/// chooses another one.
async fn claim(
    context: &Context,
    pod: &ObjectRef,
    partition: &Partition,
) -> Result<(), RequestError> {
    let partitions: Api<IPUPartition> = Api::all(context.client.clone());
    let patch = Patch::Merge(build::claim(pod, partition, clock::now()));
    let sent = partitions
        .patch(&partition.name, &requests::patch(), &patch)
        .await;
    let claimed = sent.map_err(failed_to("claim an IPUPartition of the Workload"))?;
    context.observed.expect_partition(claimed, Instant::now());
    Ok(())
}

/// Gives a Pod its partition and removes its gate, in one patch.
async fn bind(
    context: &Context,
    pod: &NativePod,
    partition_ref: &PartitionRef,
) -> Result<(), RequestError> {
    let patch = Patch::Merge(build::binding(pod, partition_ref));
    let name = &pod.reference.name;
    let sent = pods(context, &pod.reference)
        .patch(name, &requests::patch(), &patch)
        .await;
    record_write(context, sent, "remove the scheduling gate of the Pod")
}

/// Writes the condition of a Pod.
pub(super) async fn set_condition(
    context: &Context,
    pod: &ObjectRef,
    condition: &PodCondition,
) -> Result<(), RequestError> {
    apply_condition(context, pod, condition, STATUS_MANAGER).await
}

async fn apply_condition(
    context: &Context,
    pod: &ObjectRef,
    condition: &PodCondition,
    manager: &str,
) -> Result<(), RequestError> {
    let parameters = PatchParams::apply(manager).force();
    let patch = Patch::Apply(build::status(pod, condition));
    let sent = pods(context, pod)
        .patch_status(&pod.name, &parameters, &patch)
        .await;
    record_write(context, sent, "write the condition of the Pod")
}

/// Expects the written Pod in the cache. A Pod that is gone no longer needs the write.
fn record_write(
    context: &Context,
    sent: Result<Pod, kube::Error>,
    action: &'static str,
) -> Result<(), RequestError> {
    match sent {
        Ok(pod) => context.observed.expect_pod(&pod, Instant::now()),
        Err(kube::Error::Api(status)) if status.code == 404 => {}
        Err(source) => return Err(failed_to(action)(source)),
    }
    Ok(())
}

/// Deletes an IPUPartition. The ledger keeps it until no live Pod uses it.
async fn release(context: &Context, partition: &Partition) -> Result<(), RequestError> {
    let partitions: Api<IPUPartition> = Api::all(context.client.clone());
    let deleted = partitions
        .delete(&partition.name, &of_uid(&partition.uid))
        .await;
    match deleted {
        Ok(deleted) => {
            if let Some(left) = deleted.left() {
                context.observed.expect_partition(left, Instant::now());
            }
            Ok(())
        }
        Err(error) => unless_gone(error, "delete the IPUPartition of the Pod"),
    }
}

/// Evicts a Pod, regardless of disruption budgets: they protect Pods that work, and this one
/// cannot. Its owner finds the condition of an eviction.
async fn evict(
    context: &Context,
    pod: &ObjectRef,
    disruption: &Disruption,
) -> Result<(), RequestError> {
    let condition = build::disruption(disruption, clock::now());
    apply_condition(context, pod, &condition, DISRUPTION_MANAGER).await?;
    delete_pod(context, pod, of_uid(&pod.uid)).await
}

async fn delete_pod(
    context: &Context,
    pod: &ObjectRef,
    parameters: DeleteParams,
) -> Result<(), RequestError> {
    match pods(context, pod).delete(&pod.name, &parameters).await {
        Ok(deleted) => {
            if let Some(left) = deleted.left() {
                context.observed.expect_pod(&left, Instant::now());
            }
            Ok(())
        }
        Err(error) => unless_gone(error, "delete the Pod"),
    }
}

/// Reads the events of a Pod whose status does not show why it has not started.
pub(super) async fn with_events(
    context: &Context,
    mut seen: Box<ObservedPod>,
    now: Timestamp,
) -> Box<ObservedPod> {
    let pod = &mut seen.pod;
    if pod.partition_id.is_some() && pod.termination.is_none() && pod.start.needs_report(now) {
        let (namespace, uid) = (&pod.reference.namespace, &pod.reference.uid);
        let report = node_report::read(&context.client, namespace, uid).await;
        pod.start = std::mem::take(&mut pod.start).with_report(report);
    }
    seen
}

/// Reads the time since which the node of a Pod is unreachable, if it has been for long. Only a Pod
/// whose grace period is over asks for it.
pub(super) async fn node_lost_since(
    context: &Context,
    pod: &NativePod,
    now: Timestamp,
) -> Result<Option<Timestamp>, RequestError> {
    let termination = pod.termination.as_ref();
    let node = termination.and_then(|termination| termination.overdue_node(now));
    let (Some(node), Some(timeout)) = (node, context.settings.lost_node) else {
        return Ok(None);
    };
    let nodes: Api<Node> = Api::all(context.client.clone());
    let found = nodes.get_opt(node).await;
    let found = found.map_err(failed_to("read the Node of the Pod"))?;
    Ok(found.and_then(|node| lost_since(&node, timeout, now)))
}

/// Releases the IPUPartition of a Pod that the watch does not show. It shows no Pod from which a
/// client removed the label, so the Pod is read from the API server. Returns whether nothing is
/// left to do.
pub(super) async fn release_of_gone(
    context: &Context,
    pod: &ObjectRef,
    partition: &Partition,
) -> Result<bool, RequestError> {
    if matches!(partition.state, State::Releasing(_)) {
        return Ok(true);
    }
    if can_exist(&partition.owner) {
        let found = pods(context, pod).get_opt(&pod.name).await;
        let found = found.map_err(failed_to("read the Pod"))?;
        let is_there = found.is_some_and(|found| {
            let status = found.status.unwrap_or_default();
            let has_ended = matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"));
            found.metadata.uid.as_deref() == Some(&*pod.uid) && !has_ended
        });
        if is_there {
            return Ok(false);
        }
    }
    release(context, partition).await?;
    Ok(true)
}

fn unless_gone(error: kube::Error, action: &'static str) -> Result<(), RequestError> {
    match error {
        // Another object of the same name is another's.
        kube::Error::Api(status) if [404, 409].contains(&status.code) => Ok(()),
        source => Err(failed_to(action)(source)),
    }
}

fn of_uid(uid: &str) -> DeleteParams {
    requests::delete(Some(uid.to_owned()), None)
}

fn pods(context: &Context, pod: &ObjectRef) -> Api<Pod> {
    Api::namespaced(context.client.clone(), &pod.namespace)
}
