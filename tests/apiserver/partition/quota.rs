//! The example policy `namespace-quota` in a vipu-proxy: concurrent requests stay within the quota.

use cluster::wait::{Seen, eventually};
use ipu_api::ipupartition::{IPUPartition, PartitionPhase};
use ipu_api::ipupolicy::Hook;
use ipu_guest_host::model::built_in_file;
use release::guests;
use serde_json::json;

use super::fixture::{Fixture, notebook};

/// Returns how many of these partitions exist or are being created, and how many report that the
/// quota is used up.
async fn stand(fixture: &Fixture) -> (usize, usize) {
    let list = fixture
        .partitions()
        .list(&Default::default())
        .await
        .unwrap();
    let statuses = list.items.iter().filter_map(|one| one.status.as_ref());
    let held = statuses
        .clone()
        .filter(|status| status.partition_id.is_some() || status.phase == PartitionPhase::Creating);
    let waiting = statuses.clone().filter(|status| {
        let mut reasons = status.waiting.iter();
        reasons.any(|waiting| waiting.reason.contains("may have 16"))
    });
    (held.count(), waiting.count())
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_requests_stay_within_a_quota() {
    let folder = tempfile::tempdir().unwrap();
    let built = tokio::task::spawn_blocking(|| guests::build_examples().unwrap());
    let file = built.await.unwrap().join("namespace-quota.wasm");
    std::fs::copy(file, folder.path().join(built_in_file(Hook::Placement))).unwrap();
    let mut fixture = Fixture::without_proxy(&[64, 64]).await;
    let settings = json!({"quota": {"ipus": 16}});
    fixture.policy = Some((folder.path().to_owned(), settings));
    let mut wanted: Vec<IPUPartition> = Vec::new();
    // All exist when the proxy starts, so it evaluates them at the same time.
    for number in 0..12 {
        wanted.push(fixture.request(&format!("greedy-{number}"), 4).await);
    }
    let mut other = notebook("elsewhere");
    other.namespace = "another".to_owned();
    let other = fixture.request_for(other, 16).await;
    fixture.start_proxy().await;
    fixture.once_in(&other, PartitionPhase::Ready).await;
    let mut most = 0;
    eventually(
        "four are served and eight report why they wait",
        async || {
            let (held, waiting) = stand(&fixture).await;
            most = most.max(held);
            Seen::when((held, waiting), |seen| *seen == (5, 8))
        },
    )
    .await;
    assert_eq!(most, 5, "including the partition of another namespace");
    let ids = fixture.ids();
    assert_eq!(ids.iter().map(Vec::len).sum::<usize>(), 5, "{ids:?}");
    let mut ready = None;
    for one in &wanted {
        let name = one.metadata.name.as_deref().unwrap();
        let now = fixture.partitions().get(name).await;
        let status = now.unwrap().status.unwrap_or_default();
        if status.partition_id.is_some() {
            ready = Some(one);
        }
    }
    fixture.delete(ready.expect("one of them was served")).await;
    eventually("another gets the released IPUs", async || {
        Seen::when(stand(&fixture).await, |seen| *seen == (5, 7))
    })
    .await;
}
