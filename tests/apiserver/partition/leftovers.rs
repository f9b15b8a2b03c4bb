//! Deletion, live Pods, owners that are gone, and partitions of nobody.

use ipu_api::ipupartition::{IPUPartition, PartitionOwner, PartitionPhase};
use ipu_api::labels;
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use tests::simulator::faults::{Down, Order};

use super::scene::{Scene, id, notebook};

fn says(text: &'static str) -> impl Fn(&IPUPartition) -> bool {
    move |object| {
        let message = object
            .status
            .as_ref()
            .and_then(|status| status.message.as_deref());
        message.is_some_and(|message| message.contains(text))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_not_removed_under_a_live_pod() {
    let scene = Scene::start(&[16]).await;
    let wanted = scene.want("wanted", 4).await;
    let ready = scene.once_in(&wanted, PartitionPhase::Ready).await;
    let pods = scene.start_pod("user", &id(&ready)).await;
    scene.delete(&wanted).await;
    let held = scene
        .once(&wanted, "it says who uses it", says("default/user"))
        .await;
    assert_eq!(held.status.unwrap().phase, PartitionPhase::Releasing);
    assert_eq!(scene.ids(), [[id(&ready)]]);
    let at_once = DeleteParams::default().grace_period(0);
    pods.delete("user", &at_once).await.unwrap();
    scene.once_gone(&wanted).await;
    assert_eq!(scene.ids(), [[""; 0]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_of_another_namespace_keeps_nobody_from_giving_it_back() {
    let scene = Scene::start(&[16]).await;
    let owner = PartitionOwner {
        namespace: "kube-public".to_owned(),
        ..notebook("theirs")
    };
    let theirs = scene.want_for(owner, 4).await;
    let ready = scene.once_in(&theirs, PartitionPhase::Ready).await;
    let pods = scene.start_pod("stranger", &id(&ready)).await;
    scene.delete(&theirs).await;
    scene.once_gone(&theirs).await;
    assert_eq!(scene.ids(), [[""; 0]]);
    let at_once = DeleteParams::default().grace_period(0);
    pods.delete("stranger", &at_once).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn one_on_a_controller_that_is_down_goes_when_it_is_back_or_by_force() {
    let scene = Scene::start(&[16]).await;
    let patient = scene.want("patient", 4).await;
    let forced = scene.want("forced", 4).await;
    let patient = scene.once_in(&patient, PartitionPhase::Ready).await;
    let forced = scene.once_in(&forced, PartitionPhase::Ready).await;
    scene.pods[0].server.order(Order {
        down: Some(Down::Refuse),
        ..Order::default()
    });
    scene.delete(&patient).await;
    scene.delete(&forced).await;
    scene
        .once(
            &forced,
            "it says what is in the way",
            says("does not answer"),
        )
        .await;
    let annotation = json!({"metadata": {"annotations": {labels::FORCE_ANNOTATION: "true"}}});
    scene
        .partitions()
        .patch(
            &forced.name_any(),
            &PatchParams::default(),
            &Patch::Merge(annotation),
        )
        .await
        .unwrap();
    scene.once_gone(&forced).await;
    scene
        .once(
            &patient,
            "it says what is in the way",
            says("does not answer"),
        )
        .await;
    scene.pods[0].server.clear();
    scene.once_gone(&patient).await;
    scene
        .once_ids("what was given up is swept", |ids| ids[0].is_empty())
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_no_owner_is_swept_and_nothing_else() {
    let scene = Scene::start(&[64]).await;
    let stranger = scene.want("stranger", 4).await;
    let stranger = scene.once_in(&stranger, PartitionPhase::Ready).await;
    let owner = PartitionOwner {
        api_version: "graphcore.ai/v1alpha1".to_owned(),
        kind: "IPUJob".to_owned(),
        namespace: "default".to_owned(),
        name: "gone".to_owned(),
        uid: "uid-of-nobody".to_owned(),
    };
    scene.orphan(0, &owner).await;
    let foreign = ["p-mnist-default-0", "by-hand"].map(str::to_owned);
    for id in &foreign {
        scene.put(0, id);
    }
    let partition = scene.want_for(owner, 4).await;
    scene.once_gone(&partition).await;
    let mut expected = [foreign.to_vec(), vec![id(&stranger)]].concat();
    expected.sort();
    scene
        .once_ids("the orphan is swept, and only it", |ids| ids[0] == expected)
        .await;
}
