//! Kubelets that restart and nodes that are created anew: the IPUs are advertised again, and Pods go on.

use ipu_api::names::IPU_RESOURCE;
use ipu_partitions::advertise::decide::NODES_MANAGER;
use ipu_runtime::clock;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, NodeStatus, Pod};
use kube::{Api, ResourceExt};
use libtest_mimic::Failed;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use tests::wait::{Seen, until};

use super::{container, create, delete, is_running, once, pod};
use crate::disturbed::SERVES;
use crate::lost_node::kubelet_of;
use crate::pods::runs;
use crate::scene::{PATIENCE, Scene};

/// The kubelet of one node is killed and starts again, which sets the resource to 0. The other node is deleted and
/// registers anew, without the resource. A Pod that requests its IPUs by the annotation runs on. The kubelet may reject a
/// running Pod with the limit, because its node advertises too little: its owner then creates another one.
pub(crate) fn are_advertised_again(scene: &Scene) -> Result<(), Failed> {
    scene.block_on(async {
        let (restarted, anew) = scene.controllers();
        create_pods(scene, &restarted.name).await?;
        let before = runs(scene, "annotated", None).await?;
        let one_runs = |pods: &[Pod]| pods.iter().filter(|pod| is_running(pod)).count() == 1;
        once(scene, "app=limited", "one to run", one_runs).await?;

        let began = clock::now();
        kill_kubelet(&restarted.node)?;
        let old = node(scene, &anew.node).await?.uid();
        scene.kubectl(&["delete", "node", &anew.node]).await?;
        kill_kubelet(&anew.node)?;
        advertises(scene, &restarted.node, "16", began).await?;
        advertises(scene, &anew.node, "64", began).await?;
        assert_ne!(node(scene, &anew.node).await?.uid(), old, "a new Node");

        assert_eq!(runs(scene, "annotated", None).await?, before);
        let statuses = pod(scene, "annotated").await?.status;
        let statuses = statuses.and_then(|status| status.container_statuses);
        let restarts: Vec<i32> = statuses
            .into_iter()
            .flatten()
            .map(|status| status.restart_count)
            .collect();
        assert_eq!(restarts, [0], "its program went on");
        once(scene, "app=limited", "one to run", one_runs).await?;
        until(
            "each of the two to have one partition",
            PATIENCE,
            async || {
                let partitions = scene.partitions().await?.len();
                Ok::<_, kube::Error>(Seen::when(partitions, |found| *found == 2))
            },
        )
        .await?;
        delete(scene, "pod/annotated").await?;
        delete(scene, "deployment/limited").await?;
        scene.webhooks_answer().await?;
        scene.clear("default").await
    })
}

/// A bare Pod with the annotation and a Deployment of one Pod with the limit, both on the node of this V-IPU controller.
async fn create_pods(scene: &Scene, controller: &str) -> Result<(), Failed> {
    let spec = |limit: bool| {
        let mut main = container(4, SERVES);
        if !limit {
            main["resources"] = json!({});
        }
        json!({
            "nodeSelector": {"ipunode": controller},
            "terminationGracePeriodSeconds": 1,
            "containers": [main],
        })
    };
    create::<Pod>(
        scene,
        json!({
            "metadata": {"name": "annotated", "annotations": {IPU_RESOURCE: "4"}},
            "spec": spec(false),
        }),
    )
    .await?;
    create::<Deployment>(
        scene,
        json!({
            "metadata": {"name": "limited"},
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": {"app": "limited"}},
                "template": {"metadata": {"labels": {"app": "limited"}}, "spec": spec(true)},
            },
        }),
    )
    .await
}

/// Ends the kubelet of a node, which starts it again.
fn kill_kubelet(node: &str) -> Result<(), Failed> {
    kill(Pid::from_raw(kubelet_of(node)?), Signal::SIGKILL)?;
    Ok(())
}

async fn node(scene: &Scene, name: &str) -> Result<Node, Failed> {
    let nodes: Api<Node> = Api::all(scene.operated.client.clone());
    Ok(nodes.get(name).await?)
}

/// Waits until a node is Ready and has this number of IPUs for Pods, which the operator has written since.
async fn advertises(scene: &Scene, name: &str, ipus: &str, since: Timestamp) -> Result<(), Failed> {
    let nodes: Api<Node> = Api::all(scene.operated.client.clone());
    until(
        format!("{name} to advertise {ipus} IPUs"),
        PATIENCE,
        async || {
            let node = nodes.get_opt(name).await?.unwrap_or_default();
            let written = node.managed_fields().iter().any(|entry| {
                let is_later = |time: Timestamp| time.as_second() >= since.as_second();
                entry.manager.as_deref() == Some(NODES_MANAGER)
                    && entry.time.as_ref().is_some_and(|time| is_later(time.0))
            });
            let status = node.status.unwrap_or_default();
            let seen = (written, is_ready(&status), quantities(&status));
            let wanted = (true, true, [Some(ipus.to_owned()), Some(ipus.to_owned())]);
            Ok::<_, kube::Error>(Seen::when(seen, |seen| *seen == wanted))
        },
    )
    .await?;
    Ok(())
}

fn is_ready(status: &NodeStatus) -> bool {
    let mut conditions = status.conditions.iter().flatten();
    conditions.any(|one| one.type_ == "Ready" && one.status == "True")
}

/// The IPUs of a node, and those that Pods may request.
fn quantities(status: &NodeStatus) -> [Option<String>; 2] {
    [&status.capacity, &status.allocatable].map(|quantities| {
        let ipus = quantities.as_ref()?.get(IPU_RESOURCE)?;
        Some(ipus.0.clone())
    })
}
