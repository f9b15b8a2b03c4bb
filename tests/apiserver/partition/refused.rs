//! Controllers that lose their state, remove nothing, or let the operator see nothing.

use ipu_api::ipupartition::{AttemptOutcome, PartitionPhase};
use ipu_partitions::state_unknown::{ACCESS_DENIED, STATE_UNKNOWN};
use kube::ResourceExt;
use kube::api::DeleteParams;
use vipu_simulator::codes::CodeName;
use vipu_simulator::faults::{Fail, Method, Order};

use super::scene::{Scene, controller, id};

#[tokio::test(flavor = "multi_thread")]
async fn what_a_pod_uses_of_a_controller_that_lost_its_state_is_given_to_nobody() {
    let scene = Scene::start(&[16]).await;
    let first = scene.want("first", 8).await;
    let first = scene.once_in(&first, PartitionPhase::Ready).await;
    let pods = scene.start_pod("user-of-lost", &id(&first)).await;
    let lost = id(&first);
    scene.pods[0]
        .server
        .with(|world, now| world.pod.forget(&lost, now).unwrap());
    let second = scene.want("second", 16).await;
    // What was read of the controller before counts for a moment.
    let held = format!("8 IPUs more are held by IPUPartition {}", first.name_any());
    scene
        .once(&second, "it says who holds the IPUs", |object| {
            let mut reasons = object.status.iter().flat_map(|status| &status.waiting);
            reasons.any(|waiting| waiting.reason.contains(&held))
        })
        .await;
    // Not even those that nobody holds: which they are, nobody knows.
    let third = scene.want("third", 4).await;
    scene
        .once(&third, "it waits too", |object| {
            let mut reasons = object.status.iter().flat_map(|status| &status.waiting);
            reasons.any(|waiting| waiting.reason.contains(&held))
        })
        .await;
    // Also when it is certain that the controller has lost it.
    let gone = scene.once_in(&first, PartitionPhase::Error).await;
    let attempts = gone.status.unwrap().attempts;
    assert_eq!(attempts[0].outcome, AttemptOutcome::Created);
    scene
        .once(&first, "it says who holds it up", |object| {
            let status = object.status.as_ref().unwrap();
            let message = status.message.as_deref().unwrap_or_default();
            message.contains("vanished from") && status.partition_id.is_none()
        })
        .await;
    assert_eq!(scene.calls(0, Method::CreatePartition), 1);
    let at_once = DeleteParams::default().grace_period(0);
    pods.delete("user-of-lost", &at_once).await.unwrap();
    let second = scene.once_in(&second, PartitionPhase::Ready).await;
    assert_eq!(scene.ids(), [[id(&second)]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_operator_may_not_see_is_not_taken_for_gone() {
    let scene = Scene::start(&[16]).await;
    let wanted = scene.want("hidden", 4).await;
    let ready = scene.once_in(&wanted, PartitionPhase::Ready).await;
    let hidden = id(&ready);
    scene.pods[0].server.with(|world, _| {
        world.users.made("somebody-else", &hidden);
        world.users.hides = Some(CodeName::PermissionDenied);
    });
    scene.delete(&wanted).await;
    let held = scene
        .once(&wanted, "it says that it may not see it", |object| {
            let mut conditions = object.status.iter().flat_map(|status| &status.conditions);
            conditions.any(|one| one.type_ == STATE_UNKNOWN && one.reason == ACCESS_DENIED)
        })
        .await;
    let message = held.status.unwrap().message.unwrap();
    assert!(
        message.contains("is not known: it does not let"),
        "{message}"
    );
    let event = scene.once_event(&wanted.name_any(), ACCESS_DENIED).await;
    assert!(event.contains(&hidden), "{event}");
    assert_eq!(scene.ids(), [[hidden]]);
    scene.pods[0]
        .server
        .with(|world, _| world.users.hides = None);
    scene.once_gone(&wanted).await;
    assert_eq!(scene.ids(), [[""; 0]]);
}
#[tokio::test(flavor = "multi_thread")]
async fn a_controller_that_removes_nothing_holds_up_nobody_who_has_room_elsewhere() {
    let scene = Scene::start(&[8, 8]).await;
    let wanted = scene.want("wanted", 4).await;
    let before = scene.once_in(&wanted, PartitionPhase::Ready).await;
    scene.pods[0].server.order(Order {
        fail: Some(Fail {
            code: CodeName::FailedPrecondition,
            message: "not today".to_owned(),
        }),
        ..Order::on(Method::RemovePartition)
    });
    scene.close("drain", &[&scene.pods[0]]).await;
    let elsewhere = scene.pods[1].address.to_string();
    let after = scene
        .once(&wanted, "it is ready on the other controller", |object| {
            let status = object.status.as_ref();
            status.is_some_and(|status| {
                status.phase == PartitionPhase::Ready
                    && status.controller.as_ref().map(|one| &one.name) == Some(&elsewhere)
            })
        })
        .await;
    assert_ne!(id(&after), id(&before));
    assert_eq!(
        scene.ids(),
        [[id(&before)], [id(&after)]],
        "it is still there"
    );
    scene.pods[0].server.clear();
    scene
        .once_ids("what is left is removed", |ids| ids[0].is_empty())
        .await;
    let still = scene.once_in(&wanted, PartitionPhase::Ready).await;
    assert_eq!((controller(&still), id(&still)), (elsewhere, id(&after)));
}
