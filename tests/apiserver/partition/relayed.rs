//! The connection between the proxy and a V-IPU controller is slow, dies or is cut: no partition
//! leaks, and none is made twice.

use std::time::Duration;

use cluster::relay::Relay;
use ipu_api::ipupartition::PartitionPhase;
use vipu_simulator::Options;
use vipu_simulator::faults::Method;
use vipu_simulator::pod::Timings;

use super::fixture::{Fixture, id};

/// Longer than any test.
const ENDLESS: u64 = 3_600_000;

/// A proxy that reaches its V-IPU controller by a relay.
async fn behind_relay() -> (Fixture, Relay) {
    let mut fixture = Fixture::without_proxy(&[16]).await;
    let relay = Relay::start(vec![fixture.pods[0].address]).await.unwrap();
    fixture
        .list_addresses(&[&relay.address().to_string()])
        .await;
    // A call whose connection dies has to end within the test.
    fixture.vipu_timeout = 5;
    fixture.start_proxy().await;
    (fixture, relay)
}

/// Lets the work of the controller take for ever, or finishes it.
fn hold(fixture: &Fixture, is_held: bool) {
    let quick = Options::quick("any", 0).timings;
    let endless = Timings {
        forming_ms: ENDLESS,
        removing_ms: ENDLESS,
        resetting_ms: ENDLESS,
    };
    fixture.pods[0].server.with(|world, now| {
        world.pod.timings = if is_held { endless } else { quick };
        if !is_held {
            world.pod.finish(now);
        }
    });
}

/// Waits until the controller works on a call of this method. One that it has only noted may end
/// with its connection before anything is done, and has to be made again.
async fn once_at_work(fixture: &Fixture, method: Method) {
    cluster::wait::eventually(&format!("{method:?} is under way"), async || {
        let server = &fixture.pods[0].server;
        let calls = server.calls(0).into_iter();
        let mut open = calls.filter(|call| call.method == method && call.ended.is_none());
        let is_idle = |id: &str| server.with(|world, now| world.pod.is_idle(id, now));
        open.any(|call| !is_idle(&call.partition)).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn half_a_second_in_each_direction_delays_a_partition_and_nothing_else() {
    let (fixture, relay) = behind_relay().await;
    relay.delay(Duration::from_millis(500));
    let wanted = fixture.request("wanted", 4).await;
    let ready = fixture.once_in(&wanted, PartitionPhase::Ready).await;
    assert_eq!(fixture.ids(), [[id(&ready)]]);
    fixture.delete(&wanted).await;
    fixture.once_gone(&wanted).await;
    assert_eq!(fixture.ids(), [[""; 0]]);
    assert_eq!(fixture.calls(0, Method::CreatePartition), 1);
    assert_eq!(fixture.calls(0, Method::RemovePartition), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_dies_is_replaced() {
    let (fixture, relay) = behind_relay().await;
    let first = fixture.request("first", 4).await;
    fixture.once_in(&first, PartitionPhase::Ready).await;
    relay.kill_present();
    let second = fixture.request("second", 4).await;
    fixture.delete(&first).await;
    let ready = fixture.once_in(&second, PartitionPhase::Ready).await;
    fixture.once_gone(&first).await;
    assert_eq!(fixture.ids(), [[id(&ready)]]);
    assert_eq!(fixture.calls(0, Method::CreatePartition), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_ends_within_a_call_makes_no_second_partition() {
    let (fixture, relay) = behind_relay().await;
    for (name, ends) in [
        ("cut", Relay::cut as fn(&Relay)),
        ("dead", Relay::kill_present),
    ] {
        let made = fixture.calls(0, Method::CreatePartition);
        hold(&fixture, true);
        let wanted = fixture.request(name, 4).await;
        once_at_work(&fixture, Method::CreatePartition).await;
        ends(&relay);
        hold(&fixture, false);
        let ready = fixture.once_in(&wanted, PartitionPhase::Ready).await;
        assert_eq!(fixture.ids(), [[id(&ready)]], "{name}");
        assert_eq!(
            fixture.calls(0, Method::CreatePartition),
            made + 1,
            "{name}"
        );

        hold(&fixture, true);
        fixture.delete(&wanted).await;
        once_at_work(&fixture, Method::RemovePartition).await;
        ends(&relay);
        hold(&fixture, false);
        fixture.once_gone(&wanted).await;
        assert_eq!(fixture.ids(), [[""; 0]], "{name}");
    }
}
