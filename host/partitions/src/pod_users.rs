//! Lists the live Pods that use a partition.

use ipu_api::dns1123;
use ipu_api::ipupartition::IPUPartition;
use ipu_api::labels;
use ipu_api::naming;
use ipu_runtime::api_client;
use ipu_runtime::trimmed::{Guarded, Trimmed};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};
use kube::core::DeserializeGuard;
use kube::{Client, ResourceExt};

use super::context::Context;

/// A Pod, or the metadata of a Pod that cannot be read. The latter may be live and on a node.
type ReadPod = DeserializeGuard<Pod>;

/// The Pods that use a partition could not be listed.
#[derive(Debug, thiserror::Error)]
#[error("failed to list the Pods that use partition {id}")]
pub struct ListPodsError {
    id: String,
    source: kube::Error,
}

/// The live Pods that use the partition of this IPUPartition. Pods of other namespaces do not count: otherwise every user who
/// may label a Pod there could prevent the release. Pods of Graphcore's operator have no id: every live Pod of the owner
/// uses an adopted partition.
pub(super) async fn users_of_owner(
    context: &Context,
    partition: &IPUPartition,
    id: &str,
) -> Result<Vec<String>, ListPodsError> {
    let (owner, slot) = (&partition.spec.owner, partition.spec.slot);
    // A user may have written anything, and an owner that cannot exist has no Pods.
    if !dns1123::can_exist(owner) {
        return Ok(Vec::new());
    }
    let pods = || Api::namespaced(context.client.clone(), &owner.namespace);
    let labelled = live_pods(pods(), &with_id(id), id).await?;
    let mut found: Vec<String> = labelled.iter().map(named).collect();
    if id == naming::adoptable_partition(owner, slot) {
        let unlabelled = format!("!{}", labels::PARTITION_ID_LABEL);
        let is_owned = |pod: &&ReadPod| {
            let mut owners = pod.owner_references().iter();
            owners.any(|reference| reference.uid == owner.uid)
        };
        let live = live_pods(pods(), &unlabelled, id).await?;
        found.extend(live.iter().filter(is_owned).map(named));
    }
    Ok(found)
}

/// `namespace/name` of every live Pod that may use this id, which no IPUPartition lists. The Pod may be in any namespace,
/// because another release may have created the partition. A user who may label Pods can keep such a partition, but only
/// with a Pod on a node: a Pod that waits for a node uses no partition, and gets no id without an IPUPartition.
pub(super) async fn users(client: &Client, id: &str) -> Result<Vec<String>, ListPodsError> {
    let live = live_pods(Api::all(client.clone()), &with_id(id), id).await?;
    let pods = live.iter().filter(|pod| is_on_a_node(pod));
    Ok(pods.map(named).collect())
}

fn is_on_a_node(pod: &ReadPod) -> bool {
    let Ok(pod) = &pod.0 else { return true };
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref());
    node.is_some_and(|name| !name.is_empty())
}

fn with_id(id: &str) -> String {
    format!("{}={id}", labels::PARTITION_ID_LABEL)
}

/// The live Pods with these labels that may use partition `id`, read from the API server: a cache may lack a Pod that has
/// just started.
async fn live_pods(
    pods: Api<Guarded<Pod>>,
    labels: &str,
    id: &str,
) -> Result<Vec<ReadPod>, ListPodsError> {
    let params = ListParams::default().labels(labels);
    let found = api_client::with_timeout(pods.list(&params)).await;
    let found = found.map_err(|source| ListPodsError {
        id: id.to_owned(),
        source,
    })?;
    Ok(live(found))
}

fn live(found: impl IntoIterator<Item = Guarded<Pod>>) -> Vec<ReadPod> {
    let found = found.into_iter().map(|Trimmed(pod)| pod);
    found.filter(is_live).collect()
}

fn is_live(pod: &ReadPod) -> bool {
    let Ok(pod) = &pod.0 else { return true };
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    !matches!(phase, Some("Succeeded" | "Failed"))
}

fn named(pod: &ReadPod) -> String {
    format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any())
}

#[cfg(test)]
mod tests {
    use kube::core::ObjectList;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn only_pods_on_nodes_keep_a_partition_without_an_owner() {
        for (node, expected) in [(Some("node-1"), true), (Some(""), false), (None, false)] {
            let pod: ReadPod = serde_json::from_value(json!({
                "metadata": {"name": "a", "namespace": "default"},
                "spec": {"nodeName": node, "containers": []},
            }))
            .unwrap();
            assert_eq!(is_on_a_node(&pod), expected, "{node:?}");
        }
    }

    #[test]
    fn an_odd_pod_counts_as_a_user_and_hides_no_other() {
        let pod = |name: &str, phase: &str, containers: Value| {
            let late = json!({"manager": "somebody", "time": "9999-12-31T23:59:59Z"});
            json!({
                "metadata": {"name": name, "namespace": "n", "managedFields": [late]},
                "spec": {"nodeName": "node-1", "containers": containers},
                "status": {"phase": phase},
            })
        };
        let items = [
            pod("late", "Running", json!([])),
            pod("ended", "Succeeded", json!([])),
            pod("unreadable", "Running", json!(5)),
        ];
        let list = json!({"metadata": {}, "items": items});
        let found: ObjectList<Guarded<Pod>> = serde_json::from_value(list).unwrap();
        let live = live(found);
        let names: Vec<_> = live.iter().map(named).collect();
        assert_eq!(names, ["n/late", "n/unreadable"]);
        assert!(live.iter().all(is_on_a_node));
    }
}
