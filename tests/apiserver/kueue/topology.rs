//! Kueue's Topology Aware Scheduling over the nodes of V-IPU controllers, with the objects of the
//! page about topology.

use std::collections::BTreeSet;

use cluster::wait::{Seen, eventually};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tests::kueue::objects::{IPUS, QUEUE_LABEL};
use tests::kueue::workload::{Workload, of_owner};

use super::fixture::Fixture;
use super::pods::{gates, pod};

/// The namespace of the page.
const TEAM: &str = "team-a";

/// The queue of the page.
const QUEUE: &str = "near";

/// The label by which Kueue assigns a node.
const NODE: &str = "kubernetes.io/hostname";

/// The Job of the page waits for two nodes of one controller with enough free CPU, although there
/// are two nodes before. A Pod without an owner gets a node, and a partition of the controller of
/// this node.
pub(super) async fn keeps_pods_at_one_controller(fixture: &Fixture) {
    add_node(fixture, "aa", "pod1").await;
    add_node(fixture, "bb", "pod2").await;
    let waits = once(fixture, "waits for nodes", |one| {
        one.message("QuotaReserved").contains("topology")
    });
    assert!(!waits.await.holds_quota());
    add_node(fixture, "cc", "pod2").await;
    let admitted = once(fixture, "is admitted", |one| one.is("Admitted")).await;
    let assignment = &admitted.admission().unwrap()["podSetAssignments"][0]["topologyAssignment"];
    let expected = ["bb", "cc"].map(str::to_owned).into();
    assert_eq!(nodes_of(assignment), expected, "{assignment}");

    let mut lone = pod("lone", 4);
    let container = &mut lone.spec.as_mut().unwrap().containers[0];
    let resources = container.resources.as_mut().unwrap();
    let cpu = Quantity("2".to_owned());
    resources.requests = Some([("cpu".to_owned(), cpu)].into());
    lone.labels_mut()
        .insert(QUEUE_LABEL.to_owned(), QUEUE.to_owned());
    let level = ("kueue.x-k8s.io/podset-required-topology", "ipunode");
    lone.annotations_mut()
        .insert(level.0.to_owned(), level.1.to_owned());
    let pods: Api<Pod> = Api::namespaced(fixture.installation.client.clone(), TEAM);
    pods.create(&PostParams::default(), &lone).await.unwrap();
    let placed = eventually("the Pod passes all gates", async || {
        let pod = pods.get("lone").await.unwrap();
        let seen = format!("{pod:#?}");
        Some(pod).filter(|pod| gates(pod).is_empty()).ok_or(seen)
    });
    let placed = placed.await;
    assert!(placed.labels().contains_key("graphcore.ai/partition-id"));
    let selector = placed.spec.unwrap().node_selector.unwrap();
    // Only this node has two free CPUs.
    assert_eq!(selector[NODE], "aa");
    assert_eq!(selector["ipunode"], "pod1");
}

/// Adds a node with the label of a V-IPU controller, whose checks passed.
async fn add_node(fixture: &Fixture, name: &str, controller: &str) {
    let nodes: Api<Node> = Api::all(fixture.installation.client.clone());
    let labels = json!({NODE: name, "ipunode": controller, "graphcore.ai/ipu-ready": "true"});
    let node = json!({"metadata": {"name": name, "labels": labels}});
    let node = serde_json::from_value(node).unwrap();
    nodes.create(&PostParams::default(), &node).await.unwrap();
    let capacity = json!({"cpu": "4", "memory": "16Gi", "pods": "110", IPUS: "8"});
    let params = PatchParams::default();
    let status = json!({"status": {
        "capacity": capacity, "allocatable": capacity,
        "conditions": [{"type": "Ready", "status": "True"}],
    }});
    let status = Patch::Strategic(status);
    nodes.patch_status(name, &params, &status).await.unwrap();
    // No controller removes the taint of a new node here.
    let untainted = Patch::Merge(json!({"spec": {"taints": null}}));
    nodes.patch(name, &params, &untainted).await.unwrap();
}

/// The Workload of the Job of the page once it `is_so`.
async fn once(fixture: &Fixture, what: &str, is_so: impl Fn(&Workload) -> bool) -> Workload {
    eventually(&format!("the Workload of the Job {what}"), async || {
        let owner = ("Job", QUEUE);
        let found = of_owner(&fixture.installation.client, TEAM, owner).await;
        Seen::first(found, &is_so)
    })
    .await
}

/// The nodes of an assignment. Kueue writes the common start and end of their names apart.
fn nodes_of(assignment: &Value) -> BTreeSet<String> {
    let slices = assignment["slices"].as_array().into_iter().flatten();
    let names = slices.flat_map(|slice| {
        let values = slice["valuesPerLevel"].as_array().unwrap().last().unwrap();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let individual = &values["individual"];
        let (start, end) = (text(&individual["prefix"]), text(&individual["suffix"]));
        let roots = individual["roots"].as_array().cloned().unwrap_or_default();
        let all = values["universal"].as_str().map(str::to_owned);
        let each = roots
            .into_iter()
            .map(move |root| format!("{start}{}{end}", text(&root)));
        each.chain(all).collect::<Vec<_>>()
    });
    names.collect()
}
