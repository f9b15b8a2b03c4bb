//! Deletion, live Pods, deleted owners, and partitions without an owner.

use ipu_api::ipupartition::{IPUPartition, PartitionOwner, PartitionPhase};
use ipu_api::labels;
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use vipu_simulator::faults::{Down, Order};

use super::fixture::{Fixture, id, notebook};

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
    let fixture = Fixture::start(&[16]).await;
    let wanted = fixture.request("wanted", 4).await;
    let ready = fixture.once_in(&wanted, PartitionPhase::Ready).await;
    let pods = fixture.start_pod("user", &id(&ready)).await;
    fixture.delete(&wanted).await;
    let held = fixture
        .once(
            &wanted,
            "it names the Pod that uses it",
            says("default/user"),
        )
        .await;
    assert_eq!(held.status.unwrap().phase, PartitionPhase::Releasing);
    assert_eq!(fixture.ids(), [[id(&ready)]]);
    let at_once = DeleteParams::default().grace_period(0);
    pods.delete("user", &at_once).await.unwrap();
    fixture.once_gone(&wanted).await;
    assert_eq!(fixture.ids(), [[""; 0]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_of_another_namespace_does_not_prevent_the_release() {
    let fixture = Fixture::start(&[16]).await;
    let owner = PartitionOwner {
        namespace: "kube-public".to_owned(),
        ..notebook("theirs")
    };
    let theirs = fixture.request_for(owner, 4).await;
    let ready = fixture.once_in(&theirs, PartitionPhase::Ready).await;
    let pods = fixture.start_pod("stranger", &id(&ready)).await;
    fixture.delete(&theirs).await;
    fixture.once_gone(&theirs).await;
    assert_eq!(fixture.ids(), [[""; 0]]);
    let at_once = DeleteParams::default().grace_period(0);
    pods.delete("stranger", &at_once).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_on_an_unreachable_controller_is_removed_when_it_returns_or_by_force() {
    let fixture = Fixture::start(&[16]).await;
    let patient = fixture.request("patient", 4).await;
    let forced = fixture.request("forced", 4).await;
    let patient = fixture.once_in(&patient, PartitionPhase::Ready).await;
    let forced = fixture.once_in(&forced, PartitionPhase::Ready).await;
    fixture.pods[0].server.order(Order {
        down: Some(Down::Refuse),
        ..Order::default()
    });
    fixture.delete(&patient).await;
    fixture.delete(&forced).await;
    fixture
        .once(&forced, "it says what blocks it", says("does not answer"))
        .await;
    let annotation = json!({"metadata": {"annotations": {labels::FORCE_ANNOTATION: "true"}}});
    fixture
        .partitions()
        .patch(
            &forced.name_any(),
            &PatchParams::default(),
            &Patch::Merge(annotation),
        )
        .await
        .unwrap();
    fixture.once_gone(&forced).await;
    fixture
        .once(&patient, "it says what blocks it", says("does not answer"))
        .await;
    fixture.pods[0].server.clear();
    fixture.once_gone(&patient).await;
    fixture
        .once_ids("the abandoned partition is swept", |ids| ids[0].is_empty())
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_partitions_without_an_owner_are_swept() {
    let fixture = Fixture::start(&[64]).await;
    let stranger = fixture.request("stranger", 4).await;
    let stranger = fixture.once_in(&stranger, PartitionPhase::Ready).await;
    let owner = PartitionOwner {
        api_version: "graphcore.ai/v1alpha1".to_owned(),
        kind: "IPUJob".to_owned(),
        namespace: "default".to_owned(),
        name: "gone".to_owned(),
        uid: "uid-of-nobody".to_owned(),
    };
    fixture.orphan(0, &owner).await;
    let foreign = ["p-mnist-default-0", "by-hand"].map(str::to_owned);
    for id in &foreign {
        fixture.put(0, id);
    }
    let partition = fixture.request_for(owner, 4).await;
    fixture.once_gone(&partition).await;
    let mut expected = [foreign.to_vec(), vec![id(&stranger)]].concat();
    expected.sort();
    fixture
        .once_ids("the orphan is swept, and only it", |ids| ids[0] == expected)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_without_an_owner_stays_while_a_pod_on_a_node_uses_it() {
    let mut fixture = Fixture::without_proxy(&[16]).await;
    let used = fixture.orphan(0, &notebook("used")).await;
    fixture.orphan(0, &notebook("unused")).await;
    let pods = fixture.start_pod_on_a_node("on-a-node", &used).await;
    fixture.start_proxy().await;
    let only_used = |ids: &[Vec<String>]| ids == [[used.clone()]];
    fixture.once_ids("the unused one is swept", only_used).await;
    // The sweep finds it after the grace period of the other one, and removes it after its own.
    fixture.orphan(0, &notebook("later")).await;
    fixture.once_ids("the later one is swept", only_used).await;
    let at_once = DeleteParams::default().grace_period(0);
    pods.delete("on-a-node", &at_once).await.unwrap();
    fixture
        .once_ids("the unused one goes as well", |ids| ids[0].is_empty())
        .await;
}
