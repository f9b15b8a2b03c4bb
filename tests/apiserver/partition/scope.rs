//! A proxy that serves some namespaces, beside one that serves others.

use cluster::wait::{Seen, eventually};
use ipu_api::ipupartition::{PartitionOwner, PartitionPhase};
use ipu_api::labels::IPU_RESOURCE;
use k8s_openapi::api::core::v1::{Event, Node};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams};
use serde_json::json;

use super::fixture::{Fixture, NAMESPACE, id};
use super::handover::announce;
use super::install::apply;
use super::placement::get;

fn owner(namespace: &str, kind: &str, name: &str) -> PartitionOwner {
    PartitionOwner {
        api_version: "graphcore.ai/v1alpha1".to_owned(),
        kind: kind.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        uid: format!("uid-of-{name}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn partitions_of_other_namespaces_are_left_to_the_proxy_that_serves_them() {
    let mut fixture = Fixture::without_proxy(&[16]).await;
    fixture.scope = "default".parse().unwrap();
    // Both are requested before the proxy starts: first the partition of the other namespace, whose
    // job is deleted.
    let foreign = fixture
        .request_for(owner("kube-public", "IPUJob", "gone"), 4)
        .await;
    let gone = fixture
        .request_for(owner("default", "IPUJob", "gone-too"), 4)
        .await;
    let mine = fixture
        .request_for(owner("default", "Else", "mine"), 4)
        .await;
    fixture.start_proxy().await;
    let ready = fixture.once_in(&mine, PartitionPhase::Ready).await;
    fixture.once_gone(&gone).await;

    let untouched = fixture.partitions().get(&foreign.name_any()).await.unwrap();
    assert_eq!(untouched.resource_version(), foreign.resource_version());
    assert_eq!(fixture.ids(), [[id(&ready)]]);
    let events: Api<Event> = Api::namespaced(fixture.client.clone(), "default");
    let of_it = format!("involvedObject.name={}", foreign.name_any());
    let listed = events.list(&ListParams::default().fields(&of_it)).await;
    assert_eq!(listed.unwrap().items, []);
    let stats = get(fixture.port, "/stats").await;
    let stats = stats.unwrap();
    assert!(stats.contains(r#""default":{"used":4"#), "{stats}");
    assert!(!stats.contains("kube-public"), "{stats}");

    // The proxy of the other namespace starts now.
    fixture.kill_proxy().await;
    fixture.scope = "kube-public".parse().unwrap();
    fixture.start_proxy().await;
    fixture.once_gone(&foreign).await;
    assert_eq!(
        fixture.ids(),
        [[id(&ready)]],
        "the other proxy's partition has an owner"
    );
    fixture.kill_proxy().await;
    fixture.scope = "default".parse().unwrap();
    fixture.start_proxy().await;
    let at_once = DeleteParams::default();
    fixture
        .partitions()
        .delete(&mine.name_any(), &at_once)
        .await
        .unwrap();
    fixture.once_gone(&mine).await;
    assert_eq!(fixture.ids(), [[""; 0]]);
}

async fn create_node(fixture: &Fixture, name: &str, label: &str) {
    let node = json!({"metadata": {"name": name, "labels": {"ipunode": label}}});
    let node: Node = serde_json::from_value(node).unwrap();
    apply(Api::all(fixture.client.clone()), &node).await;
}

/// The IPUs that a node advertises.
async fn advertised(fixture: &Fixture, node: &str) -> Option<String> {
    let node = Api::<Node>::all(fixture.client.clone()).get(node).await;
    let capacity = node.unwrap().status?.capacity?;
    capacity.get(IPU_RESOURCE).map(|ipus| ipus.0.clone())
}

async fn once_advertised(fixture: &Fixture, node: &str, ipus: &str) {
    eventually(&format!("{node} advertises {ipus} IPUs"), async || {
        let found = advertised(fixture, node).await;
        Seen::when(found, |found| found.as_deref() == Some(ipus))
    })
    .await;
}

/// The fixture's release and another one, each for a namespace, a controller and its nodes.
#[tokio::test(flavor = "multi_thread")]
async fn two_releases_leave_each_other_the_ipus_of_their_nodes() {
    let second = "ipu-second";
    let mut fixture = Fixture::without_proxy(&[16, 64]).await;
    fixture.looks_for_releases = true;
    announce(&fixture, NAMESPACE, "default").await;
    announce(&fixture, second, "kube-public").await;
    fixture.scope = "default".parse().unwrap();
    fixture.list_labelled(&[(&fixture.pods[0], "first")]).await;
    // Each release updates the nodes in the order of their names.
    for (name, label) in [("a", "first"), ("c", "second")] {
        create_node(&fixture, name, label).await;
    }
    fixture.start_proxy().await;
    once_advertised(&fixture, "a", "16").await;
    fixture
        .once_controller(&fixture.pods[0], "has its size", |found| {
            let status = found.status.as_ref();
            status.is_some_and(|status| status.ipus.total == 16)
        })
        .await;
    fixture.scope = "kube-public".parse().unwrap();
    let first = fixture.install_beside_for(second, &[(1, "second")]).await;
    once_advertised(&fixture, "c", "64").await;
    assert_eq!(advertised(&fixture, "a").await.as_deref(), Some("16"));
    first.stop().await;
}
