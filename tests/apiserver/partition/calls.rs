//! The number of calls to the controllers for one partition.

use ipu_api::ipupartition::PartitionPhase;
use vipu_simulator::faults::Method;

use super::fixture::Fixture;

/// Number of requested partitions.
const PARTITIONS: usize = 32;

#[tokio::test(flavor = "multi_thread")]
async fn an_outdated_copy_of_an_object_leads_to_no_call_to_a_controller() {
    let fixture = Fixture::start(&[64]).await;
    let mut requested = Vec::new();
    for number in 0..PARTITIONS {
        requested.push(fixture.request(&format!("calls-{number}"), 1).await);
    }
    for partition in &requested {
        fixture.once_in(partition, PartitionPhase::Ready).await;
    }
    let count = |method| fixture.calls(0, method);
    assert_eq!(count(Method::CreatePartition), PARTITIONS);
    assert_eq!(
        count(Method::GetPartitionIpuofConfig),
        PARTITIONS,
        "each is read once, when it has become active; {} GetPartitionStatus",
        count(Method::GetPartitionStatus)
    );
    for partition in &requested {
        fixture.delete(partition).await;
    }
    for partition in &requested {
        fixture.once_gone(partition).await;
    }
}
