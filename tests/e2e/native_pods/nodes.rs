//! Restarted kubelets and re-registered nodes: the IPUs are advertised again, and Pods continue.

use cluster::wait::{Seen, until};
use ipu_api::labels::IPU_RESOURCE;
use ipu_runtime::clock;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, NodeStatus, Pod};
use kube::{Api, ResourceExt};
use libtest_mimic::Failed;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use super::{container, create, delete, is_running, once, pod};
use crate::disruptions::SERVES;
use crate::fixture::{Fixture, PATIENCE};
use crate::lost_node::kubelet_of;
use crate::pods::runs;

/// The kubelet of one node is killed and starts again. The other node is deleted and registers
/// again, without the resource. A Pod that requests its IPUs by the annotation keeps running. A
/// kubelet that sets the resource to 0 at its start can reject a running Pod with the limit: its
/// owner then creates another one.
pub(crate) fn are_advertised_again(fixture: &Fixture) -> Result<(), Failed> {
    fixture.block_on(async {
        let (restarted, anew) = fixture.controllers();
        create_pods(fixture, &restarted.name).await?;
        let before = runs(fixture, "annotated", None).await?;
        let one_runs = |pods: &[Pod]| pods.iter().filter(|pod| is_running(pod)).count() == 1;
        once(fixture, "app=limited", "one to run", one_runs).await?;

        let old = node(fixture, &anew.node).await?.uid();
        fixture.kubectl(&["delete", "node", &anew.node]).await?;
        kill_kubelet(&anew.node)?;
        kill_kubelet(&restarted.node)?;
        let killed = clock::now();
        advertises(fixture, &restarted.node, "16", killed).await?;
        advertises(fixture, &anew.node, "64", killed).await?;
        assert_ne!(node(fixture, &anew.node).await?.uid(), old, "a new Node");

        assert_eq!(runs(fixture, "annotated", None).await?, before);
        let statuses = pod(fixture, "annotated").await?.status;
        let statuses = statuses.and_then(|status| status.container_statuses);
        let restarts: Vec<i32> = statuses
            .into_iter()
            .flatten()
            .map(|status| status.restart_count)
            .collect();
        assert_eq!(restarts, [0], "its program kept running");
        once(fixture, "app=limited", "one to run", one_runs).await?;
        until(
            "each of the two to have one partition",
            PATIENCE,
            async || {
                let partitions = fixture.partitions().await?.len();
                Ok::<_, kube::Error>(Seen::when(partitions, |found| *found == 2))
            },
        )
        .await?;
        delete(fixture, "pod/annotated").await?;
        delete(fixture, "deployment/limited").await?;
        fixture.webhooks_answer().await?;
        fixture.clear().await
    })
}

/// A bare Pod with the annotation and a Deployment of one Pod with the limit, both on the node of
/// this V-IPU controller.
async fn create_pods(fixture: &Fixture, controller: &str) -> Result<(), Failed> {
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
        fixture,
        json!({
            "metadata": {"name": "annotated", "annotations": {IPU_RESOURCE: "4"}},
            "spec": spec(false),
        }),
    )
    .await?;
    create::<Deployment>(
        fixture,
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

async fn node(fixture: &Fixture, name: &str) -> Result<Node, Failed> {
    let nodes: Api<Node> = Api::all(fixture.operated.client.clone());
    Ok(nodes.get(name).await?)
}

/// Waits until a node advertises this number of IPUs, and its kubelet has reported since this time
/// that the node is Ready.
async fn advertises(
    fixture: &Fixture,
    name: &str,
    ipus: &str,
    since: Timestamp,
) -> Result<(), Failed> {
    let nodes: Api<Node> = Api::all(fixture.operated.client.clone());
    let what = format!("{name} to advertise {ipus} IPUs");
    until(what, PATIENCE, async || {
        let node = nodes.get_opt(name).await?.unwrap_or_default();
        let status = node.status.unwrap_or_default();
        let seen = (is_ready(&status, since), quantities(&status));
        let wanted = (true, [Some(ipus.to_owned()), Some(ipus.to_owned())]);
        Ok::<_, kube::Error>(Seen::when(seen, |seen| *seen == wanted))
    })
    .await?;
    Ok(())
}

/// Whether a kubelet has reported since this time that the node is Ready. Times are whole seconds.
/// A kubelet reports at its start, and later only changes.
fn is_ready(status: &NodeStatus, since: Timestamp) -> bool {
    let mut conditions = status.conditions.iter().flatten();
    let ready = conditions.find(|one| one.type_ == "Ready" && one.status == "True");
    let reported = ready.and_then(|one| one.last_heartbeat_time.as_ref());
    reported.is_some_and(|time| time.0.as_second() >= since.as_second())
}

/// Returns the capacity and the allocatable number of IPUs of a node.
fn quantities(status: &NodeStatus) -> [Option<String>; 2] {
    [&status.capacity, &status.allocatable].map(|quantities| {
        let ipus = quantities.as_ref()?.get(IPU_RESOURCE)?;
        Some(ipus.0.clone())
    })
}
