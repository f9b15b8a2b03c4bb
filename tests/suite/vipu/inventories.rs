//! What is read of several controllers at once, how often, and what a silent one costs the others.

use std::sync::Arc;
use std::time::Duration;

use ipu_operator::vipu::inventory::Report;
use ipu_operator::vipu::model::Inventory;
use ipu_operator::vipu::registry::KEY;
use ipu_operator::vipu::{Deadlines, Inventories, Registry};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::watcher::Event;
use tests::simulator::faults::{Down, Method, Order};
use tests::simulator::{Options, Simulator};

use super::{partition, pod1};

const LONG: Duration = Duration::from_hours(1);

async fn listing(simulators: &[&Simulator]) -> (Arc<Registry>, Inventories) {
    let entries: Vec<_> = simulators
        .iter()
        .map(|simulator| format!("{}:ipunode=any", simulator.address))
        .collect();
    let object = ConfigMap {
        data: Some([(KEY.to_owned(), entries.join(","))].into()),
        ..ConfigMap::default()
    };
    let registry = Arc::new(Registry::new(Deadlines::default()));
    registry
        .follow(futures::stream::iter([Ok(Event::Apply(object))]))
        .await;
    let inventories = Inventories::new(registry.clone());
    (registry, inventories)
}

fn free(reports: &[Report]) -> Vec<Option<u32>> {
    reports
        .iter()
        .map(|report| report.inventory.as_ref().ok().map(Inventory::free))
        .collect()
}

fn reads(simulator: &Simulator) -> usize {
    let calls = simulator.server.calls(0);
    let reads = calls.iter().filter(|c| c.method == Method::ListPartitions);
    reads.count()
}

#[tokio::test]
async fn controllers_come_in_the_order_of_the_list_and_one_that_is_down_says_why() {
    let (pod1, pod2) = (pod1().await, pod1().await);
    let pod3 = Simulator::start(Options::quick("pod3", 64)).await.unwrap();
    pod2.server.order(Order {
        down: Some(Down::Refuse),
        ..Order::default()
    });
    // The order is carried out once the port refuses.
    while tokio::net::TcpStream::connect(pod2.address).await.is_ok() {}
    let (_, inventories) = listing(&[&pod1, &pod2, &pod3]).await;
    let reports = inventories.all(LONG).await;
    assert_eq!(free(&reports), [Some(16), None, Some(64)]);
    let reason = reports[1].inventory.as_ref().unwrap_err().reason();
    assert!(reason.starts_with("it cannot be reached: "), "{reason}");
    assert_eq!(reports[1].controller.name, pod2.address.to_string());
}

#[tokio::test]
async fn callers_at_the_same_time_share_one_read() {
    let pod1 = pod1().await;
    let (registry, inventories) = listing(&[&pod1]).await;
    let entry = registry.known().entries[0].clone();
    let readers = (0..50).map(|_| inventories.of(&entry, LONG));
    let reports = futures::future::join_all(readers).await;
    assert_eq!(free(&reports), vec![Some(16); 50]);
    assert_eq!(reads(&pod1), 1);
    inventories.of(&entry, Duration::ZERO).await;
    assert_eq!(reads(&pod1), 2);
}

#[tokio::test]
async fn what_was_read_before_a_change_is_not_told_after_it() {
    let pod1 = pod1().await;
    let (registry, inventories) = listing(&[&pod1]).await;
    let entry = registry.known().entries[0].clone();
    assert_eq!(free(&inventories.all(LONG).await), [Some(16)]);
    let client = registry.client(&entry).unwrap();
    client.create(&partition("p-1", 4)).await.unwrap();
    assert_eq!(free(&inventories.all(LONG).await), [Some(16)]);
    inventories.forget(&entry.name);
    assert_eq!(free(&inventories.all(LONG).await), [Some(12)]);
}

#[tokio::test]
async fn what_was_taken_since_is_counted_without_another_read() {
    let pod1 = pod1().await;
    let (registry, inventories) = listing(&[&pod1]).await;
    let entry = registry.known().entries[0].clone();
    assert_eq!(free(&inventories.all(LONG).await), [Some(16)]);
    let client = registry.client(&entry).unwrap();
    for (id, left) in [("p-1", 12), ("p-2", 8)] {
        client.create(&partition(id, 4)).await.unwrap();
        inventories.took(&entry.name, 4);
        assert_eq!(free(&inventories.all(LONG).await), [Some(left)]);
    }
    assert_eq!(reads(&pod1), 1);
    let read_again = inventories.all(Duration::ZERO).await;
    assert_eq!(
        free(&read_again),
        [Some(8)],
        "the reading holds both by now"
    );
    assert_eq!(reads(&pod1), 2);
}

#[tokio::test]
async fn a_reader_who_gives_up_leaves_the_others_theirs() {
    let pod1 = pod1().await;
    let (registry, inventories) = listing(&[&pod1]).await;
    let entry = registry.known().entries[0].clone();
    let slow = pod1.server.order(Order {
        slow_ms: Some(60_000),
        ..Order::default()
    });
    let impatient = inventories.of(&entry, LONG);
    tokio::time::timeout(Duration::from_millis(50), impatient)
        .await
        .unwrap_err();
    pod1.server.with(|world, _| world.orders.cancel(slow));
    assert_eq!(free(&inventories.all(LONG).await), [Some(16)]);
}
