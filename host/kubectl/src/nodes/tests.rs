//! Reports of nodes as admins see them.

use insta::assert_snapshot;
use ipu_api::vipu_controller::VIPUController;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};

use super::{doctor, reports, table};

fn now() -> Timestamp {
    "2026-01-01T01:00:00Z".parse().unwrap()
}

fn controllers() -> [VIPUController; 1] {
    let controller = json!({
        "apiVersion": "graphcore.ai/v1alpha1",
        "kind": "VIPUController",
        "metadata": {"name": "pod1-8090"},
        "spec": {},
        "status": {
            "address": "pod1:8090", "summary": "Ready", "labelKey": "ipunode", "labelValue": "pod1",
        },
    });
    [serde_json::from_value(controller).unwrap()]
}

fn node(name: &str, label: &str, ready: Option<[&str; 3]>, checks: &Value) -> Node {
    let conditions = ready.map(|[status, reason, message]| {
        json!([{
            "type": "graphcore.ai/IPUReady", "status": status, "reason": reason, "message": message,
            "lastTransitionTime": "2026-01-01T00:48:00Z",
        }])
    });
    let node = json!({
        "metadata": {
            "name": name,
            "labels": {"ipunode": label},
            "annotations": {"graphcore.ai/ipu-checks": checks.to_string()},
        },
        "status": {"capacity": {"cpu": "4"}, "conditions": conditions},
    });
    serde_json::from_value(node).unwrap()
}

/// A node of each kind, and one that has nothing to do with IPUs.
fn nodes() -> Vec<Node> {
    let failed = json!([
        {"check": "controller-label", "outcome": "ok", "message": "the node has the label of pod1:8090"},
        {"check": "rdma-link", "outcome": "failed", "message": "mlx5_0 port 1 is DOWN: check the cable"},
        {"check": "multus", "outcome": "skipped", "message": "no network is required"},
        {"check": "network", "outcome": "unknown", "message": "\u{1b}[2Jforbidden"},
    ]);
    let link = [
        "False",
        "RDMALinkDown",
        "rdma-link: mlx5_0 port 1 is DOWN: check the cable",
    ];
    let passed = ["True", "ChecksPassed", "passed: controller-label"];
    let mut with_ipus = node("c", "pod1", Some(passed), &json!("of another version"));
    let capacity = with_ipus
        .status
        .as_mut()
        .unwrap()
        .capacity
        .as_mut()
        .unwrap();
    let ipus = serde_json::from_value(json!("64")).unwrap();
    capacity.insert("graphcore.ai/ipu".to_owned(), ipus);
    vec![
        with_ipus,
        node("b", "pod1", None, &json!([])),
        node("a", "pod1", Some(link), &failed),
        node("elsewhere", "pod7", None, &json!([])),
    ]
}

#[test]
fn nodes_with_ipus_are_listed() {
    let reports = reports(&nodes(), &controllers());
    assert_snapshot!("nodes", table(&reports, false, now()));
    assert_snapshot!("nodes_in_wide_form", table(&reports, true, now()));
    // Without the right to list VIPUControllers.
    let reports = super::reports(&nodes(), &[]);
    assert_eq!(reports.len(), 2);
    assert!(table(&[], false, now()).contains("no node has"));
}

#[test]
fn each_check_says_what_to_do() {
    let reports = reports(&nodes(), &controllers());
    assert_snapshot!("doctor", doctor(&reports, now()));
    let failed = reports.iter().filter(|report| report.has_failed());
    let failed: Vec<_> = failed.map(|report| report.node.as_str()).collect();
    assert_eq!(failed, ["a"]);
    let value = json!(reports[0]);
    assert_eq!(value["ready"], "False");
    assert_eq!(value["checks"][1]["outcome"], "failed");
}
