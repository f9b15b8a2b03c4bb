//! Who is served first where not all have room.

use cluster::wait::eventually;
use ipu_api::ipupartition::{IPUPartition, PartitionOptions, PartitionPhase};
use kube::api::DeleteParams;

use super::scene::{Scene, id, notebook};

/// Wants the partitions of a gang of one owner.
async fn want_gang(scene: &Scene, name: &str, size: u32, ipus: u32) -> Vec<IPUPartition> {
    let mut wanted = Vec::new();
    for slot in 0..size {
        let options = PartitionOptions {
            gang_size: Some(size),
            ..PartitionOptions::default()
        };
        let one = scene.want_with(notebook(name), slot, ipus, options);
        wanted.push(one.await);
    }
    wanted
}

fn message(partition: &IPUPartition) -> String {
    let status = partition.status.clone().unwrap_or_default();
    status.message.unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_one_is_passed_until_its_limit_and_then_served() {
    let mut scene = Scene::without_proxy(&[8]).await;
    scene.backfill_limit = 3;
    scene.start_proxy().await;
    let first = scene.want("first", 4).await;
    scene.once_in(&first, PartitionPhase::Ready).await;
    let large = scene.want("large", 8).await;
    scene.once_waiting(&large).await;
    let passing = scene.want("passing", 2).await;
    scene.once_in(&passing, PartitionPhase::Ready).await;

    // Each new one has its own first look, so that one of them comes after the limit.
    let mut others = 0;
    let held_up = eventually("one comes after the limit", async || {
        let small = scene.want(&format!("small-{others}"), 1).await;
        others += 1;
        let seen = scene
            .once(&small, "it is served or told why not", |object| {
                let status = object.status.clone().unwrap_or_default();
                status.phase == PartitionPhase::Ready || !status.waiting.is_empty()
            })
            .await;
        if seen.status.clone().unwrap().phase != PartitionPhase::Ready {
            return Some(seen);
        }
        scene.delete(&small).await;
        scene.once_gone(&small).await;
        None
    })
    .await;
    let said = message(&held_up);
    assert!(
        said.contains("is reserved for default/large (8 IPUs), which waits since"),
        "{said}"
    );

    scene.delete(&first).await;
    scene.delete(&passing).await;
    let large = scene.once_in(&large, PartitionPhase::Ready).await;
    scene.delete(&large).await;
    scene.once_in(&held_up, PartitionPhase::Ready).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_one_that_has_waited_longer_is_served_first() {
    let scene = Scene::start(&[8]).await;
    let first = scene.want("first", 8).await;
    scene.once_in(&first, PartitionPhase::Ready).await;
    // Names against the order, and times of whole seconds.
    let elder = scene.want("z-elder", 8).await;
    scene.once_waiting(&elder).await;
    let made = |partition: &IPUPartition| partition.metadata.creation_timestamp.clone().unwrap();
    let younger = eventually("one is made in a later second", async || {
        let younger = scene.want("a-younger", 8).await;
        if made(&younger) > made(&elder) {
            return Some(younger);
        }
        scene.delete(&younger).await;
        scene.once_gone(&younger).await;
        None
    })
    .await;
    scene.once_waiting(&younger).await;
    scene.delete(&first).await;
    let elder = scene.once_in(&elder, PartitionPhase::Ready).await;
    assert_eq!(scene.ids(), [[id(&elder)]]);
    scene.delete(&elder).await;
    scene.once_in(&younger, PartitionPhase::Ready).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gang_takes_nothing_before_there_is_room_for_all_of_it() {
    let scene = Scene::start(&[8, 8]).await;
    let other = scene.want("other", 8).await;
    scene.once_in(&other, PartitionPhase::Ready).await;
    let gang = want_gang(&scene, "gang", 3, 4).await;
    for one in &gang {
        // Before a controller was looked at, there is room for fewer.
        let room =
            "3 partitions of 4 IPUs are of use only together, and there is free capacity for 2";
        scene
            .once(one, room, |waiting| message(waiting).contains(room))
            .await;
    }
    let small = scene.want("small", 8).await;
    scene.once_in(&small, PartitionPhase::Ready).await;
    scene.delete(&other).await;
    scene.delete(&small).await;
    for one in &gang {
        scene.once_in(one, PartitionPhase::Ready).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gang_that_can_never_fit_is_rejected_until_more_controllers_are_listed() {
    let mut scene = Scene::without_proxy(&[8, 4]).await;
    scene.list_controllers(&[&scene.pods[0]]).await;
    scene.start_proxy().await;
    let gang = want_gang(&scene, "huge", 3, 4).await;
    for one in &gang {
        let said = message(&scene.once_in(one, PartitionPhase::Rejected).await);
        assert!(
            said.contains("can ever serve 3 partitions of 4 IPUs")
                && said.contains("capacity for 2"),
            "{said}"
        );
    }
    scene
        .list_controllers(&scene.pods.iter().collect::<Vec<_>>())
        .await;
    for one in &gang {
        scene.once_in(one, PartitionPhase::Ready).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gang_that_cannot_be_completed_gives_back_what_it_holds() {
    let scene = Scene::start(&[16]).await;
    let gang = want_gang(&scene, "gang", 3, 4).await;
    let mut held = Vec::new();
    for one in &gang {
        held.push(scene.once_in(one, PartitionPhase::Ready).await);
    }
    // Somebody uses it, so that it is kept whatever becomes of the others.
    let pods = scene.start_pod("user-of-gang", &id(&held[0])).await;
    scene.delete(&held[2]).await;
    scene.once_gone(&held[2]).await;
    scene.put(0, "by-hand-1");
    scene.put(0, "by-hand-2");
    let given_back = scene.once_waiting(&held[1]).await;
    let said = message(&given_back);
    assert!(said.contains("are of use only together"), "{said}");
    let note = scene
        .once_event(&given_back.metadata.name.unwrap(), "Replacing")
        .await;
    assert!(
        note.contains("it is of use only with 2 others, and 1 of them found no free capacity"),
        "{note}"
    );
    assert!(scene.ids()[0].contains(&id(&held[0])));
    let at_once = DeleteParams::default().grace_period(0);
    pods.delete("user-of-gang", &at_once).await.unwrap();
    scene.once_waiting(&held[0]).await;
    scene
        .once_ids("only what was made by hand is left", |ids| {
            ids[0].len() == 2
        })
        .await;
}
