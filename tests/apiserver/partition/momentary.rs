//! Requests that no listed controller can serve for a moment: they wait, because a rejection is the
//! end for many owners.

use ipu_api::ipupartition::{IPUPartition, PartitionPhase};

use super::fixture::Fixture;

/// Waits until a request waits for this reason. While it is rejected, it has no reasons.
async fn once_because(fixture: &Fixture, wanted: &IPUPartition, reason: &str) {
    fixture
        .once(wanted, reason, |object| {
            let mut waiting = object.status.iter().flat_map(|status| &status.waiting);
            waiting.any(|found| found.reason.contains(reason))
        })
        .await;
}

/// A request for all IPUs of the second controller, which another partition has.
async fn waiting(fixture: &Fixture) -> [IPUPartition; 2] {
    let first = fixture.request("first", 16).await;
    fixture.once_in(&first, PartitionPhase::Ready).await;
    let wanted = fixture.request("wanted", 16).await;
    fixture.once_waiting(&wanted).await;
    [first, wanted]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_waits_while_a_controller_reports_fewer_ipus_than_before() {
    let fixture = Fixture::start(&[4, 16]).await;
    let [first, wanted] = waiting(&fixture).await;
    let report = |ipus| {
        let server = &fixture.pods[1].server;
        server.with(|world, _| world.pod.ipus = ipus);
    };
    report(8);
    let reason = "it reports 8 IPUs, and has reported 16 within a day";
    once_because(&fixture, &wanted, reason).await;
    report(16);
    fixture.delete(&first).await;
    fixture.once_in(&wanted, PartitionPhase::Ready).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_waits_while_its_controller_is_off_the_list_for_a_moment() {
    let fixture = Fixture::start(&[4, 16]).await;
    let [first, wanted] = waiting(&fixture).await;
    let [small, large] = [&fixture.pods[0], &fixture.pods[1]];
    fixture.list_controllers(&[small]).await;
    once_because(&fixture, &wanted, "has left the admin's list").await;
    fixture.list_controllers(&[small, large]).await;
    fixture.delete(&first).await;
    fixture.once_in(&wanted, PartitionPhase::Ready).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_waits_while_an_entry_of_the_list_is_invalid() {
    let mut fixture = Fixture::without_proxy(&[4, 16]).await;
    let typo = "not a label";
    let [small, large] = [&fixture.pods[0], &fixture.pods[1]];
    fixture
        .list_labelled(&[(small, "here"), (large, typo)])
        .await;
    fixture.start_proxy().await;
    let wanted = fixture.request("wanted", 16).await;
    once_because(&fixture, &wanted, typo).await;
    let [small, large] = [&fixture.pods[0], &fixture.pods[1]];
    fixture.list_controllers(&[small, large]).await;
    fixture.once_in(&wanted, PartitionPhase::Ready).await;
}
