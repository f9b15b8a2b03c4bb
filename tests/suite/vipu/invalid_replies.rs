//! A controller with invalid replies: which of them the client accepts, and that no partition is
//! ever adopted from them.

use std::sync::Arc;

use ipu_partitions::controllers::ControllerPool;
use ipu_partitions::nodes::nodes;
use ipu_text::is_plain;
use jiff::Timestamp;
use vipu_client::failure_stats::FailureStats;
use vipu_client::model::{Inventory, ReadyState};
use vipu_client::{Deadlines, Lookup, Registry, VipuClient, VipuError};
use vipu_simulator::Simulator;
use vipu_simulator::codes::CodeName;
use vipu_simulator::faults::{Fail, Lie, Method, Order};
use vipu_simulator::pod::{Pod, Rejection};

use super::{client, no_partitions, partition, pod1};

const EVERY_LIE: [Lie; 11] = [
    Lie::UnknownEnums,
    Lie::OtherId,
    Lie::HalfTheSize,
    Lie::Twice,
    Lie::Nothing,
    Lie::Appearing,
    Lie::EmptyTexts,
    Lie::HugeTexts,
    Lie::HostileTexts,
    Lie::HugeNumbers,
    Lie::Bare,
];

/// Applies this fault to every reply, until the next order.
fn lie(simulator: &Simulator, lie: Lie) {
    simulator.server.clear();
    simulator.server.order(Order {
        lie: Some(lie),
        ..Order::default()
    });
}

fn lie_on(simulator: &Simulator, method: Method, lie: Lie) {
    simulator.server.order(Order {
        lie: Some(lie),
        ..Order::on(method)
    });
}

async fn fixture() -> (Simulator, VipuClient) {
    let simulator = pod1().await;
    let client = client(&simulator);
    client.create(&partition("p-1", 4)).await.unwrap();
    client.create(&partition("p-2", 2)).await.unwrap();
    (simulator, client)
}

#[tokio::test]
async fn an_answer_about_another_partition_does_not_count() {
    let (simulator, client) = fixture().await;
    lie_on(&simulator, Method::GetPartitionStatus, Lie::OtherId);
    let error = client.status("p-1").await.unwrap_err();
    assert!(matches!(error, VipuError::OtherPartition { .. }), "{error}");
    assert_eq!(
        error.reason(),
        "its answer to GetPartitionStatus is about partition \"somebody-elses\", not \"p-1\""
    );
    // The list decides, as after a refused status.
    let Lookup::Present(state) = client.lookup("p-1").await.unwrap() else {
        panic!("the list shows it");
    };
    assert_eq!(state.ready_state, ReadyState::Active);
    assert_eq!(client.lookup("p-9").await.unwrap(), Lookup::Absent);

    lie_on(&simulator, Method::CreatePartition, Lie::OtherId);
    let error = client.create(&partition("p-3", 1)).await.unwrap_err();
    assert!(matches!(error, VipuError::OtherPartition { .. }), "{error}");
    simulator.server.clear();
    assert!(matches!(
        client.lookup("p-3").await.unwrap(),
        Lookup::Present(_)
    ));
    assert_eq!(
        client.lookup("somebody-elses").await.unwrap(),
        Lookup::Absent
    );
}

#[tokio::test]
async fn unknown_enums_are_undefined() {
    let (simulator, client) = fixture().await;
    lie(&simulator, Lie::UnknownEnums);
    let state = client.status("p-1").await.unwrap();
    assert_eq!(state.ready_state, ReadyState::Undefined);
    let listed = client.list().await.unwrap();
    assert_eq!(listed.len(), 2);
    assert!(
        listed
            .iter()
            .all(|one| one.ready_state == ReadyState::Undefined)
    );
    assert_eq!(client.inventory().await.unwrap().used, 6);
}

#[tokio::test]
async fn a_partition_that_is_listed_twice_counts_once() {
    let (simulator, client) = fixture().await;
    let honest = client.inventory().await.unwrap();
    lie(&simulator, Lie::Twice);
    assert_eq!(client.inventory().await.unwrap(), honest);
    assert_eq!((honest.total, honest.used), (16, 6));
}

#[tokio::test]
async fn huge_texts_are_cut_and_empty_ones_are_harmless() {
    let (simulator, client) = fixture().await;
    lie(&simulator, Lie::HugeTexts);
    let listed = client.list().await.unwrap();
    assert!(listed.iter().all(|one| one.id.len() == 256));
    assert_eq!(client.version().await.unwrap().len(), 256);
    let error = client.status("p-1").await.unwrap_err();
    assert!(error.reason().len() < 1_000, "{error}");
    lie(&simulator, Lie::EmptyTexts);
    assert!(client.list().await.unwrap()[0].id.is_empty());
    assert!(client.status("p-1").await.is_ok());
    assert!(client.create(&partition("p-3", 1)).await.is_ok());
}

/// Returns everything that the client reports about a controller, as text.
async fn all_texts(client: &VipuClient) -> Vec<String> {
    let failed = |error: VipuError| error.reason();
    vec![
        client.version().await.unwrap_or_else(failed),
        format!("{:?}", client.list().await.map_err(failed)),
        format!("{:?}", client.inventory().await.map_err(failed)),
        format!("{:?}", client.status("p-1").await.map_err(failed)),
        format!("{:?}", client.lookup("p-1").await.map_err(failed)),
        format!("{:?}", client.devices("p-1", 1).await),
        format!(
            "{:?}",
            client.create(&partition("p-3", 1)).await.map_err(failed)
        ),
        format!("{:?}", client.reset("p-2", false).await.map_err(failed)),
        format!("{:?}", client.remove("p-2", false).await.map_err(failed)),
    ]
}

#[tokio::test]
async fn no_text_of_a_controller_controls_a_terminal() {
    let (simulator, client) = fixture().await;
    lie(&simulator, Lie::HostileTexts);
    let mut texts = all_texts(&client).await;
    for code in [
        CodeName::FailedPrecondition,
        CodeName::Internal,
        CodeName::PermissionDenied,
    ] {
        simulator.server.clear();
        simulator.server.order(Order {
            fail: Some(Fail {
                code,
                message: "\u{1b}[2J\u{7}\r\n\u{202e}\u{2028}no".to_owned(),
            }),
            ..Order::default()
        });
        texts.extend(all_texts(&client).await);
    }
    for text in texts {
        assert!(text.chars().all(is_plain), "{text:?}");
        // The form in which Rust writes such characters in quotes.
        for escaped in ["\\u{", "\\r", "\\n", "\\0"] {
            assert!(!text.contains(escaped), "{text}");
        }
    }
}

#[tokio::test]
async fn a_partition_that_vanishes_from_the_list_is_still_found_by_its_status() {
    let (simulator, client) = fixture().await;
    lie(&simulator, Lie::Nothing);
    assert_eq!(client.inventory().await.unwrap(), Inventory::default());
    assert!(matches!(
        client.lookup("p-1").await.unwrap(),
        Lookup::Present(_)
    ));
    lie(&simulator, Lie::Bare);
    assert!(matches!(
        client.lookup("p-1").await.unwrap(),
        Lookup::Present(_)
    ));
    assert_eq!(client.inventory().await.unwrap().total, 0);
}

#[tokio::test]
async fn an_unknown_partition_takes_capacity_and_has_no_owner() {
    let (simulator, client) = fixture().await;
    let honest = client.inventory().await.unwrap();
    lie(&simulator, Lie::Appearing);
    let inventory = client.inventory().await.unwrap();
    assert_eq!(inventory.used, honest.used + 4);
    assert_eq!(client.lookup("p-9").await.unwrap(), Lookup::Absent);
    lie(&simulator, Lie::Nothing);
    assert_eq!(client.inventory().await.unwrap(), Inventory::default());
    simulator.server.clear();
    assert_eq!(client.inventory().await.unwrap(), honest);
}

#[tokio::test]
async fn a_partition_of_another_size_is_noticed() {
    let (simulator, client) = fixture().await;
    assert_eq!(client.size_mismatch("p-1", 4, 1).await, None);
    lie(&simulator, Lie::HalfTheSize);
    client.create(&partition("p-3", 4)).await.unwrap();
    assert_eq!(
        client.size_mismatch("p-3", 4, 1).await.unwrap(),
        "made with 2 IPUs for GCD 0, 4 were requested"
    );
    // A controller without this data does not contradict a partition.
    for reply in [Lie::Bare, Lie::Nothing] {
        lie(&simulator, reply);
        assert_eq!(client.size_mismatch("p-3", 4, 1).await, None);
    }
    simulator.server.clear();
    assert_eq!(client.size_mismatch("p-9", 4, 1).await, None);
}

/// With every fault, calls end, and all counts stay within their limits.
#[tokio::test]
async fn no_invalid_reply_stops_the_client() {
    let (simulator, client) = fixture().await;
    for (number, fault) in EVERY_LIE.into_iter().enumerate() {
        lie(&simulator, fault);
        let id = format!("p-lie-{number}");
        let created = client.create(&partition(&id, 2)).await;
        let status = client.status(&id).await;
        let inventory = client.inventory().await.unwrap();
        assert!(inventory.total <= 16 && inventory.used <= 16, "{fault:?}");
        assert!(inventory.largest_free() <= 16, "{fault:?}");
        assert!(client.devices(&id, 1).await.len() <= 4, "{fault:?}");
        // Each reply is accepted or refused. In both cases, the texts have bounded length.
        for reason in [created.err(), status.err()].into_iter().flatten() {
            assert!(reason.reason().len() < 1_000, "{fault:?}: {reason}");
        }
        client.remove(&id, true).await.unwrap();
        simulator.server.clear();
        assert_eq!(
            client.lookup(&id).await.unwrap(),
            Lookup::Absent,
            "{fault:?}"
        );
    }
}

#[tokio::test]
async fn a_repeatedly_failing_ipu_is_reported_for_its_controller() {
    let (simulator, client) = fixture().await;
    let registry = Arc::new(Registry::new(Deadlines::default()));
    let pool = ControllerPool::new(registry, nodes().0, no_partitions());
    let record_state = async |id: &str| {
        let lookup = client.lookup(id).await.unwrap();
        pool.note(&client, id, 1, &lookup).await;
    };
    let with_pod = |work: &dyn Fn(&mut Pod, Timestamp) -> Result<(), Rejection>| {
        let done = simulator
            .server
            .with(|world, now| work(&mut world.pod, now));
        done.unwrap();
    };
    record_state("p-1").await;
    assert_eq!(pool.failure_stats(client.name()), FailureStats::default());
    for _ in 0..3 {
        with_pod(&|pod, now| pod.break_down("p-1", "link lost", false, now));
        record_state("p-1").await;
        record_state("p-1").await;
        client.reset("p-1", false).await.unwrap();
        record_state("p-1").await;
    }
    with_pod(&|pod, now| pod.break_down("p-2", "link lost", false, now));
    record_state("p-2").await;
    with_pod(&|pod, now| pod.auto_reset("p-2", now).map(|_| ()));
    record_state("p-2").await;
    let failure_stats = pool.failure_stats(client.name());
    assert_eq!(
        (failure_stats.failed_partitions, failure_stats.auto_resets),
        (4, 1)
    );
    let failures: Vec<_> = failure_stats
        .devices
        .iter()
        .map(|one| one.failures)
        .collect();
    assert_eq!(failures, [3, 3, 3, 3, 1, 1]);
    assert_eq!(
        failure_stats.devices[0].device,
        "IPU 0 of 10.1.0.1 (chip sim-00000000)"
    );
    assert_eq!(pool.failure_stats("pod9:8090"), FailureStats::default());
}
