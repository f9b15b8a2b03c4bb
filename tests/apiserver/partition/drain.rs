//! Controllers that an admin cordons and drains.

use ipu_api::ipupartition::PartitionPhase;
use ipu_api::partition_conditions;
use kube::api::DeleteParams;

use super::fixture::{Fixture, controller, id};

#[tokio::test(flavor = "multi_thread")]
async fn nothing_new_is_made_on_a_cordoned_controller_and_what_is_there_stays() {
    let fixture = Fixture::start(&[8, 8]).await;
    let before = fixture.want("before", 4).await;
    let before = fixture.once_in(&before, PartitionPhase::Ready).await;
    fixture.cordon(&[&fixture.pods[0]]).await;
    let cordoned = fixture.pods[0].address.to_string();
    let after = fixture.want("after", 4).await;
    let after = fixture.once_in(&after, PartitionPhase::Ready).await;
    assert_eq!(controller(&after), fixture.pods[1].address.to_string());
    let third = fixture.want("third", 8).await;
    let waiting = fixture.once_waiting(&third).await.status.unwrap().waiting;
    let of_it = waiting
        .iter()
        .find(|one| one.controller == cordoned)
        .unwrap();
    assert_eq!(
        of_it.reason,
        "it is cordoned, so that nothing new is made on it"
    );
    assert_eq!(fixture.ids()[0], [id(&before)]);
    fixture.delete(&before).await;
    fixture.once_gone(&before).await;
    fixture.uncordon(&[&fixture.pods[0]]).await;
    let third = fixture.once_in(&third, PartitionPhase::Ready).await;
    assert_eq!(controller(&third), cordoned);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_only_controller_that_could_serve_it_is_waited_for_though_it_is_cordoned() {
    let fixture = Fixture::start(&[4, 16]).await;
    fixture.cordon(&[&fixture.pods[1]]).await;
    let large = fixture.want("large", 16).await;
    let waiting = fixture.once_waiting(&large).await.status.unwrap();
    assert_eq!(waiting.phase, PartitionPhase::Pending);
    fixture.uncordon(&[&fixture.pods[1]]).await;
    fixture.once_in(&large, PartitionPhase::Ready).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drained_controller_is_left_one_after_the_other_and_never_under_a_pod() {
    let fixture = Fixture::start(&[8, 4]).await;
    fixture.cordon(&[&fixture.pods[1]]).await;
    let used = fixture.want("a-used", 4).await;
    let used = fixture.once_in(&used, PartitionPhase::Ready).await;
    let pods = fixture.start_pod("user-of-drained", &id(&used)).await;
    // Both can have the same time. Then the name decides.
    let idle = fixture.want("b-idle", 4).await;
    let idle = fixture.once_in(&idle, PartitionPhase::Ready).await;
    let [first, second] = [&fixture.pods[0], &fixture.pods[1]];
    assert_eq!(controller(&idle), first.address.to_string());

    fixture.uncordon(&[second]).await;
    fixture.drain(first).await;
    let asked = fixture
        .once(&used, "its owner is asked to let it go", |object| {
            let status = object.status.as_ref().unwrap();
            partition_conditions::draining_since(status).is_some()
        })
        .await;
    let status = asked.status.unwrap();
    assert_eq!(status.phase, PartitionPhase::Ready, "it can still be used");
    let message = status.message.unwrap();
    assert!(
        message.contains("is being drained, once 1 live Pods have ended"),
        "{message}"
    );
    assert_eq!(fixture.ids()[0].len(), 2);

    let at_once = DeleteParams::default().grace_period(0);
    pods.delete("user-of-drained", &at_once).await.unwrap();
    let moved = fixture
        .once(&used, "it moved", |object| {
            let status = object.status.clone().unwrap();
            status.phase == PartitionPhase::Ready
                && controller(object) == second.address.to_string()
        })
        .await;
    assert_eq!(
        partition_conditions::draining_since(&moved.status.clone().unwrap()),
        None
    );
    fixture
        .once(
            &idle,
            "it is told that no other controller has free capacity",
            |object| {
                let message = object.status.clone().unwrap().message.unwrap();
                message.contains("no other controller has free capacity for 4 IPUs now")
            },
        )
        .await;
    fixture.delete(&moved).await;
    fixture
        .once_ids("the other one has moved as well", |ids| {
            ids[0].is_empty() && ids[1].len() == 1
        })
        .await;
}
