//! Controllers that refuse a size for lack of IPUs: which of the waiting requests is sent there,
//! and how often.

use std::time::Instant;

use cluster::wait::eventually;
use ipu_api::ipupartition::{IPUPartition, PartitionPhase};
use vipu_simulator::faults::{Method, Order};

use super::fixture::{Fixture, id};

/// Shortest time between two attempts with a refused size, in seconds.
const PAUSE: u64 = 10;

/// CreatePartition answers as if no IPU were free.
fn full(times: Option<u32>) -> Order {
    Order {
        full: true,
        times,
        ..Order::on(Method::CreatePartition)
    }
}

fn was_tried(partition: &IPUPartition) -> bool {
    let mut waiting = partition.status.iter().flat_map(|status| &status.waiting);
    waiting.any(|reason| reason.reason.starts_with("was tried: "))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_size_is_requested_now_and_then_however_many_wait_for_it() {
    let fixture = Fixture::start(&[16]).await;
    fixture.pods[0].server.order(full(None));
    let begun = Instant::now();
    let mut all = Vec::new();
    for number in 0..24 {
        all.push(fixture.request(&format!("n{number:02}"), 16).await);
    }
    for one in &all {
        fixture.once(one, "it says why it waits", was_tried).await;
    }
    let calls = || fixture.calls(0, Method::CreatePartition);
    eventually("it is tried again", async || (calls() > 1).then_some(())).await;
    let due = 1 + begun.elapsed().as_secs() / PAUSE;
    assert!(calls() as u64 <= due, "{} calls, {due} are due", calls());

    fixture.pods[0].server.clear();
    let first = fixture.once_in(&all[0], PartitionPhase::Ready).await;
    assert_eq!(fixture.ids(), [[id(&first)]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_later_request_does_not_go_before_one_that_was_refused() {
    let fixture = Fixture::start(&[8]).await;
    let first = fixture.request("first", 8).await;
    fixture.once_in(&first, PartitionPhase::Ready).await;
    // Of the same second, names decide.
    let earlier = fixture.request("a-earlier", 8).await;
    fixture.once_waiting(&earlier).await;
    let later = fixture.request("b-later", 8).await;
    fixture.once_waiting(&later).await;
    fixture.pods[0].server.order(full(Some(1)));
    fixture.delete(&first).await;
    let earlier = fixture.once_in(&earlier, PartitionPhase::Ready).await;
    assert_eq!(fixture.ids(), [[id(&earlier)]]);
    fixture.delete(&earlier).await;
    fixture.once_in(&later, PartitionPhase::Ready).await;
}
