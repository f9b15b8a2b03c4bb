//! Controllers that lose their state, refuse removals, or deny access.

use ipu_api::ipupartition::{AttemptOutcome, PartitionPhase};
use ipu_ledger::state_unknown::{ACCESS_DENIED, STATE_UNKNOWN};
use kube::ResourceExt;
use kube::api::DeleteParams;
use vipu_simulator::codes::CodeName;
use vipu_simulator::faults::{Fail, Method, Order};

use super::fixture::{Fixture, controller, id};

#[tokio::test(flavor = "multi_thread")]
async fn ipus_in_use_on_a_controller_that_lost_its_state_are_not_allocated_again() {
    let fixture = Fixture::start(&[16]).await;
    let first = fixture.request("first", 8).await;
    let first = fixture.once_in(&first, PartitionPhase::Ready).await;
    let pods = fixture.start_pod("user-of-lost", &id(&first)).await;
    let lost = id(&first);
    fixture.pods[0]
        .server
        .with(|world, now| world.pod.forget(&lost, now).unwrap());
    let second = fixture.request("second", 16).await;
    // The last reading of the controller is valid for a short time.
    let held = format!("8 more IPUs are held by IPUPartition {}", first.name_any());
    fixture
        .once(&second, "it names the holder of the IPUs", |object| {
            let mut reasons = object.status.iter().flat_map(|status| &status.waiting);
            reasons.any(|waiting| waiting.reason.contains(&held))
        })
        .await;
    // This includes IPUs without a partition, because the operator cannot know which these are.
    let third = fixture.request("third", 4).await;
    fixture
        .once(&third, "it waits too", |object| {
            let mut reasons = object.status.iter().flat_map(|status| &status.waiting);
            reasons.any(|waiting| waiting.reason.contains(&held))
        })
        .await;
    // Also when it is certain that the controller has lost the partition.
    let gone = fixture.once_in(&first, PartitionPhase::Error).await;
    let attempts = gone.status.unwrap().attempts;
    assert_eq!(attempts[0].outcome, AttemptOutcome::Created);
    fixture
        .once(&first, "it names what blocks it", |object| {
            let status = object.status.as_ref().unwrap();
            let message = status.message.as_deref().unwrap_or_default();
            message.contains("vanished from") && status.partition_id.is_none()
        })
        .await;
    assert_eq!(fixture.calls(0, Method::CreatePartition), 1);
    let at_once = DeleteParams::default().grace_period(0);
    pods.delete("user-of-lost", &at_once).await.unwrap();
    let second = fixture.once_in(&second, PartitionPhase::Ready).await;
    assert_eq!(fixture.ids(), [[id(&second)]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_that_the_operator_may_not_see_does_not_count_as_gone() {
    let fixture = Fixture::start(&[16]).await;
    let wanted = fixture.request("hidden", 4).await;
    let ready = fixture.once_in(&wanted, PartitionPhase::Ready).await;
    let hidden = id(&ready);
    fixture.pods[0].server.with(|world, _| {
        world.users.made("somebody-else", &hidden);
        world.users.hides = Some(CodeName::PermissionDenied);
    });
    fixture.delete(&wanted).await;
    let held = fixture
        .once(&wanted, "it says that it may not see it", |object| {
            let mut conditions = object.status.iter().flat_map(|status| &status.conditions);
            conditions.any(|one| one.type_ == STATE_UNKNOWN && one.reason == ACCESS_DENIED)
        })
        .await;
    let message = held.status.unwrap().message.unwrap();
    assert!(message.contains("is not known: it denies"), "{message}");
    let event = fixture.once_event(&wanted.name_any(), ACCESS_DENIED).await;
    assert!(event.contains(&hidden), "{event}");
    assert_eq!(fixture.ids(), [[hidden]]);
    fixture.pods[0]
        .server
        .with(|world, _| world.users.hides = None);
    fixture.once_gone(&wanted).await;
    assert_eq!(fixture.ids(), [[""; 0]]);
}
#[tokio::test(flavor = "multi_thread")]
async fn a_controller_that_removes_nothing_delays_no_partition_that_fits_elsewhere() {
    let fixture = Fixture::start(&[8, 8]).await;
    let wanted = fixture.request("wanted", 4).await;
    let before = fixture.once_in(&wanted, PartitionPhase::Ready).await;
    fixture.pods[0].server.order(Order {
        fail: Some(Fail {
            code: CodeName::FailedPrecondition,
            message: "not today".to_owned(),
        }),
        ..Order::on(Method::RemovePartition)
    });
    fixture.drain(&fixture.pods[0]).await;
    let elsewhere = fixture.pods[1].address.to_string();
    let after = fixture
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
        fixture.ids(),
        [[id(&before)], [id(&after)]],
        "it is still there"
    );
    fixture.pods[0].server.clear();
    fixture
        .once_ids("the remaining partition is removed", |ids| {
            ids[0].is_empty()
        })
        .await;
    let still = fixture.once_in(&wanted, PartitionPhase::Ready).await;
    assert_eq!((controller(&still), id(&still)), (elsewhere, id(&after)));
}
