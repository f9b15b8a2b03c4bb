//! VIPUControllers: their reports about V-IPU controllers, and the requests of admins in them.

use cluster::wait::{Seen, eventually};
use ipu_api::crd;
use ipu_api::ipupartition::{IPUPartition, PartitionPhase};
use ipu_api::labels;
use ipu_api::naming;
use ipu_api::vipu_controller::{ControllerIpus, VIPUController, VIPUControllerStatus};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use vipu_simulator::Simulator;
use vipu_simulator::faults::{Down, Method, Order};

use super::fixture::{Fixture, NAMESPACE, controller, id};
use crate::chart::admin::Admin;
use crate::definitions::define;

fn status(object: &VIPUController) -> VIPUControllerStatus {
    object.status.clone().unwrap_or_default()
}

/// Status and reason of a condition. If there is none, both are empty.
fn condition(object: &VIPUController, type_: &str) -> String {
    let mut conditions = status(object).conditions.into_iter();
    let found = conditions.find(|one| one.type_ == type_);
    found.map_or_else(String::new, |one| format!("{} {}", one.status, one.reason))
}

impl Fixture {
    /// The admin changes the spec, as with `kubectl patch`.
    async fn patch_controller(&self, pod: &Simulator, spec: Value) {
        let name = naming::vipu_controller(&pod.address.to_string());
        let patch = Patch::Merge(json!({"spec": spec}));
        self.controllers()
            .patch(&name, &PatchParams::default(), &patch)
            .await
            .unwrap();
    }

    async fn once_summary(&self, pod: &Simulator, summary: &str) -> VIPUController {
        let what = format!("its summary is {summary}");
        self.once_controller(pod, &what, |object| status(object).summary == summary)
            .await
    }

    async fn once_controller_gone(&self, pod: &Simulator) {
        let name = naming::vipu_controller(&pod.address.to_string());
        eventually("its object is gone", async || {
            let object = self.controllers().get_opt(&name).await.unwrap();
            Seen::when(object.map(|object| object.status), Option::is_none)
        })
        .await;
    }
}

/// Returns why it waits for this controller.
fn waiting_for(partition: &IPUPartition, pod: &Simulator) -> String {
    let waiting = partition.status.clone().unwrap_or_default().waiting;
    let mut of_pod = waiting
        .into_iter()
        .filter(|one| one.controller == pod.address.to_string());
    of_pod.next().map_or_else(String::new, |one| one.reason)
}

/// Checks the object of a controller in the list, whose IPUs are all free.
fn check_idle(object: &VIPUController, pod: &Simulator, total: u32) {
    let status = status(object);
    assert_eq!(status.address, pod.address.to_string());
    assert_eq!((status.ipus.total, status.ipus.used), (total, 0));
    assert_eq!(
        (&*status.label_key, &*status.label_value),
        ("ipunode", "here")
    );
    assert_eq!(condition(object, "Ready"), "True Reachable");
    assert_eq!(condition(object, "Listed"), "True ControllerListed");
    assert_eq!(
        object.labels()[labels::MANAGED_BY_LABEL],
        labels::MANAGED_BY
    );
    assert_eq!(object.labels()[labels::OPERATOR_NAMESPACE], NAMESPACE);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_controller_of_the_list_has_an_object_that_kubectl_shows() {
    let fixture = Fixture::start(&[16, 8]).await;
    let [first, second] = [&fixture.pods[0], &fixture.pods[1]];
    for (pod, total) in [(first, 16), (second, 8)] {
        let object = fixture.once_summary(pod, "Ready").await;
        check_idle(&object, pod, total);
    }
    let wanted = fixture.request("counted", 4).await;
    fixture.once_in(&wanted, PartitionPhase::Ready).await;
    fixture.put(0, "by-hand");
    fixture
        .once_controller(
            first,
            "it counts partitions of the operator and others",
            |object| {
                let status = status(object);
                let ipus = status.ipus;
                (status.partitions, status.other_partitions) == (1, 1)
                    && (ipus.used, ipus.used_by_others, ipus.largest_free) == (8, 4, 8)
            },
        )
        .await;

    let admin = Admin::of("controller-objects", fixture.kubeconfig.clone());
    let table = admin.kubectl(&["get", "vipu"]).unwrap();
    let rows: Vec<Vec<&str>> = table
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(
        rows[0],
        [
            "NAME",
            "STATUS",
            "IPUS",
            "USED",
            "LARGEST-FREE",
            "PARTITIONS",
            "NODES",
            "ADDRESS",
            "AGE"
        ]
    );
    let address = first.address.to_string();
    let name = naming::vipu_controller(&address);
    let row = rows.iter().find(|row| row[0] == name).unwrap();
    assert_eq!(row[1..6], ["Ready", "16", "8", "8", "1"], "{table}");
    assert_eq!(row[7], address);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cordon_holds_across_a_restart_and_ends_at_once() {
    let mut fixture = Fixture::start(&[8]).await;
    fixture.once_summary(&fixture.pods[0], "Ready").await;
    let cordon = json!({"cordoned": true, "requestedBy": "ann", "reason": "new fans"});
    fixture.patch_controller(&fixture.pods[0], cordon).await;
    fixture
        .once_summary(&fixture.pods[0], "Ready,Cordoned")
        .await;
    let before = fixture.request("before", 4).await;
    let reason = "it is cordoned and gets no new partitions";
    let waiting = fixture.once_waiting(&before).await;
    assert_eq!(waiting_for(&waiting, &fixture.pods[0]), reason);

    // The next proxy finds a request that it could serve, but reads the cordon first.
    fixture.kill_proxy().await;
    let after = fixture.request("after", 4).await;
    fixture.start_proxy().await;
    let waiting = fixture.once_waiting(&after).await;
    assert_eq!(waiting_for(&waiting, &fixture.pods[0]), reason);
    assert_eq!(fixture.calls(0, Method::CreatePartition), 0);
    fixture
        .patch_controller(&fixture.pods[0], json!({"cordoned": false}))
        .await;
    fixture.once_in(&before, PartitionPhase::Ready).await;
    fixture.once_in(&after, PartitionPhase::Ready).await;
    let object = fixture.once_summary(&fixture.pods[0], "Ready").await;
    assert_eq!(object.spec.reason.as_deref(), Some("new fans"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drained_controller_says_when_it_is_empty() {
    let fixture = Fixture::start(&[8, 8]).await;
    let [first, second] = [&fixture.pods[0], &fixture.pods[1]];
    let wanted = fixture.request("moved", 4).await;
    let there = fixture.once_in(&wanted, PartitionPhase::Ready).await;
    assert_eq!(controller(&there), first.address.to_string());
    fixture.once_summary(first, "Ready").await;
    fixture
        .patch_controller(first, json!({"draining": true}))
        .await;
    let drained = fixture
        .once_controller(first, "it is drained", |object| {
            condition(object, "Drained") == "True NoPartitionsLeft"
        })
        .await;
    assert_eq!(status(&drained).summary, "Ready,Draining");
    let moved = fixture.once_in(&wanted, PartitionPhase::Ready).await;
    assert_eq!(controller(&moved), second.address.to_string());
    assert_eq!(fixture.ids(), [vec![], vec![id(&moved)]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_that_left_the_list_keeps_its_object_until_it_is_empty() {
    let fixture = Fixture::start(&[8, 4]).await;
    let [first, second] = [&fixture.pods[0], &fixture.pods[1]];
    let wanted = fixture.request("still", 4).await;
    fixture.once_in(&wanted, PartitionPhase::Ready).await;
    fixture.once_summary(second, "Ready").await;
    fixture
        .once_controller(first, "it counts its partition", |object| {
            status(object).partitions == 1
        })
        .await;
    fixture.list_controllers(&[second]).await;
    let object = fixture.once_summary(first, "Unlisted").await;
    assert_eq!(status(&object).partitions, 1);
    assert_eq!(status(&object).ipus.total, 8);
    assert_eq!(condition(&object, "Listed"), "False ControllerNotListed");
    fixture.delete(&wanted).await;
    fixture.once_gone(&wanted).await;
    fixture.once_controller_gone(first).await;
    fixture.list_controllers(&[first]).await;
    fixture.once_summary(first, "Ready").await;
    fixture.once_controller_gone(second).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreachable_controller_keeps_its_figures() {
    let fixture = Fixture::start(&[8]).await;
    let pod = &fixture.pods[0];
    let wanted = fixture.request("seen", 4).await;
    fixture.once_in(&wanted, PartitionPhase::Ready).await;
    let before = fixture
        .once_controller(pod, "it counts the IPUs", |object| {
            status(object).ipus.used == 4
        })
        .await;
    pod.server.order(Order {
        down: Some(Down::Refuse),
        ..Order::default()
    });
    let down = fixture.once_summary(pod, "NotReady").await;
    assert_eq!(condition(&down, "Ready"), "False Unreachable");
    let last_known = ControllerIpus {
        largest_fit: Some(0),
        ..status(&before).ipus
    };
    assert_eq!(status(&down).ipus, last_known);
    assert_eq!(status(&down).partitions, 1);
    pod.server.clear();
    fixture.once_summary(pod, "Ready").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_release_takes_over_partitions_and_cordons_of_the_former_one() {
    let mut fixture = Fixture::start(&[8]).await;
    fixture.cordon(&[&fixture.pods[0]]).await;
    fixture.reinstall_in("ipu-controller-objects").await;
    let object = fixture
        .once_controller(&fixture.pods[0], "the new release keeps it", |object| {
            object
                .labels()
                .get(labels::OPERATOR_NAMESPACE)
                .map(String::as_str)
                == Some("ipu-controller-objects")
        })
        .await;
    assert!(object.spec.cordoned);
    assert_eq!(status(&object).summary, "Ready,Cordoned");
}

/// Helm does not install new CRDs in an upgrade.
#[tokio::test(flavor = "multi_thread")]
async fn without_the_crd_the_proxy_continues_and_finds_it_later() {
    let mut fixture = Fixture::without_proxy(&[8]).await;
    let client = fixture.client.clone();
    let definitions = Api::<CustomResourceDefinition>::all(client.clone());
    let name = crd::vipu_controller().name_any();
    definitions
        .delete(&name, &DeleteParams::default())
        .await
        .unwrap();
    eventually("VIPUControllers are not served", async || {
        let list = fixture.controllers().list(&Default::default()).await;
        match list {
            Err(kube::Error::Api(status)) if status.code == 404 => Seen::Yes(()),
            Err(error) => Seen::of_error(&error),
            Ok(served) => Seen::NotYet(format!("{served:?}")),
        }
    })
    .await;
    fixture.start_proxy().await;
    let wanted = fixture.request("meanwhile", 4).await;
    fixture.once_in(&wanted, PartitionPhase::Ready).await;
    define(&client, &crd::vipu_controller()).await;
    fixture.once_summary(&fixture.pods[0], "Ready").await;
}
