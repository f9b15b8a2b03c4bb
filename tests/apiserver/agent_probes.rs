//! `agent.delivery=auto` with the operator's process and a real API server: new Pods mount the
//! agent's image only while probes have shown that every node can.

use cluster::wait::{Seen, eventually};
use futures::StreamExt;
use ipu_api::labels::{AGENT_VOLUME, MANAGED_BY, MANAGED_BY_LABEL};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Client;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::{Value, json};

use crate::job::parallel;
use crate::processes::{Given, Installation, RELEASE};
use crate::{nodes, planes};

/// Name of the Pod that probes a node.
const PROBE: &str = "ipu-operator-agent-probe";

/// A version of the kubelet that cannot mount images.
const OLD: &str = "v1.34.0";

/// A version that can.
const NEW: &str = "v1.37.2";

async fn installed() -> Installation {
    let given = Given {
        controller: vec!["--agent-delivery=auto"],
        ..Given::default()
    };
    Installation::of(planes::with_definitions().await, given).await
}

/// Adds a ready node whose kubelet has this version.
async fn add_node(client: &Client, name: &str, kubelet: &str) {
    nodes::set_ready(client, name, "True").await;
    let status = json!({"status": {"nodeInfo": {
        "architecture": "amd64", "bootID": "", "containerRuntimeVersion": "containerd://2.4.2",
        "kernelVersion": "", "kubeProxyVersion": "", "kubeletVersion": kubelet,
        "machineID": "", "operatingSystem": "linux", "osImage": "", "systemUUID": "",
    }}});
    let nodes: Api<Node> = Api::all(client.clone());
    let (status, params) = (Patch::Merge(&status), PatchParams::default());
    nodes.patch_status(name, &params, &status).await.unwrap();
}

fn probes(client: &Client) -> Api<Pod> {
    Api::namespaced(client.clone(), RELEASE)
}

/// The status that the kubelet of a node gives a probe.
async fn status_on(client: &Client, node: &str) -> Option<Value> {
    let nodes: Api<Node> = Api::all(client.clone());
    let info = nodes.get_opt(node).await.unwrap()?.status?.node_info?;
    if info.kubelet_version != OLD {
        return Some(json!({"phase": "Succeeded"}));
    }
    let refused = json!({"reason": "CreateContainerError", "message": "no such volume"});
    let container = json!({
        "name": AGENT_VOLUME, "image": "", "imageID": "", "ready": false, "restartCount": 0,
        "state": {"waiting": refused},
    });
    Some(json!({"phase": "Pending", "containerStatuses": [container]}))
}

/// The kubelets: each new probe gets its status, and each deleted one ends.
async fn run_probes(client: Client) {
    let named = watcher::Config::default().fields(&format!("metadata.name={PROBE}"));
    let found = watcher(probes(&client), named).default_backoff();
    let mut found = std::pin::pin!(found.applied_objects());
    while let Some(probe) = found.next().await {
        let Ok(probe) = probe else { continue };
        // The probe may have gone meanwhile.
        if probe.metadata.deletion_timestamp.is_some() {
            let params = DeleteParams::default().grace_period(0);
            let _ = probes(&client).delete(PROBE, &params).await;
            continue;
        }
        let is_new = probe.status.is_none_or(|status| {
            status.container_statuses.is_none() && status.phase.as_deref() == Some("Pending")
        });
        let node = probe.spec.and_then(|spec| spec.node_name);
        if let Some(node) = node.filter(|_| is_new)
            && let Some(status) = status_on(&client, &node).await
        {
            let patch = Patch::Merge(json!({"status": status}));
            let params = PatchParams::default();
            let _ = probes(&client).patch_status(PROBE, &params, &patch).await;
        }
    }
}

/// Creates a job, and returns whether its first worker mounts the agent's image.
async fn mounts(installation: &Installation, job: &str) -> bool {
    installation.submit(&parallel(job)).await;
    let worker = installation.runs(&format!("{job}-worker-0")).await;
    let spec = worker.spec.unwrap();
    let mut volumes = spec.volumes.iter().flatten();
    let volume = volumes.find(|volume| volume.name == AGENT_VOLUME).unwrap();
    assert_eq!(volume.image.is_some(), spec.init_containers.is_none());
    volume.image.is_some()
}

#[tokio::test]
async fn pods_mount_the_agent_while_every_node_has_shown_that_it_can() {
    let installation = installed().await;
    let client = &installation.client;
    let kubelets = tokio::spawn(run_probes(client.clone()));
    add_node(client, "new-a", NEW).await;
    add_node(client, "new-b", NEW).await;
    // What an earlier process has left goes first.
    let earlier = json!({
        "metadata": {"name": PROBE, "labels": {MANAGED_BY_LABEL: MANAGED_BY}},
        "spec": {"nodeName": "lost", "containers": [{"name": "main", "image": "a"}]},
    });
    let earlier: Pod = serde_json::from_value(earlier).unwrap();
    let params = PostParams::default();
    probes(client).create(&params, &earlier).await.unwrap();

    let controller = installation.controller("probing", Vec::new()).await;
    let _proxy = installation.proxy("probing-proxy", Vec::new()).await;
    controller
        .says("each version of the nodes has executed")
        .await;
    assert!(mounts(&installation, "first").await);

    add_node(client, "old", OLD).await;
    let reason = "node old (kubelet v1.34.0, containerd://2.4.2, amd64): \
                  CreateContainerError: no such volume";
    controller.says(reason).await;
    assert!(!mounts(&installation, "second").await);

    let nodes: Api<Node> = Api::all(client.clone());
    nodes.delete("old", &DeleteParams::default()).await.unwrap();
    let said = "each version of the nodes has executed";
    eventually("the image is taken again", async || {
        let log = controller.said();
        Seen::when(log.matches(said).count(), |count| *count == 2)
    })
    .await;
    assert!(mounts(&installation, "third").await);
    eventually("no probe is left", async || {
        Seen::when(
            probes(client).get_opt(PROBE).await.unwrap(),
            Option::is_none,
        )
    })
    .await;
    kubelets.abort();
}
