//! Which V-IPU controllers have a node that can run the Pods of a request.

use ipu_api::ipupartition::{IPUPartition, PartitionOptions, PartitionPhase};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::fixture::{Fixture, controller, notebook};

/// Two controllers of 16 IPUs, each with one node, which has this spec when the proxy starts.
async fn two_controllers(specs: [Value; 2]) -> Fixture {
    let mut fixture = Fixture::without_proxy(&[16, 16]).await;
    let [first, second] = [&fixture.pods[0], &fixture.pods[1]];
    fixture
        .list_labelled(&[(first, "one"), (second, "two")])
        .await;
    for (value, spec) in ["one", "two"].into_iter().zip(specs) {
        let metadata = json!({"name": format!("node-{value}"), "labels": {"ipunode": value}});
        let node: Node =
            serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap();
        let nodes: Api<Node> = Api::all(fixture.client.clone());
        nodes.create(&PostParams::default(), &node).await.unwrap();
    }
    fixture.start_proxy().await;
    fixture
}

async fn uncordon(fixture: &Fixture, node: &str) {
    let nodes: Api<Node> = Api::all(fixture.client.clone());
    let patch = Patch::Merge(json!({"spec": {"unschedulable": null}}));
    let params = PatchParams::default();
    nodes.patch(node, &params, &patch).await.unwrap();
}

async fn request(fixture: &Fixture, name: &str, scheduling: Value) -> IPUPartition {
    let options = PartitionOptions {
        scheduling: serde_json::from_value(scheduling).unwrap(),
        ..PartitionOptions::default()
    };
    fixture.request_with(notebook(name), 0, 4, options).await
}

async fn placed_on(fixture: &Fixture, partition: &IPUPartition) -> usize {
    let ready = fixture.once_in(partition, PartitionPhase::Ready).await;
    let address = controller(&ready);
    let mut pods = fixture.pods.iter();
    pods.position(|pod| pod.address.to_string() == address)
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_whose_nodes_are_cordoned_is_skipped() {
    let cordoned = || json!({"unschedulable": true});
    let fixture = two_controllers([cordoned(), cordoned()]).await;
    let waits = request(&fixture, "waits", json!({})).await;
    let waiting = fixture.once_waiting(&waits).await;
    let status = waiting.status.unwrap();
    assert_eq!(status.phase, PartitionPhase::Pending);
    assert_eq!(status.waiting.len(), 2, "{:?}", status.waiting);
    for reason in &status.waiting {
        assert!(reason.reason.ends_with("1 is cordoned"), "{reason:?}");
    }
    uncordon(&fixture, "node-two").await;
    assert_eq!(placed_on(&fixture, &waits).await, 1);
    let elsewhere = request(&fixture, "elsewhere", json!({})).await;
    assert_eq!(placed_on(&fixture, &elsewhere).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn tolerations_and_affinity_decide_between_controllers() {
    let taint = json!([{"key": "repair", "value": "now", "effect": "NoSchedule"}]);
    let fixture = two_controllers([json!({"taints": taint}), json!({})]).await;
    let without = request(&fixture, "without", json!({})).await;
    assert_eq!(placed_on(&fixture, &without).await, 1);
    let tolerations = json!({"tolerations": [{"key": "repair"}]});
    let tolerant = request(&fixture, "tolerant", tolerations).await;
    assert_eq!(placed_on(&fixture, &tolerant).await, 0);
    let other = json!({"key": "metadata.name", "operator": "NotIn", "values": ["node-one"]});
    let affinity = json!({
        "nodeSelectorTerms": [{"matchFields": [other]}],
        "tolerations": [{"key": "repair"}],
    });
    let bound = request(&fixture, "bound", affinity).await;
    assert_eq!(placed_on(&fixture, &bound).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_label_of_a_controller_reaches_its_partitions() {
    let fixture = Fixture::start(&[16]).await;
    let partition = fixture.request("stays", 4).await;
    let ready = fixture.once_in(&partition, PartitionPhase::Ready).await;
    fixture.list_labelled(&[(&fixture.pods[0], "moved")]).await;
    let moved = fixture
        .once(&partition, "its new Pods need the new label", |object| {
            let status = object.status.as_ref();
            let controller = status.and_then(|status| status.controller.as_ref());
            controller.is_some_and(|controller| controller.label_value == "moved")
        })
        .await;
    let [before, after] = [ready, moved].map(|object| object.status.unwrap());
    assert_eq!(after.phase, PartitionPhase::Ready);
    assert_eq!(after.partition_id, before.partition_id);
}
