//! The errors of `ipu-agent exec` when the API server refuses. The tests of mpirun on real nodes
//! show that a command runs.

use ipu_agent::exec::{ExecError, ExecRequest, execute_with};
use ipu_text::explain;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Client, Config};
use serde_json::{Value, json};

use crate::planes;

async fn refusal(client: Client, pod: &str) -> (ExecError, String) {
    let request = ExecRequest {
        pod: pod.to_owned(),
        namespace: None,
        command: vec!["true".to_owned()],
        agent: None,
        known: None,
    };
    let error = execute_with(client, "default", &request).await.unwrap_err();
    let text = explain(&error);
    (error, text)
}

/// Creates a Pod with this status on a node that does not exist.
async fn pod(client: &Client, name: &str, status: Value) {
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let pod = json!({
        "metadata": { "name": name },
        "spec": {
            "nodeName": "nowhere",
            "automountServiceAccountToken": false,
            "containers": [{ "name": "worker", "image": "none" }],
        },
    });
    let pod: Pod = serde_json::from_value(pod).unwrap();
    pods.create(&PostParams::default(), &pod).await.unwrap();
    let status = Patch::Merge(json!({ "status": status }));
    pods.patch_status(name, &PatchParams::default(), &status)
        .await
        .unwrap();
}

fn running() -> Value {
    json!({
        "phase": "Running",
        "containerStatuses": [{
            "name": "worker", "image": "none", "imageID": "", "ready": true, "restartCount": 0,
            "state": { "running": {} },
        }],
    })
}

#[tokio::test]
async fn a_missing_pod_and_one_that_does_not_run_are_named() {
    let control_plane = planes::empty().await;
    let client = control_plane.client().await.unwrap();
    let (error, text) = refusal(client.clone(), "missing").await;
    assert!(matches!(error, ExecError::FindPod(..)), "{error:?}");
    for part in ["Pod missing", "namespace default", "no such Pod"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    pod(&client, "waiting", json!({ "phase": "Pending" })).await;
    let (error, text) = refusal(client, "waiting").await;
    assert!(matches!(error, ExecError::Target(..)), "{error:?}");
    assert!(text.contains("container worker does not run"), "{text}");
}

#[tokio::test]
async fn an_unreachable_node_is_an_error_of_the_agent_and_not_an_exit_code() {
    let control_plane = planes::empty().await;
    let client = control_plane.client().await.unwrap();
    let nodes: Api<Node> = Api::all(client.clone());
    let node = json!({ "metadata": { "name": "nowhere" } });
    let node: Node = serde_json::from_value(node).unwrap();
    nodes.create(&PostParams::default(), &node).await.unwrap();
    // Nothing listens on this port of this machine.
    let status = Patch::Merge(json!({ "status": {
        "addresses": [{ "type": "InternalIP", "address": "127.0.0.1" }],
        "daemonEndpoints": { "kubeletEndpoint": { "Port": 1 } },
    } }));
    nodes
        .patch_status("nowhere", &PatchParams::default(), &status)
        .await
        .unwrap();
    pod(&client, "unreachable", running()).await;
    let (error, text) = refusal(client, "unreachable").await;
    // The node names no feature, so the API server of any version connects to it after the upgrade.
    assert!(matches!(error, ExecError::Unreached(..)), "{error:?}");
    for part in ["Pod unreachable", "namespace default"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[tokio::test]
async fn without_the_right_the_role_is_named() {
    let control_plane = planes::empty().await;
    let mut config = Config::from_custom_kubeconfig(
        kube::config::Kubeconfig::read_from(control_plane.kubeconfig()).unwrap(),
        &kube::config::KubeConfigOptions::default(),
    )
    .await
    .unwrap();
    config.auth_info.impersonate = Some("nobody".to_owned());
    let client = Client::try_from(config).unwrap();
    let (error, text) = refusal(client, "mnist-worker-0").await;
    assert!(matches!(error, ExecError::FindPod(..)), "{error:?}");
    for part in ["403", "pods/exec", "nobody"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}
