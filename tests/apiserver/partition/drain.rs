//! Controllers that an admin cordons and drains, in their objects or with `kubectl ipu`.

use std::process::Stdio;

use ipu_api::ipupartition::{IPUPartition, PartitionPhase};
use ipu_api::{naming, partition_conditions};
use kube::api::DeleteParams;
use tokio::process::{Child, Command};

use super::fixture::{Fixture, controller, id};
use crate::plugin::Plugin;

/// `kubectl ipu drain`, which runs until the controller is empty.
fn drain(plugin: &Plugin, address: &str) -> Child {
    // A drain that does not end fails the test.
    let command = plugin.command(&["drain", address, "--timeout", "10m"]);
    let mut command = Command::from(command);
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.kill_on_drop(true).spawn().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cordoned_controller_gets_no_new_partitions_and_keeps_old() {
    let fixture = Fixture::start(&[8, 8]).await;
    let before = fixture.request("before", 4).await;
    let before = fixture.once_in(&before, PartitionPhase::Ready).await;
    fixture.cordon(&[&fixture.pods[0]]).await;
    let cordoned = fixture.pods[0].address.to_string();
    let after = fixture.request("after", 4).await;
    let after = fixture.once_in(&after, PartitionPhase::Ready).await;
    assert_eq!(controller(&after), fixture.pods[1].address.to_string());
    let third = fixture.request("third", 8).await;
    let waiting = fixture.once_waiting(&third).await.status.unwrap().waiting;
    let of_it = waiting
        .iter()
        .find(|one| one.controller == cordoned)
        .unwrap();
    assert_eq!(of_it.reason, "it is cordoned and gets no new partitions");
    assert_eq!(fixture.ids()[0], [id(&before)]);
    fixture.delete(&before).await;
    fixture.once_gone(&before).await;
    fixture.uncordon(&[&fixture.pods[0]]).await;
    let third = fixture.once_in(&third, PartitionPhase::Ready).await;
    assert_eq!(controller(&third), cordoned);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_only_controller_that_could_serve_it_is_waited_for_though_it_is_cordoned() {
    let fixture = Fixture::start(&[4, 16]).await;
    fixture.cordon(&[&fixture.pods[1]]).await;
    let large = fixture.request("large", 16).await;
    let waiting = fixture.once_waiting(&large).await.status.unwrap();
    assert_eq!(waiting.phase, PartitionPhase::Pending);
    fixture.uncordon(&[&fixture.pods[1]]).await;
    fixture.once_in(&large, PartitionPhase::Ready).await;
}

/// Waits until the status of a partition with a live Pod requests its owner to release it.
async fn once_draining(fixture: &Fixture, partition: &IPUPartition) {
    let asked = fixture
        .once(partition, "its owner is asked to release it", |object| {
            let status = object.status.as_ref().unwrap();
            partition_conditions::draining_since(status).is_some()
        })
        .await;
    let status = asked.status.unwrap();
    assert_eq!(status.phase, PartitionPhase::Ready, "it can still be used");
    let message = status.message.unwrap();
    assert!(
        message.contains("is being drained, once 1 live Pods have ended"),
        "{message}"
    );
}

/// Returns a partition once it is ready on another controller, and is not requested to leave that
/// one.
async fn once_moved(fixture: &Fixture, partition: &IPUPartition, address: &str) -> IPUPartition {
    let moved = fixture
        .once(partition, "it moved", |object| {
            let status = object.status.clone().unwrap();
            status.phase == PartitionPhase::Ready && controller(object) == address
        })
        .await;
    assert_eq!(
        partition_conditions::draining_since(&moved.status.clone().unwrap()),
        None
    );
    moved
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drained_controller_is_left_one_after_the_other_and_never_under_a_pod() {
    let fixture = Fixture::start(&[8, 4]).await;
    let plugin = Plugin::of(&fixture.kubeconfig).await;
    let [first, second] = [&fixture.pods[0], &fixture.pods[1]];
    let [first_address, second_address] = [first, second].map(|pod| pod.address.to_string());
    fixture.once_cordon(second, "").await;
    let cordon = ["cordon", &second_address, "--reason", "new firmware"];
    plugin.run(&cordon).unwrap();
    fixture.once_cordon(second, ",Cordoned").await;
    let used = fixture.request("a-used", 4).await;
    let used = fixture.once_in(&used, PartitionPhase::Ready).await;
    let pods = fixture.start_pod("user-of-drained", &id(&used)).await;
    // Both can have the same time. In that case, the name decides.
    let idle = fixture.request("b-idle", 4).await;
    let idle = fixture.once_in(&idle, PartitionPhase::Ready).await;
    assert_eq!(controller(&idle), first_address);

    plugin.run(&["uncordon", &second_address]).unwrap();
    fixture.once_cordon(second, "").await;
    let mut drain = drain(&plugin, &first_address);
    fixture.once_cordon(first, ",Draining").await;
    once_draining(&fixture, &used).await;
    assert_eq!(fixture.ids()[0].len(), 2);

    let at_once = DeleteParams::default().grace_period(0);
    pods.delete("user-of-drained", &at_once).await.unwrap();
    let moved = once_moved(&fixture, &used, &second_address).await;
    fixture
        .once(
            &idle,
            "its status says that no other controller has free capacity",
            |object| {
                let message = object.status.clone().unwrap().message.unwrap();
                message.contains("no other controller has free capacity for 4 IPUs now")
            },
        )
        .await;
    assert_eq!(
        drain.try_wait().unwrap(),
        None,
        "one partition is still there"
    );
    fixture.delete(&moved).await;
    fixture
        .once_ids("the other one has moved as well", |ids| {
            ids[0].is_empty() && ids[1].len() == 1
        })
        .await;
    let drained = drain.wait_with_output().await.unwrap();
    assert!(drained.status.success(), "{drained:?}");
    let name = naming::vipu_controller(&first_address);
    let expected = format!(
        "vipucontroller.graphcore.ai/{name} draining\nvipucontroller.graphcore.ai/{name} drained\n"
    );
    assert_eq!(String::from_utf8(drained.stdout).unwrap(), expected);
}
