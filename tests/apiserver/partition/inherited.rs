//! Partitions that Graphcore's operator made, for jobs that live on.

use std::collections::BTreeMap;

use ipu_operator::api::ipupartition::PartitionPhase;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Api;
use kube::api::{DeleteParams, ObjectMeta, PostParams};
use tests::simulator::faults::Method;

use super::scene::{NAMESPACE, Scene, controller, id, notebook};

const TRACKER: &str = "ipu-partitions-tracker";

/// What Graphcore's operator left: its tracker, in some form, and a partition on the second controller.
async fn left(scene: &Scene, id: &str) -> Api<ConfigMap> {
    scene.put(1, id);
    let maps = Api::<ConfigMap>::namespaced(scene.client.clone(), NAMESPACE);
    let tracker = ConfigMap {
        metadata: ObjectMeta {
            name: Some(TRACKER.to_owned()),
            ..ObjectMeta::default()
        },
        data: Some(BTreeMap::from([(
            "tracker".to_owned(),
            "{\"partitions\": [\"p-mnist-default-0\"]}".to_owned(),
        )])),
        ..ConfigMap::default()
    };
    // What the proxy of another test has left is not of Graphcore's operator.
    if maps.get_opt(TRACKER).await.unwrap().is_some() {
        maps.delete(TRACKER, &DeleteParams::default())
            .await
            .unwrap();
    }
    maps.create(&PostParams::default(), &tracker).await.unwrap();
    maps
}

/// A Pod as Graphcore's operator made them: it names its job as its owner, and carries no id.
async fn old_pod(scene: &Scene, job: &str) -> Api<Pod> {
    let owner = notebook(job);
    scene
        .start_pod_with(ObjectMeta {
            name: Some(format!("{job}-worker-0")),
            owner_references: Some(vec![OwnerReference {
                api_version: owner.api_version,
                kind: owner.kind,
                name: owner.name,
                uid: owner.uid,
                ..OwnerReference::default()
            }]),
            ..ObjectMeta::default()
        })
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_that_the_old_tracker_names_is_taken_over_and_given_back_after_the_old_pods() {
    let mut scene = Scene::without_proxy(&[16, 16]).await;
    let maps = left(&scene, "p-mnist-default-0").await;
    scene.start_proxy().await;
    let pods = old_pod(&scene, "mnist").await;

    let wanted = scene.want("mnist", 4).await;
    let ready = scene.once_in(&wanted, PartitionPhase::Ready).await;
    assert_eq!(id(&ready), "p-mnist-default-0");
    assert_eq!(controller(&ready), scene.pods[1].address.to_string());
    let made = [0, 1].map(|pod| scene.calls(pod, Method::CreatePartition));
    assert_eq!(made, [0, 0], "nothing is made anew");
    let tracker = maps.get(TRACKER).await.unwrap();
    assert!(tracker.data.unwrap().contains_key("tracker"), "it stays");

    scene.kill_proxy().await;
    scene.start_proxy().await;
    scene.delete(&wanted).await;
    scene
        .once(&wanted, "it says who uses it", |object| {
            let status = object.status.as_ref();
            let message = status.and_then(|status| status.message.as_deref());
            message.is_some_and(|message| message.contains("default/mnist-worker-0"))
        })
        .await;
    assert_eq!(scene.ids()[1], ["p-mnist-default-0"]);
    let at_once = DeleteParams::default().grace_period(0);
    pods.delete("mnist-worker-0", &at_once).await.unwrap();
    scene.once_gone(&wanted).await;
    assert_eq!(scene.ids(), [[""; 0], [""; 0]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_tracker_does_not_name_or_has_another_size_is_left_alone() {
    let mut scene = Scene::without_proxy(&[16, 16]).await;
    left(&scene, "p-other-default-0").await;
    scene.put(1, "p-mnist-default-0");
    scene.start_proxy().await;
    for (name, ipus) in [("other", 4), ("mnist", 8)] {
        let wanted = scene.want(name, ipus).await;
        let ready = scene.once_in(&wanted, PartitionPhase::Ready).await;
        assert!(!id(&ready).ends_with("-default-0"), "{}", id(&ready));
        scene.delete(&wanted).await;
        scene.once_gone(&wanted).await;
    }
    assert_eq!(scene.ids()[1], ["p-mnist-default-0", "p-other-default-0"]);
}
