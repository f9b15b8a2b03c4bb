//! Places of IPUs: what a V-IPU controller lists of them decides what is requested, and is shown.

use ipu_api::ipupartition::{IPUPartition, PartitionPhase};
use vipu_simulator::faults::{Lie, Method, Order};

use super::fixture::Fixture;

/// Every second pair of the 8 IPUs is free. Returns the used pairs.
async fn scatter(fixture: &Fixture) -> Vec<IPUPartition> {
    let mut pairs = Vec::new();
    for name in ["a", "b", "c", "d"] {
        let pair = fixture.request(name, 2).await;
        pairs.push(fixture.once_in(&pair, PartitionPhase::Ready).await);
    }
    for index in [2, 0] {
        let pair = pairs.remove(index);
        fixture.delete(&pair).await;
        fixture.once_gone(&pair).await;
    }
    pairs
}

fn reasons(partition: &IPUPartition) -> String {
    let waiting = partition.status.iter().flat_map(|status| &status.waiting);
    let reasons: Vec<_> = waiting.map(|one| one.reason.as_str()).collect();
    reasons.join("; ")
}

#[tokio::test(flavor = "multi_thread")]
async fn what_no_free_block_holds_is_not_requested_until_one_does() {
    let fixture = Fixture::start(&[8]).await;
    let pairs = scatter(&fixture).await;
    let created = || fixture.calls(0, Method::CreatePartition);
    let before = created();
    let large = fixture.request("large", 4).await;
    let waiting = fixture.once_waiting(&large).await;
    assert_eq!(
        reasons(&waiting),
        "4 of its 8 IPUs are free, but not together: a partition can have 2 now, fewer than the 4 requested"
    );
    assert_eq!(created(), before);

    fixture.delete(&pairs[0]).await;
    fixture
        .once(&large, "it has IPUs 0 to 3", |object| {
            let status = object.status.as_ref();
            status.is_some_and(|status| status.first_ipu == Some(0))
        })
        .await;
    assert_eq!(created(), before + 1);
    let pod = &fixture.pods[0];
    fixture
        .once_controller(pod, "it shows its free IPUs", |object| {
            let status = object.status.as_ref();
            status.and_then(|status| status.free_ipus.as_deref()) == Some("4-5")
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_places_a_request_that_seems_to_fit_is_sent() {
    let fixture = Fixture::start(&[8]).await;
    fixture.pods[0].server.order(Order {
        lie: Some(Lie::NoPlaces),
        ..Order::on(Method::ListPartitions)
    });
    scatter(&fixture).await;
    let before = fixture.calls(0, Method::CreatePartition);
    let large = fixture.request("large", 4).await;
    fixture
        .once(&large, "it was refused", |object| {
            reasons(object).contains("4 of its 8 IPUs are free, perhaps not together")
        })
        .await;
    assert!(fixture.calls(0, Method::CreatePartition) > before);
    let pod = &fixture.pods[0];
    fixture
        .once_controller(pod, "it shows no free IPUs", |object| {
            let status = object.status.as_ref();
            status.is_some_and(|status| status.ipus.used == 4 && status.free_ipus.is_none())
        })
        .await;
}
