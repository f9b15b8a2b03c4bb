//! A proxy that serves some namespaces, beside one that serves others.

use ipu_api::ipupartition::{PartitionOwner, PartitionPhase};
use k8s_openapi::api::core::v1::Event;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams};

use super::fixture::{Fixture, id};
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
    // Both are requested before the proxy starts: first the partition of the other namespace, whose job is deleted.
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
