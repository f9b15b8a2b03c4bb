//! Crashes, lost replies and failing controllers, at the worst moments.

use futures::future::join_all;
use ipu_api::ipupartition::{AttemptOutcome, PartitionPhase};
use kube::ResourceExt;
use vipu_simulator::codes::CodeName;
use vipu_simulator::faults::{Fail, Lie, LostReply, Method, Order};

use super::fixture::{Fixture, controller, id};
use crate::cut_off::Writes;

#[tokio::test(flavor = "multi_thread")]
async fn killed_after_it_was_formed_and_before_that_was_recorded() {
    let mut fixture = Fixture::start(&[16, 16]).await;
    fixture.pods[0].server.order(Order {
        lose_reply: Some(LostReply::Hang),
        ..Order::on(Method::CreatePartition)
    });
    let wanted = fixture.request("wanted", 4).await;
    let made = fixture
        .once_ids("it was formed", |ids| ids[0].len() == 1)
        .await;
    let noted = fixture
        .partitions()
        .get(wanted.metadata.name.as_deref().unwrap())
        .await
        .unwrap();
    let attempt = &noted.status.unwrap().attempts[0];
    assert_eq!(
        (attempt.outcome, &attempt.id),
        (AttemptOutcome::Unknown, &made[0][0])
    );
    fixture.kill_proxy().await;
    fixture.pods[0].server.clear();
    fixture.start_proxy().await;
    let ready = fixture.once_in(&wanted, PartitionPhase::Ready).await;
    assert_eq!(id(&ready), made[0][0], "the formed partition is used");
    assert_eq!(fixture.ids(), made);
    assert_eq!(fixture.calls(0, Method::CreatePartition), 1);
    assert_eq!(fixture.calls(1, Method::CreatePartition), 0);
    fixture.delete(&wanted).await;
    fixture.once_gone(&wanted).await;
    assert_eq!(fixture.ids(), [[""; 0]; 2]);
}

/// The user requests a partition, and deletes it once it is ready. Returns the id of the partition.
async fn live(fixture: &Fixture, name: &str) -> String {
    let wanted = fixture.request(name, 4).await;
    let ready = fixture.once_in(&wanted, PartitionPhase::Ready).await;
    fixture.delete(&wanted).await;
    fixture.once_gone(&wanted).await;
    assert_eq!(ready.uid(), wanted.uid());
    id(&ready)
}

#[tokio::test(flavor = "multi_thread")]
async fn proxy_killed_before_any_of_its_writes_makes_each_partition_once() {
    let fixture = Fixture::without_proxy(&[64, 64]).await;
    let proxy = async |writes: &Writes| {
        let client = writes.client(&fixture.client);
        let ports = [fixture.port, fixture.secure_port];
        fixture.replica_of(client, "vipu-proxy-0", ports).await
    };
    let all = Writes::limited([("whole", None)]);
    let first = proxy(&all).await;
    let mut expected = vec![live(&fixture, "whole").await];
    first.kill().await;
    let count = all.sent("whole");
    assert!(count > 3, "{count} writes");

    let names: Vec<String> = (0..count)
        .map(|number| format!("cut-{number:02}"))
        .collect();
    let limits = names.iter().enumerate();
    let before = Writes::limited(limits.map(|(number, name)| (name.as_str(), Some(number))));
    let first = proxy(&before).await;
    let lives = names.iter().map(async |name| {
        let id = live(&fixture, name).await;
        before.complete(name);
        id
    });
    let killed = async {
        before.once_cut_off().await;
        first.kill().await;
        proxy(&Writes::default()).await
    };
    let (_second, ids) = futures::join!(killed, join_all(lives));

    expected.extend(ids);
    let calls = fixture.pods.iter().flat_map(|pod| pod.server.calls(0));
    let made = calls.filter(|call| call.method == Method::CreatePartition);
    let mut made: Vec<String> = made.map(|call| call.partition).collect();
    made.sort();
    expected.sort();
    assert_eq!(made, expected, "each partition that was made was used");
    fixture
        .once_ids("nothing is left", |ids| ids.concat().is_empty())
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_reply_makes_no_second_partition() {
    let fixture = Fixture::start(&[16, 16]).await;
    for method in [Method::CreatePartition, Method::RemovePartition] {
        fixture.pods[0].server.order(Order {
            times: Some(1),
            lose_reply: Some(LostReply::Cut),
            ..Order::on(method)
        });
    }
    let wanted = fixture.request("wanted", 4).await;
    let ready = fixture.once_in(&wanted, PartitionPhase::Ready).await;
    assert_eq!(fixture.ids(), [vec![id(&ready)], vec![]]);
    assert_eq!(fixture.calls(0, Method::CreatePartition), 1);
    fixture.delete(&wanted).await;
    fixture.once_gone(&wanted).await;
    assert_eq!(fixture.ids(), [[""; 0]; 2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_that_refuses_or_fails_is_skipped() {
    let fixture = Fixture::start(&[16, 16, 16]).await;
    fixture.pods[0].server.order(Order {
        fail: Some(Fail {
            code: CodeName::Internal,
            message: "no gateway".to_owned(),
        }),
        ..Order::on(Method::CreatePartition)
    });
    fixture.pods[1].server.order(Order {
        breaks: Some("link 3 does not train".to_owned()),
        ..Order::on(Method::CreatePartition)
    });
    let wanted = fixture.request("wanted", 4).await;
    let ready = fixture.once_in(&wanted, PartitionPhase::Ready).await;
    assert_eq!(controller(&ready), fixture.pods[2].address.to_string());
    assert_eq!(fixture.ids(), [vec![], vec![], vec![id(&ready)]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_of_a_wrong_size_is_released_and_created_elsewhere() {
    let fixture = Fixture::start(&[16, 16]).await;
    fixture.pods[0].server.order(Order {
        lie: Some(Lie::HalfTheSize),
        ..Order::on(Method::CreatePartition)
    });
    let wanted = fixture.request("wanted", 4).await;
    let ready = fixture.once_in(&wanted, PartitionPhase::Ready).await;
    assert_eq!(controller(&ready), fixture.pods[1].address.to_string());
    let mismatch = &ready.status.as_ref().unwrap().attempts[0];
    assert_eq!(
        mismatch.controller.name,
        fixture.pods[0].address.to_string()
    );
    assert_eq!(mismatch.outcome, AttemptOutcome::Refused);
    let reason = mismatch.reason.as_deref().unwrap();
    assert!(
        reason.contains("made with 2 IPUs for GCD 0, 4 were requested"),
        "{reason}"
    );
    assert_eq!(fixture.ids(), [vec![], vec![id(&ready)]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_breaks_or_vanishes_in_use_is_in_error_and_says_so() {
    let fixture = Fixture::start(&[16]).await;
    let broken = fixture.request("broken", 4).await;
    let vanished = fixture.request("vanished", 4).await;
    let broken = fixture.once_in(&broken, PartitionPhase::Ready).await;
    let vanished = fixture.once_in(&vanished, PartitionPhase::Ready).await;
    fixture.pods[0].server.with(|world, now| {
        world
            .pod
            .break_down(&id(&broken), "link 3 is down", false, now)
            .unwrap();
        world.pod.forget(&id(&vanished), now).unwrap();
    });
    let lost = fixture.once_in(&vanished, PartitionPhase::Error).await;
    assert!(
        lost.status
            .unwrap()
            .message
            .unwrap()
            .contains("vanished from")
    );
    let failed = fixture.once_in(&broken, PartitionPhase::Error).await;
    assert!(
        failed
            .status
            .unwrap()
            .message
            .unwrap()
            .contains("link 3 is down")
    );
    for partition in [&broken, &vanished] {
        fixture.delete(partition).await;
        fixture.once_gone(partition).await;
    }
    assert_eq!(fixture.ids(), [[""; 0]; 1]);
}
