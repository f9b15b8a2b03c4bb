//! Reads of several controllers at the same time: their data, their number, and the effect of an
//! unreachable controller on the others.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use cluster::wait::{self, Seen};
use ipu_partitions::controllers::ControllerPool;
use ipu_partitions::nodes::nodes;
use k8s_openapi::api::core::v1::ConfigMap;
use vipu_client::controllers::KEY;
use vipu_client::inventory::Report;
use vipu_client::model::Inventory;
use vipu_client::{Deadlines, Inventories, Lookup, Registry};
use vipu_simulator::codes::CodeName;
use vipu_simulator::faults::{Down, Fail, LostReply, Method, Order};
use vipu_simulator::{Options, Simulator};

use super::{no_partitions, partition, pod1};

const LONG: Duration = Duration::from_hours(1);

fn config_map(simulators: &[&Simulator]) -> ConfigMap {
    let entries: Vec<_> = simulators
        .iter()
        .map(|simulator| format!("{}:ipunode=any", simulator.address))
        .collect();
    ConfigMap {
        data: Some([(KEY.to_owned(), entries.join(","))].into()),
        ..ConfigMap::default()
    }
}

async fn listing(simulators: &[&Simulator]) -> (Arc<Registry>, Inventories) {
    let object = config_map(simulators);
    let registry = Arc::new(Registry::new(Deadlines::default()));
    let objects = futures::stream::iter([Ok::<_, Infallible>(Some(object))]);
    registry.follow(objects).await;
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
    // The order is in effect when the port refuses.
    wait::eventually("the port refuses", async || {
        let connected = tokio::net::TcpStream::connect(pod2.address).await;
        Seen::when(connected.is_err(), |refuses| *refuses)
    })
    .await;
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
async fn no_inventory_from_before_a_change_is_returned_after_it() {
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
async fn new_partitions_count_without_another_read() {
    let pod1 = pod1().await;
    let (registry, inventories) = listing(&[&pod1]).await;
    let entry = registry.known().entries[0].clone();
    assert_eq!(free(&inventories.all(LONG).await), [Some(16)]);
    let client = registry.client(&entry).unwrap();
    for (id, left) in [("p-1", 12), ("p-2", 8)] {
        client.create(&partition(id, 4)).await.unwrap();
        inventories.took(&entry.name, id, 4);
        assert_eq!(free(&inventories.all(LONG).await), [Some(left)]);
    }
    assert_eq!(reads(&pod1), 1);
    let read_again = inventories.all(Duration::ZERO).await;
    assert_eq!(free(&read_again), [Some(8)], "the inventory contains both");
    assert_eq!(reads(&pod1), 2);
}

#[tokio::test]
async fn a_cancelled_reader_does_not_affect_the_others() {
    let pod1 = pod1().await;
    let (registry, inventories) = listing(&[&pod1]).await;
    let entry = registry.known().entries[0].clone();
    pod1.server.order(Order {
        slow_ms: Some(1_000),
        ..Order::default()
    });
    let impatient = inventories.of(&entry, LONG);
    tokio::time::timeout(Duration::from_millis(50), impatient)
        .await
        .unwrap_err();
    assert_eq!(free(&inventories.all(LONG).await), [Some(16)]);
    assert_eq!(reads(&pod1), 1, "the read goes on without its first caller");
}

#[tokio::test]
async fn placement_does_not_wait_for_a_slow_controller_and_sees_its_late_answer() {
    let (pod1, pod2) = (pod1().await, pod1().await);
    let (registry, _) = listing(&[&pod1, &pod2]).await;
    let pool = ControllerPool::new(registry, nodes().0, no_partitions());
    pod2.server.order(Order {
        slow_ms: Some(5_000),
        ..Order::default()
    });
    let last = async || pool.candidates_soon().await.open.pop().unwrap();
    let unreachable = last().await.unreachable;
    assert_eq!(unreachable.as_deref(), Some("it has not answered yet"));
    // On a busy machine, the other controller may be late too.
    let answered = async {
        while last().await.total_ipus == 0 {
            pool.late_answer().await;
        }
    };
    let limit = Duration::from_secs(30);
    tokio::time::timeout(limit, answered).await.unwrap();
}

fn version_reads(simulator: &Simulator) -> usize {
    let calls = simulator.server.calls(0);
    let reads = calls.iter().filter(|c| c.method == Method::GetVersion);
    reads.count()
}

/// The version is read at first and after failures, not with each inventory.
#[tokio::test]
async fn the_version_is_read_seldom_and_is_in_each_report() {
    let pod1 = pod1().await;
    let (registry, inventories) = listing(&[&pod1]).await;
    let entry = registry.known().entries[0].clone();
    for _ in 0..5 {
        let report = inventories.of(&entry, Duration::ZERO).await;
        assert_eq!(report.version.as_deref(), Some("1.18.0"));
    }
    assert_eq!((reads(&pod1), version_reads(&pod1)), (5, 1));
    pod1.server.order(Order {
        times: Some(1),
        fail: Some(Fail {
            code: CodeName::Internal,
            message: String::new(),
        }),
        ..Order::on(Method::ListPartitions)
    });
    let report = inventories.of(&entry, Duration::ZERO).await;
    assert!(report.inventory.is_err());
    assert_eq!(
        report.version.as_deref(),
        Some("1.18.0"),
        "the last known version"
    );
}

#[tokio::test]
async fn a_server_without_a_version_works_as_any_other() {
    let pod1 = pod1().await;
    let (_, inventories) = listing(&[&pod1]).await;
    pod1.server.order(Order {
        fail: Some(Fail {
            code: CodeName::Unimplemented,
            message: String::new(),
        }),
        ..Order::on(Method::GetVersion)
    });
    let reports = inventories.all(LONG).await;
    assert_eq!(free(&reports), [Some(16)]);
    assert_eq!(reports[0].version, None);
    // A controller that never answers the version request does not delay the inventory for long.
    let pod2 = Simulator::start(Options::quick("pod2", 16)).await.unwrap();
    let (_, inventories) = listing(&[&pod2]).await;
    pod2.server.order(Order {
        lose_reply: Some(LostReply::Hang),
        ..Order::on(Method::GetVersion)
    });
    assert_eq!(free(&inventories.all(LONG).await), [Some(16)]);
}

/// A change of the list applies from the next read. Partitions on a controller that has left the
/// list can still be reached, and nothing new is created there.
#[tokio::test]
async fn a_controller_that_leaves_the_list_is_reached_and_not_offered() {
    let pod1 = pod1().await;
    let pod2 = Simulator::start(Options::quick("pod2", 64)).await.unwrap();
    let registry = Arc::new(Registry::new(Deadlines::default()));
    let pool = ControllerPool::new(registry.clone(), nodes().0, no_partitions());
    let (edits, objects) = futures::channel::mpsc::unbounded();
    let follower = registry.clone();
    tokio::spawn(async move { follower.follow(objects).await });
    let edit = |simulators: &[&Simulator]| {
        let object = Ok::<_, Infallible>(Some(config_map(simulators)));
        edits.unbounded_send(object).unwrap();
    };
    let offered = async || {
        let views = pool.views().await;
        views.iter().map(|view| view.total_ipus).collect::<Vec<_>>()
    };

    edit(&[&pod1, &pod2]);
    let both = async || Seen::when(offered().await, |offered| offered == &[16, 64]);
    wait::eventually("both are offered", both).await;
    let left = pool.controllers()[0].clone();
    let client = pool.client(&left).unwrap();
    client.create(&partition("p-1", 4)).await.unwrap();

    edit(&[&pod2]);
    let one = async || Seen::when(offered().await, |offered| offered == &[64]);
    wait::eventually("only the second is offered", one).await;
    let client = pool.client(&left).unwrap();
    assert!(matches!(
        client.lookup("p-1").await.unwrap(),
        Lookup::Present(_)
    ));
    client.remove("p-1", false).await.unwrap();
    assert_eq!(client.lookup("p-1").await.unwrap(), Lookup::Absent);
    let reports = pool.reports().await;
    assert_eq!(reports.len(), 1);
    assert_eq!(reports[0].version.as_deref(), Some("1.18.0"));
}
