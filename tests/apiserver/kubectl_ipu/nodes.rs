//! The nodes and their checks, as `ipu-node` leaves them.

use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};

use super::Office;

/// Reports a failed check of node1.
async fn report(office: &Office) {
    let message = "mlx5_0 port 1 is DOWN: check the cable";
    let checks = json!([{"check": "rdma-link", "outcome": "failed", "message": message}]);
    let patch = json!({
        "metadata": {"annotations": {"graphcore.ai/ipu-checks": checks.to_string()}},
        "status": {"conditions": [{
            "type": "graphcore.ai/IPUReady", "status": "False", "reason": "RDMALinkDown",
            "message": message, "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]},
    });
    let nodes: Api<Node> = Api::all(office.client.clone());
    let (params, patch) = (PatchParams::default(), Patch::Strategic(&patch));
    nodes.patch_status("node1", &params, &patch).await.unwrap();
}

#[tokio::test]
async fn an_admin_sees_the_checks_of_nodes_and_a_script_their_exit_status() {
    let office = Office::new().await;
    office.node().await;
    let denied = office.refused("alice", &["nodes"]);
    assert!(
        denied.contains("you may not list these: nodes is forbidden"),
        "{denied}"
    );
    office.grant("clusterrolebinding", "cluster-admin", "root");
    let unchecked = ["node1: Unknown: it was never checked"];
    office.printed("root", &["doctor"], &unchecked).await;

    report(&office).await;
    office
        .printed(
            "root",
            &["nodes"],
            &["node1", "64     False   RDMALinkDown"],
        )
        .await;
    let output = office.run("root", &["doctor", "node1"]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("failed   rdma-link   mlx5_0 port 1 is DOWN"),
        "{text}"
    );
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("checks failed on: node1"), "{error}");
    let output = office.run("root", &["doctor", "--output=json"]);
    let reports: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(reports[0]["checks"][0]["outcome"], "failed");
    let missing = office.refused("root", &["doctor", "other"]);
    assert!(missing.contains("there is no node other"), "{missing}");
}
