//! The controller of a new partition, and the status of one that waits for free capacity.

use cluster::wait::{Seen, eventually};
use ipu_api::ipupartition::PartitionPhase;
use ipu_api::labels::PARTITION_FINALIZER;
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use vipu_simulator::faults::{Down, Method, Order};
use vipu_simulator::journal::Call;

use super::fixture::{Fixture, controller, id};
use super::install::label_node;

/// An inventory of a V-IPU controller is recent for less than so long.
const RECENT: SignedDuration = SignedDuration::from_millis(2_100);

#[tokio::test(flavor = "multi_thread")]
async fn it_lands_on_the_first_that_is_large_enough() {
    let fixture = Fixture::start(&[4, 16]).await;
    let small = fixture.request("small", 2).await;
    let large = fixture.request("large", 8).await;
    let small = fixture.once_in(&small, PartitionPhase::Ready).await;
    let large = fixture.once_in(&large, PartitionPhase::Ready).await;
    assert_eq!(controller(&small), fixture.pods[0].address.to_string());
    assert_eq!(controller(&large), fixture.pods[1].address.to_string());
    assert_eq!(fixture.ids(), [[id(&small)], [id(&large)]]);
    assert!(small.finalizers().contains(&PARTITION_FINALIZER.to_owned()));
    let condition = &small.status.unwrap().conditions[0];
    assert_eq!(
        (condition.type_.as_str(), condition.status.as_str()),
        ("Ready", "True")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn it_waits_with_a_reason_for_each_controller_until_there_is_free_capacity() {
    let fixture = Fixture::start(&[4, 8]).await;
    let first = fixture.request("first", 8).await;
    fixture.once_in(&first, PartitionPhase::Ready).await;
    let second = fixture.request("second", 8).await;
    let status = fixture.once_waiting(&second).await.status.unwrap();
    assert_eq!(status.phase, PartitionPhase::Pending);
    let named: Vec<&str> = status
        .waiting
        .iter()
        .map(|reason| reason.controller.as_str())
        .collect();
    let addresses: Vec<String> = fixture
        .pods
        .iter()
        .map(|pod| pod.address.to_string())
        .collect();
    assert_eq!(named, addresses);
    fixture.delete(&first).await;
    fixture.once_in(&second, PartitionPhase::Ready).await;
    fixture.once_gone(&first).await;
}

/// Passes decide by inventories of some seconds; a controller that is chosen is read again.
#[tokio::test(flavor = "multi_thread")]
async fn ipus_that_another_client_has_taken_since_the_last_reading_are_not_requested() {
    let fixture = Fixture::start(&[8, 8]).await;
    let first = fixture.request("first", 4).await;
    fixture.once_in(&first, PartitionPhase::Ready).await;
    let is_old = |call: &Call| {
        let age = |ended: Timestamp| Timestamp::now().duration_since(ended);
        call.ended.is_some_and(|ended| age(ended) > RECENT)
    };
    eventually("no recent inventory", async || {
        let calls = fixture.pods[0].server.calls(0).into_iter();
        let mut reads = calls.filter(|call| call.method == Method::ListIPUAttributes);
        reads.all(|call| is_old(&call)).then_some(())
    })
    .await;
    fixture.put(0, "by-hand");
    let second = fixture.request("second", 4).await;
    let second = fixture.once_in(&second, PartitionPhase::Ready).await;
    assert_eq!(controller(&second), fixture.pods[1].address.to_string());
    assert_eq!(fixture.calls(0, Method::CreatePartition), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_without_labelled_nodes_is_skipped_until_there_is_one() {
    let mut fixture = Fixture::without_proxy(&[16, 4]).await;
    let [near, far] = [&fixture.pods[1], &fixture.pods[0]];
    fixture.list_labelled(&[(far, "far"), (near, "here")]).await;
    fixture.start_proxy().await;
    let small = fixture.request("small", 4).await;
    let small = fixture.once_in(&small, PartitionPhase::Ready).await;
    assert_eq!(controller(&small), fixture.pods[1].address.to_string());

    let large = fixture.request("large", 8).await;
    let waiting = fixture.once_waiting(&large).await.status.unwrap().waiting;
    let said = &waiting[0].reason;
    assert!(said.contains("no node is labelled ipunode=far"), "{said}");
    label_node(&fixture.client, "far").await;
    fixture.once_in(&large, PartitionPhase::Ready).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_fits_nowhere_is_rejected_and_served_once_a_larger_controller_is_listed() {
    let mut fixture = Fixture::without_proxy(&[4, 16]).await;
    fixture.list_controllers(&[&fixture.pods[0]]).await;
    fixture.start_proxy().await;
    let wanted = fixture.request("wanted", 16).await;
    fixture.once_in(&wanted, PartitionPhase::Rejected).await;
    fixture
        .list_controllers(&[&fixture.pods[0], &fixture.pods[1]])
        .await;
    fixture.once_in(&wanted, PartitionPhase::Ready).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_that_is_down_stops_only_those_that_need_it() {
    let fixture = Fixture::start(&[16, 4]).await;
    fixture.pods[0].server.order(Order {
        down: Some(Down::Refuse),
        ..Order::default()
    });
    let small = fixture.request("small", 4).await;
    let large = fixture.request("large", 16).await;
    let small = fixture.once_in(&small, PartitionPhase::Ready).await;
    assert_eq!(controller(&small), fixture.pods[1].address.to_string());
    let down = fixture.pods[0].address.to_string();
    fixture
        .once(&large, "it names the controller that is down", |object| {
            let status = object.status.clone().unwrap_or_default();
            status.waiting.iter().any(|reason| {
                reason.controller == down && reason.reason.contains("cannot be reached")
            })
        })
        .await;
    fixture.pods[0].server.clear();
    fixture.once_in(&large, PartitionPhase::Ready).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_impossible_size_is_rejected_with_the_rule() {
    let fixture = Fixture::start(&[16]).await;
    let wanted = fixture.request("wanted", 3).await;
    let rejected = fixture.once_in(&wanted, PartitionPhase::Rejected).await;
    let message = rejected.status.unwrap().message.unwrap();
    assert_eq!(
        message,
        "spec.ipus is 3; it must be a power of two, such as 4"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn users_see_it_in_stats_and_in_the_tracker() {
    let fixture = Fixture::start(&[16]).await;
    let wanted = fixture.request("wanted", 4).await;
    let ready = fixture.once_in(&wanted, PartitionPhase::Ready).await;
    let stats = eventually("/stats counts it", async || {
        match get(fixture.port, "/stats").await {
            Ok(answer) => Seen::when(answer, |answer| answer.contains("default")),
            Err(error) => Seen::NotYet(error.to_string()),
        }
    })
    .await;
    let expected = r#"{"default":{"used":4,"available":12},"total":{"used":4,"available":12}}"#;
    assert!(stats.ends_with(expected), "{stats}");
    let maps = kube::Api::<k8s_openapi::api::core::v1::ConfigMap>::namespaced(
        fixture.client.clone(),
        super::fixture::NAMESPACE,
    );
    let line = eventually("the tracker has a line", async || {
        let map = maps.get_opt("ipu-partitions-tracker").await.unwrap();
        let data = map.and_then(|map| map.data).unwrap_or_default();
        data.get(&id(&ready)).cloned().ok_or(format!("{data:?}"))
    })
    .await;
    assert!(
        line.starts_with("Notebook default/wanted slot 0, 4 IPUs on "),
        "{line}"
    );
}

pub(crate) async fn get(port: u16, path: &str) -> std::io::Result<String> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}
