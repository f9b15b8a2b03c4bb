//! Nodes whose state a test decides, and Pods on them. No kubelet runs.

use http::Request;
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;

/// Creates or updates a node. Its condition `Ready` has been this since the beginning of the year.
pub(crate) async fn set_ready(client: &Client, name: &str, ready: &str) {
    let nodes: Api<Node> = Api::all(client.clone());
    let node = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
    // It can exist already.
    let _ = nodes.create(&PostParams::default(), &node).await;
    let status = json!({"status": {"conditions": [{
        "type": "Ready", "status": ready, "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]}});
    let (status, params) = (Patch::Merge(&status), PatchParams::default());
    nodes.patch_status(name, &params, &status).await.unwrap();
}

/// Assigns a Pod to a node, as a scheduler does.
pub(crate) async fn bind(
    client: &Client,
    namespace: &str,
    pod: &str,
    node: &str,
) -> kube::Result<String> {
    let binding = json!({
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": pod},
        "target": {"kind": "Node", "name": node},
    });
    let path = format!("/api/v1/namespaces/{namespace}/pods/{pod}/binding");
    let request = Request::post(path).body(binding.to_string().into_bytes());
    client.request_text(request.unwrap()).await
}
