//! V-IPU controllers that do not remove partitions: neither those of others nor they themselves
//! suffer from it.

use cluster::wait::{Seen, eventually};
use futures::future::join_all;
use ipu_api::ipupartition::PartitionPhase;
use kube::api::ListParams;
use vipu_simulator::codes::CodeName;
use vipu_simulator::faults::{Fail, Method, Order};

use super::fixture::{Fixture, controller};

/// More partitions than reconciles have slots.
const PARTITIONS: usize = 70;

/// Longer than a test: no call ends before it.
const NEVER_SECONDS: u64 = 3_600;

/// V-IPU controllers do not begin with removals, so that each reading still shows the partitions.
fn removals_that_wait() -> Order {
    Order {
        slow_ms: Some(NEVER_SECONDS * 1_000),
        ..Order::on(Method::RemovePartition)
    }
}

impl Fixture {
    /// Waits until `count` partitions are ready, by one list at a time: hundreds of watchers would
    /// be a load.
    async fn once_ready(&self, count: usize) {
        eventually(&format!("{count} partitions are ready"), async || {
            let all = self.partitions().list(&ListParams::default()).await;
            let all = all.unwrap().items.into_iter();
            let phases = all.filter_map(|partition| partition.status.map(|status| status.phase));
            let ready = phases.filter(|phase| *phase == PartitionPhase::Ready);
            Seen::when(ready.count(), |ready| *ready == count)
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn removals_without_an_answer_do_not_stop_the_partitions_of_others() {
    let mut fixture = Fixture::without_proxy(&[128, 64]).await;
    fixture.vipu_timeout = NEVER_SECONDS;
    // A slow machine may take one answer too long, and the request would go to the next controller.
    fixture.list_controllers(&[&fixture.pods[0]]).await;
    fixture.start_proxy().await;
    let names: Vec<String> = (0..PARTITIONS)
        .map(|index| format!("stuck-{index}"))
        .collect();
    let stuck = join_all(names.iter().map(|name| fixture.request(name, 1))).await;
    let ready = stuck
        .iter()
        .map(|one| fixture.once_in(one, PartitionPhase::Ready));
    join_all(ready).await;
    assert_eq!(fixture.ids()[0].len(), PARTITIONS);
    let both: Vec<_> = fixture.pods.iter().collect();
    fixture.list_controllers(&both).await;
    fixture.pods[0].server.order(removals_that_wait());
    join_all(stuck.iter().map(|one| fixture.delete(one))).await;
    eventually(
        "all removals wait for an answer at the same time",
        async || {
            Seen::when(fixture.calls(0, Method::RemovePartition), |calls| {
                *calls >= PARTITIONS
            })
        },
    )
    .await;
    let waiting = fixture.partitions().list(&ListParams::default()).await;
    assert_eq!(
        waiting.unwrap().items.len(),
        PARTITIONS,
        "no call has ended"
    );
    let other = fixture.request("other", 64).await;
    let other = fixture.once_in(&other, PartitionPhase::Ready).await;
    assert_eq!(controller(&other), fixture.pods[1].address.to_string());
    // The next process removes the partitions.
    fixture.kill_proxy().await;
    fixture.pods[0].server.clear();
    fixture.start_proxy().await;
    join_all(stuck.iter().map(|one| fixture.once_gone(one))).await;
}

/// Calls that a common limit of all controllers would let wait.
const COMMON_LIMIT: usize = 512;

/// More than these, and the slots of all reconciles.
const STUCK: usize = COMMON_LIMIT + 88;

#[tokio::test(flavor = "multi_thread")]
async fn controllers_without_an_answer_do_not_stop_the_partitions_of_others() {
    let mut fixture = Fixture::without_proxy(&[256, 256, 256, 64]).await;
    fixture.vipu_timeout = NEVER_SECONDS;
    let (slow, quick): (Vec<_>, Vec<_>) = (0..4).partition(|pod| *pod < 3);
    let of_list = slow.iter().map(|pod| &fixture.pods[*pod]);
    fixture.list_controllers(&of_list.collect::<Vec<_>>()).await;
    fixture.start_proxy().await;
    let names = (0..STUCK).map(|index| format!("stuck-{index}"));
    let stuck = join_all(names.map(async |name| fixture.request(&name, 1).await)).await;
    fixture.once_ready(stuck.len()).await;
    fixture
        .list_controllers(&fixture.pods.iter().collect::<Vec<_>>())
        .await;
    for pod in &slow {
        fixture.pods[*pod].server.order(removals_that_wait());
    }
    join_all(stuck.iter().map(|partition| fixture.delete(partition))).await;
    let removals = || {
        slow.iter()
            .map(|pod| fixture.calls(*pod, Method::RemovePartition))
    };
    eventually("each controller has many removals that wait", async || {
        Seen::when(removals().collect::<Vec<_>>(), |calls| {
            calls.iter().all(|of_pod| *of_pod >= 32)
        })
    })
    .await;
    // The last of these controllers has free IPUs, and cannot be called.
    let slow_pods: Vec<_> = slow.iter().map(|pod| &fixture.pods[*pod]).collect();
    fixture.cordon(&slow_pods).await;
    let other = fixture.request("other", 64).await;
    let other = fixture.once_in(&other, PartitionPhase::Ready).await;
    assert_eq!(
        controller(&other),
        fixture.pods[quick[0]].address.to_string()
    );
    let left = fixture.partitions().list(&ListParams::default()).await;
    let left = left.unwrap().items.len();
    assert_eq!(left, STUCK + 1, "no partition is gone without an answer");
    fixture.kill_proxy().await;
    for pod in &slow {
        fixture.pods[*pod].server.clear();
    }
    fixture.start_proxy().await;
    eventually("only the other partition is left", async || {
        let left = fixture.partitions().list(&ListParams::default()).await;
        Seen::when(left.unwrap().items.len(), |count| *count == 1)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_removal_is_retried_with_increasing_delays_on_a_drained_controller_too() {
    let fixture = Fixture::start(&[4, 4]).await;
    let first = fixture.request("first", 4).await;
    let first = fixture.once_in(&first, PartitionPhase::Ready).await;
    let second = fixture.request("second", 4).await;
    let second = fixture.once_in(&second, PartitionPhase::Ready).await;
    assert_eq!(controller(&first), fixture.pods[0].address.to_string());
    for pod in &fixture.pods {
        pod.server.order(Order {
            fail: Some(Fail {
                code: CodeName::FailedPrecondition,
                message: "the partition is busy".to_owned(),
            }),
            ..Order::on(Method::RemovePartition)
        });
    }
    fixture.drain(&fixture.pods[0]).await;
    fixture.delete(&first).await;
    fixture.delete(&second).await;
    let calls = |pod| fixture.calls(pod, Method::RemovePartition);
    eventually(
        "the removal of the other controller is retried",
        async || Seen::when(calls(1), |calls| *calls >= 4),
    )
    .await;
    let [drained, other] = [calls(0), calls(1)];
    assert!(
        drained <= other + 4,
        "{drained} calls, and {other} on the other"
    );
    for pod in &fixture.pods {
        pod.server.clear();
    }
    fixture.once_gone(&first).await;
    fixture.once_gone(&second).await;
}
