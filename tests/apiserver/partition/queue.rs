//! The order of waiting partitions, if the free capacity is not sufficient for all.

use cluster::wait::eventually;
use ipu_api::ipupartition::{IPUPartition, PartitionOptions, PartitionPhase};
use kube::api::DeleteParams;

use super::fixture::{Fixture, id, notebook};

/// Requests the partitions of a gang of one owner.
async fn request_gang(fixture: &Fixture, name: &str, size: u32, ipus: u32) -> Vec<IPUPartition> {
    let mut wanted = Vec::new();
    for slot in 0..size {
        let options = PartitionOptions {
            gang_size: Some(size),
            ..PartitionOptions::default()
        };
        let one = fixture.request_with(notebook(name), slot, ipus, options);
        wanted.push(one.await);
    }
    wanted
}

fn message(partition: &IPUPartition) -> String {
    let status = partition.status.clone().unwrap_or_default();
    status.message.unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn backfill_passes_a_large_request_only_until_its_limit() {
    let mut fixture = Fixture::without_proxy(&[8]).await;
    fixture.backfill_limit = 3;
    fixture.start_proxy().await;
    let first = fixture.request("first", 4).await;
    fixture.once_in(&first, PartitionPhase::Ready).await;
    let large = fixture.request("large", 8).await;
    fixture.once_waiting(&large).await;
    let passing = fixture.request("passing", 2).await;
    fixture.once_in(&passing, PartitionPhase::Ready).await;

    // Each new request triggers an evaluation, so one of them comes after the limit.
    let mut others = 0;
    let held_up = eventually("a request comes after the limit", async || {
        let small = fixture.request(&format!("small-{others}"), 1).await;
        others += 1;
        let seen = fixture
            .once(
                &small,
                "it is served, or its status names the reason",
                |object| {
                    let status = object.status.clone().unwrap_or_default();
                    status.phase == PartitionPhase::Ready || !status.waiting.is_empty()
                },
            )
            .await;
        if seen.status.clone().unwrap().phase != PartitionPhase::Ready {
            return Some(seen);
        }
        fixture.delete(&small).await;
        fixture.once_gone(&small).await;
        None
    })
    .await;
    let said = message(&held_up);
    assert!(
        said.contains("is reserved for default/large (8 IPUs), which has waited since"),
        "{said}"
    );

    fixture.delete(&first).await;
    fixture.delete(&passing).await;
    let large = fixture.once_in(&large, PartitionPhase::Ready).await;
    fixture.delete(&large).await;
    fixture.once_in(&held_up, PartitionPhase::Ready).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_earlier_request_is_served_first() {
    let fixture = Fixture::start(&[8]).await;
    let first = fixture.request("first", 8).await;
    fixture.once_in(&first, PartitionPhase::Ready).await;
    // The names sort in the opposite order, and times are whole seconds.
    let earlier = fixture.request("z-earlier", 8).await;
    fixture.once_waiting(&earlier).await;
    let made = |partition: &IPUPartition| partition.metadata.creation_timestamp.clone().unwrap();
    let later = eventually("a request is created in a later second", async || {
        let later = fixture.request("a-later", 8).await;
        if made(&later) > made(&earlier) {
            return Some(later);
        }
        fixture.delete(&later).await;
        fixture.once_gone(&later).await;
        None
    })
    .await;
    fixture.once_waiting(&later).await;
    fixture.delete(&first).await;
    let earlier = fixture.once_in(&earlier, PartitionPhase::Ready).await;
    assert_eq!(fixture.ids(), [[id(&earlier)]]);
    fixture.delete(&earlier).await;
    fixture.once_in(&later, PartitionPhase::Ready).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gang_gets_its_partitions_only_when_all_of_them_fit() {
    let fixture = Fixture::start(&[8, 8]).await;
    let other = fixture.request("other", 8).await;
    fixture.once_in(&other, PartitionPhase::Ready).await;
    let gang = request_gang(&fixture, "gang", 3, 4).await;
    for one in &gang {
        // Before the proxy has read a controller, the known capacity is smaller.
        let reason =
            "3 partitions of 4 IPUs are useful only together, and there is free capacity for 2";
        fixture
            .once(one, reason, |waiting| message(waiting).contains(reason))
            .await;
    }
    let small = fixture.request("small", 8).await;
    fixture.once_in(&small, PartitionPhase::Ready).await;
    fixture.delete(&other).await;
    fixture.delete(&small).await;
    for one in &gang {
        fixture.once_in(one, PartitionPhase::Ready).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gang_that_can_never_fit_is_rejected_until_more_controllers_are_listed() {
    let mut fixture = Fixture::without_proxy(&[8, 4]).await;
    fixture.list_controllers(&[&fixture.pods[0]]).await;
    fixture.start_proxy().await;
    let gang = request_gang(&fixture, "huge", 3, 4).await;
    for one in &gang {
        let said = message(&fixture.once_in(one, PartitionPhase::Rejected).await);
        assert!(
            said.contains("can ever serve 3 partitions of 4 IPUs")
                && said.contains("capacity for 2"),
            "{said}"
        );
    }
    fixture
        .list_controllers(&fixture.pods.iter().collect::<Vec<_>>())
        .await;
    for one in &gang {
        fixture.once_in(one, PartitionPhase::Ready).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gang_that_cannot_be_completed_releases_its_partitions() {
    let fixture = Fixture::start(&[16]).await;
    let gang = request_gang(&fixture, "gang", 3, 4).await;
    let mut held = Vec::new();
    for one in &gang {
        held.push(fixture.once_in(one, PartitionPhase::Ready).await);
    }
    // A Pod uses it, so it stays regardless of the others.
    let pods = fixture.start_pod("user-of-gang", &id(&held[0])).await;
    fixture.delete(&held[2]).await;
    fixture.once_gone(&held[2]).await;
    fixture.put(0, "by-hand-1");
    fixture.put(0, "by-hand-2");
    let released = fixture.once_waiting(&held[1]).await;
    let said = message(&released);
    assert!(said.contains("are useful only together"), "{said}");
    let note = fixture
        .once_event(&released.metadata.name.unwrap(), "Replacing")
        .await;
    assert!(
        note.contains("it is useful only with 2 others, and 1 of them found no free capacity"),
        "{note}"
    );
    assert!(fixture.ids()[0].contains(&id(&held[0])));
    let at_once = DeleteParams::default().grace_period(0);
    pods.delete("user-of-gang", &at_once).await.unwrap();
    fixture.once_waiting(&held[0]).await;
    fixture
        .once_ids("only what was made by hand is left", |ids| {
            ids[0].len() == 2
        })
        .await;
}
