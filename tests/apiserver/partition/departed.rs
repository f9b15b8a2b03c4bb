//! Controllers that the admin has removed from the list: the status of their partitions, and how
//! they end.

use cluster::wait::{Seen, eventually};
use ipu_api::ipupartition::PartitionPhase;
use ipu_ledger::state_unknown::{CONTROLLER_NOT_LISTED, STATE_UNKNOWN};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use vipu_simulator::faults::{Down, Order};

use super::fixture::{Fixture, LIST, NAMESPACE, id, notebook};
use super::placement::get;
use crate::chart::admin::Admin;

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_that_is_gone_for_good_blocks_nothing_once_an_admin_says_so() {
    let fixture = Fixture::start(&[16, 16]).await;
    let wanted = fixture.request("departed", 4).await;
    fixture.once_in(&wanted, PartitionPhase::Ready).await;
    fixture.pods[0].server.order(Order {
        down: Some(Down::Refuse),
        ..Order::default()
    });
    fixture.list_controllers(&[&fixture.pods[1]]).await;
    fixture.delete(&wanted).await;
    let held = fixture
        .once(
            &wanted,
            "it says that its controller left the list",
            |object| {
                let mut conditions = object.status.iter().flat_map(|status| &status.conditions);
                conditions
                    .any(|one| one.type_ == STATE_UNKNOWN && one.reason == CONTROLLER_NOT_LISTED)
            },
        )
        .await;
    let message = held.status.unwrap().message.unwrap();
    assert!(message.contains("name it under `renamed`"), "{message}");
    fixture
        .once_event(&wanted.name_any(), CONTROLLER_NOT_LISTED)
        .await;
    fixture.mark_gone(&[&fixture.pods[0]]).await;
    fixture.once_gone(&wanted).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_that_left_the_list_is_swept_while_an_ipupartition_refers_to_it() {
    let fixture = Fixture::start(&[16, 8]).await;
    let wanted = fixture.request("still", 4).await;
    let held = fixture.once_in(&wanted, PartitionPhase::Ready).await;
    fixture.list_controllers(&[&fixture.pods[1]]).await;
    eventually("only the other controller is listed", async || {
        let answer = get(fixture.port, "/stats").await;
        let answer = answer.unwrap_or_else(|error| error.to_string());
        let total = r#""total":{"used":4,"available":8}}"#;
        Seen::when(answer, |answer| answer.ends_with(total))
    })
    .await;
    fixture.orphan(0, &notebook("gone")).await;
    let expected = [vec![id(&held)], vec![]];
    fixture
        .once_ids("the orphan on it is removed", |ids| ids == expected)
        .await;
    fixture.delete(&wanted).await;
    fixture.once_gone(&wanted).await;
    assert_eq!(fixture.ids(), [[""; 0]; 2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renamed_controller_keeps_its_partitions_under_the_new_name() {
    let fixture = Fixture::start(&[16]).await;
    let wanted = fixture.request("renamed", 4).await;
    let before = fixture.once_in(&wanted, PartitionPhase::Ready).await;
    let old = fixture.pods[0].address.to_string();
    let new = format!("localhost:{}", fixture.pods[0].address.port());
    let list = json!({"data": {
        "controllers.yaml": format!("{new}:ipunode=here"), "renamed": format!("{old}={new}"),
    }});
    Api::<ConfigMap>::namespaced(fixture.client.clone(), NAMESPACE)
        .patch(LIST, &PatchParams::default(), &Patch::Merge(list))
        .await
        .unwrap();
    let after = fixture
        .once(&wanted, "its controller has the new name", |object| {
            let status = object.status.as_ref().unwrap();
            let attempts = status.attempts.iter().map(|one| &one.controller);
            let mut all = attempts.chain(&status.controller);
            all.all(|one| one.name == new)
        })
        .await;
    let status = after.status.clone().unwrap();
    assert_eq!(status.phase, PartitionPhase::Ready);
    assert_eq!(status.controller.unwrap().host, "localhost");
    assert_eq!(id(&after), id(&before));
    fixture.delete(&wanted).await;
    fixture.once_gone(&wanted).await;
    assert_eq!(fixture.ids(), [[""; 0]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_names_an_unreachable_old_address_and_the_partition_is_released_after_a_rename() {
    let mut fixture = Fixture::start(&[16]).await;
    let wanted = fixture.request("nowhere", 4).await;
    let ready = fixture.once_in(&wanted, PartitionPhase::Ready).await;
    // As if the controller had been listed under an address that no longer exists.
    fixture.kill_proxy().await;
    let (name, params) = (wanted.name_any(), PatchParams::default());
    let address = fixture.pods[0].address;
    let old = format!("nowhere.invalid:{}", address.port());
    let mut status = ready.status.unwrap();
    let attempts = status.attempts.iter_mut().map(|one| &mut one.controller);
    for controller in attempts.chain(&mut status.controller) {
        controller.name.clone_from(&old);
        "nowhere.invalid".clone_into(&mut controller.host);
    }
    let before = Patch::Merge(json!({"status": status}));
    let partitions = fixture.partitions();
    partitions
        .patch_status(&name, &params, &before)
        .await
        .unwrap();
    fixture.start_proxy().await;

    let admin = Admin::of("departed", fixture.kubeconfig.clone());
    let once_shown = async |phase: &str| {
        eventually("kubectl shows what an admin can do", async || {
            let table = admin.kubectl(&["get", "ipup", &name, "--output=wide"]);
            Seen::when(table.unwrap(), |table| {
                table.contains(phase)
                    && table.contains(&format!("{old} does not answer"))
                    && table.contains("name it under `renamed` (old=new)")
            })
        })
        .await
    };
    once_shown("Ready").await;
    fixture.delete(&wanted).await;
    once_shown("Releasing").await;
    let list = json!({"data": {"renamed": format!("{old}={address}")}});
    Api::<ConfigMap>::namespaced(fixture.client.clone(), NAMESPACE)
        .patch(LIST, &params, &Patch::Merge(list))
        .await
        .unwrap();
    fixture.once_gone(&wanted).await;
    assert_eq!(fixture.ids(), [[""; 0]]);
}
