//! Every call of the client without faults.

use cluster::wait::eventually;
use vipu_client::Lookup;
use vipu_client::model::{CreateRequest, Inventory, OperationState, ReadyState};
use vipu_simulator::World;
use vipu_simulator::faults::Method;
use vipu_simulator::pod::Timings;

use super::{client, partition, pod1};

#[tokio::test]
async fn a_partition_is_made_seen_reset_and_removed() {
    let simulator = pod1().await;
    let client = client(&simulator);
    let request = CreateRequest {
        gcds: 2,
        replicas: Some(4),
        reconfigurable: true,
        ..partition("p-1", 8)
    };
    client.create(&request).await.unwrap();

    let state = client.status("p-1").await.unwrap();
    assert_eq!(state.ready_state, ReadyState::Active);
    assert_eq!(state.operation_state, OperationState::Idle);
    assert!(state.errors.is_empty());
    let listed = client.list().await.unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!((listed[0].id.as_str(), listed[0].ipus), ("p-1", 8));
    assert_eq!(listed[0].gcds, 2);

    let is_relocatable = || {
        let partition = |world: &mut World, now| world.pod.partition("p-1", now).cloned();
        simulator.server.with(partition).unwrap().relocatable
    };
    assert!(!is_relocatable());
    client.reset("p-1", true).await.unwrap();
    assert!(is_relocatable());
    assert_eq!(client.lookup("p-1").await.unwrap(), Lookup::Present(state));
    client.remove("p-1", false).await.unwrap();
    assert_eq!(client.lookup("p-1").await.unwrap(), Lookup::Absent);
    assert!(client.list().await.unwrap().is_empty());
}

#[tokio::test]
async fn the_inventory_counts_partitions_of_everybody() {
    let simulator = pod1().await;
    let client = client(&simulator);
    assert_eq!(
        client.inventory().await.unwrap(),
        Inventory::new(16, vec![])
    );
    client.create(&partition("p-1", 4)).await.unwrap();
    let by_hand = vipu_simulator::pod::PartitionSpec {
        id: "by-hand".to_owned(),
        ipus: 2,
        ..Default::default()
    };
    simulator
        .server
        .with(|world, now| world.pod.take(&by_hand, now))
        .unwrap();
    let counted = client.inventory().await.unwrap();
    assert_eq!((counted.total, counted.used), (16, 6));
    assert_eq!((counted.free(), counted.largest_free()), (10, 8));
    let held: Vec<_> = counted
        .partitions
        .iter()
        .map(|p| (&*p.id, p.ipus))
        .collect();
    assert_eq!(held, [("by-hand", 2), ("p-1", 4)]);
}

#[tokio::test]
async fn each_gcd_gets_its_own_devices() {
    let simulator = pod1().await;
    let client = client(&simulator);
    let request = CreateRequest {
        gcds: 2,
        ..partition("p-1", 8)
    };
    client.create(&request).await.unwrap();
    let first = client.ipuof_config("p-1", 0).await.unwrap();
    let second = client.ipuof_config("p-1", 1).await.unwrap();
    assert_eq!(first.devices.len(), 4);
    assert_eq!(second.devices.len(), 4);
    assert_ne!(first, second);
}

#[tokio::test]
async fn the_version_is_the_servers_own() {
    let simulator = pod1().await;
    assert_eq!(client(&simulator).version().await.unwrap(), "1.18.0");
}

/// Readers see a partition that is being formed while the creating call still waits.
#[tokio::test]
async fn a_partition_that_is_being_formed_is_seen_and_uses_ipus() {
    let simulator = pod1().await;
    simulator.server.with(|world, _| {
        world.pod.timings = Timings {
            forming_ms: 3_600_000,
            ..world.pod.timings
        };
    });
    let client = client(&simulator);
    let maker = client.clone();
    let making = tokio::spawn(async move { maker.create(&partition("p-1", 16)).await });
    let state = eventually("the partition is seen", async || {
        match client.lookup("p-1").await.unwrap() {
            Lookup::Present(state) => Ok(state),
            absent @ Lookup::Absent => Err(format!("{absent:?}")),
        }
    })
    .await;
    assert_eq!(state.ready_state, ReadyState::Pending);
    assert_eq!(state.operation_state, OperationState::Creating);
    assert_eq!(client.inventory().await.unwrap().free(), 0);
    assert!(!making.is_finished());
    making.abort();
}

/// Many callers share one connection, and none of their changes is sent twice.
#[tokio::test]
async fn clones_of_a_client_work_at_the_same_time() {
    let simulator = pod1().await;
    let client = client(&simulator);
    let makers = (0..16).map(|number| {
        let client = client.clone();
        async move { client.create(&partition(&format!("p-{number}"), 1)).await }
    });
    for result in futures::future::join_all(makers).await {
        result.unwrap();
    }
    assert_eq!(client.inventory().await.unwrap().free(), 0);
    let calls = simulator.server.calls(0);
    let creates = calls.iter().filter(|c| c.method == Method::CreatePartition);
    assert_eq!(creates.count(), 16);
}
