//! A proxy that serves some namespaces, beside one that serves others.

use ipu_api::ipupartition::{PartitionOwner, PartitionPhase};
use k8s_openapi::api::core::v1::Event;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams};

use super::placement::get;
use super::scene::{Scene, id};

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
async fn partitions_of_other_namespaces_are_left_to_whom_serves_them() {
    let mut scene = Scene::without_proxy(&[16]).await;
    scene.scope = "default".parse().unwrap();
    // Both are asked for before the proxy is there, the foreign one first, and of a job that is gone.
    let foreign = scene
        .want_for(owner("kube-public", "IPUJob", "gone"), 4)
        .await;
    let gone = scene
        .want_for(owner("default", "IPUJob", "gone-too"), 4)
        .await;
    let mine = scene.want_for(owner("default", "Else", "mine"), 4).await;
    scene.start_proxy().await;
    let ready = scene.once_in(&mine, PartitionPhase::Ready).await;
    scene.once_gone(&gone).await;

    let untouched = scene.partitions().get(&foreign.name_any()).await.unwrap();
    assert_eq!(untouched.resource_version(), foreign.resource_version());
    assert_eq!(scene.ids(), [[id(&ready)]]);
    let events: Api<Event> = Api::namespaced(scene.client.clone(), "default");
    let of_it = format!("involvedObject.name={}", foreign.name_any());
    let told = events.list(&ListParams::default().fields(&of_it)).await;
    assert_eq!(told.unwrap().items, []);
    let stats = get(scene.port, "/stats").await;
    let stats = stats.unwrap();
    assert!(stats.contains(r#""default":{"used":4"#), "{stats}");
    assert!(!stats.contains("kube-public"), "{stats}");

    // Whoever serves the other namespace is there now.
    scene.kill_proxy().await;
    scene.scope = "kube-public".parse().unwrap();
    scene.start_proxy().await;
    scene.once_gone(&foreign).await;
    assert_eq!(
        scene.ids(),
        [[id(&ready)]],
        "what others wrote down has an owner"
    );
    scene.kill_proxy().await;
    scene.scope = "default".parse().unwrap();
    scene.start_proxy().await;
    let at_once = DeleteParams::default();
    scene
        .partitions()
        .delete(&mine.name_any(), &at_once)
        .await
        .unwrap();
    scene.once_gone(&mine).await;
    assert_eq!(scene.ids(), [[""; 0]]);
}
