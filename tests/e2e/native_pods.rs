//! Native Pods on real nodes: Pods of Deployments, Jobs and other owners that request IPUs without
//! an IPUJob.

mod deployment;
mod examples;
mod nodes;
mod owners;
mod queues;

use std::fmt::Debug;

use cluster::wait::{Seen, until};
use ipu_api::labels::{IPU_RESOURCE, PARTITION_ID_LABEL, PARTITION_READY_CONDITION};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{Pod, PodCondition};
use kube::api::{Api, ListParams, PostParams};
use kube::{Resource, ResourceExt};
use libtest_mimic::Failed;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::disruptions::SERVES;
use crate::failing_pods::IMAGE;
use crate::fixture::{Fixture, PATIENCE};

pub(crate) use deployment::waits_for_its_ipus;
pub(crate) use examples::examples_run;
pub(crate) use nodes::are_advertised_again;
pub(crate) use owners::replace_and_restart_pods;
pub(crate) use queues::wait_for_quota_and_partitions;

/// Creates an object in the default namespace.
pub(crate) async fn create<K>(fixture: &Fixture, object: Value) -> Result<(), Failed>
where
    K: Resource<Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned + Serialize,
    K::DynamicType: Default,
{
    let objects: Api<K> = Api::default_namespaced(fixture.operated.client.clone());
    let object: K = serde_json::from_value(object)?;
    objects.create(&PostParams::default(), &object).await?;
    Ok(())
}

/// A Pod without an owner that requests this number of IPUs and serves until it is deleted.
pub(crate) fn bare(name: &str, ipus: u32) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {"terminationGracePeriodSeconds": 1, "containers": [container(ipus, SERVES)]},
    })
}

/// A container whose limit requests this number of IPUs.
fn container(ipus: u32, command: &str) -> Value {
    json!({
        "name": "main",
        "image": IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": ["bash", "-c", command],
        "resources": {"limits": {IPU_RESOURCE: ipus.to_string()}},
    })
}

/// Returns the Pods with this label, once they satisfy a condition.
async fn once(
    fixture: &Fixture,
    label: &str,
    what: &str,
    is_so: impl Fn(&[Pod]) -> bool,
) -> Result<Vec<Pod>, Failed> {
    let pods: Api<Pod> = Api::default_namespaced(fixture.operated.client.clone());
    let selected = ListParams::default().labels(label);
    let found = until(format!("{label}: {what}"), PATIENCE, async || {
        let found = pods.list(&selected).await?.items;
        Ok::<_, kube::Error>(if is_so(&found) {
            Seen::Yes(found)
        } else {
            let states: Vec<String> = found.iter().map(state).collect();
            Seen::NotYet(states.join("; "))
        })
    });
    Ok(found.await?)
}

/// A Pod by its name.
async fn pod(fixture: &Fixture, name: &str) -> Result<Pod, Failed> {
    let pods: Api<Pod> = Api::default_namespaced(fixture.operated.client.clone());
    Ok(pods.get(name).await?)
}

/// Describes a Pod for the message of a wait that has timed out.
fn state(pod: &Pod) -> String {
    let (name, phase) = (pod.name_any(), phase(pod).unwrap_or_default());
    let condition = condition(pod);
    let said = condition.map(|one| format!("{:?} {:?}", one.reason, one.message));
    format!("{name}: {phase} {}", said.unwrap_or_default())
}

fn phase(pod: &Pod) -> Option<&str> {
    pod.status.as_ref()?.phase.as_deref()
}

fn is_running(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_none() && phase(pod) == Some("Running")
}

fn is_gated(pod: &Pod) -> bool {
    let spec = pod.spec.as_ref();
    let gates = spec.and_then(|spec| spec.scheduling_gates.as_ref());
    gates.is_some_and(|gates| !gates.is_empty())
}

/// Returns the operator's condition of a Pod.
fn condition(pod: &Pod) -> Option<&PodCondition> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let mut conditions = conditions.iter();
    conditions.find(|one| one.type_ == PARTITION_READY_CONDITION)
}

fn has_reason(pod: &Pod, reason: &str) -> bool {
    condition(pod).is_some_and(|one| one.reason.as_deref() == Some(reason))
}

/// The id of the partition of a Pod.
fn partition(pod: &Pod) -> Result<&str, Failed> {
    let id = pod.labels().get(PARTITION_ID_LABEL);
    let id = id.ok_or_else(|| format!("{} has no partition", pod.name_any()))?;
    Ok(id)
}

fn uid(pod: &Pod) -> String {
    pod.uid().unwrap_or_default()
}

/// Deletes an object and its dependents, and waits until all of them are gone.
pub(crate) async fn delete(fixture: &Fixture, object: &str) -> Result<(), Failed> {
    let delete = ["delete", object, "--cascade=foreground", "--timeout=120s"];
    fixture.kubectl(&delete).await?;
    Ok(())
}
