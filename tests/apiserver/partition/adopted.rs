//! Partitions of Graphcore's operator that an admin adopts for running jobs.

use std::collections::BTreeMap;

use cluster::wait::{Seen, eventually};
use ipu_api::ipupartition::PartitionPhase;
use ipu_api::labels;
use ipu_operator::adopt::{self, AdoptError};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ObjectMeta, PostParams};
use serde_json::json;
use vipu_simulator::faults::{Down, Method, Order};

use super::fixture::{Fixture, NAMESPACE, controller, id, notebook};

const TRACKER: &str = "ipu-partitions-tracker";

/// The id that Graphcore's operator gave to the partition of the job.
const ID: &str = "p-mnist-default-0";

fn tracker(labels: Option<BTreeMap<String, String>>) -> ConfigMap {
    let text = format!("{{\"partitions\": [\"{ID}\"]}}");
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(TRACKER.to_owned()),
            labels,
            ..ObjectMeta::default()
        },
        data: Some(BTreeMap::from([("tracker".to_owned(), text)])),
        ..ConfigMap::default()
    }
}

/// Creates the remains of Graphcore's operator: its tracker, in some format, and a partition on the
/// second controller.
async fn left(fixture: &Fixture, id: &str) -> Api<ConfigMap> {
    fixture.put(1, id);
    let maps = Api::<ConfigMap>::namespaced(fixture.client.clone(), NAMESPACE);
    // The remains of another test's proxy do not belong to Graphcore's operator.
    if maps.get_opt(TRACKER).await.unwrap().is_some() {
        maps.delete(TRACKER, &DeleteParams::default())
            .await
            .unwrap();
    }
    maps.create(&PostParams::default(), &tracker(None))
        .await
        .unwrap();
    maps
}

/// A Pod of Graphcore's operator: it names its job as its owner, and contains no partition id.
async fn old_pod(fixture: &Fixture, job: &str) -> Api<Pod> {
    let owner = notebook(job);
    fixture
        .start_pod_with(ObjectMeta {
            name: Some(format!("{job}-worker-0")),
            owner_references: Some(vec![OwnerReference {
                api_version: owner.api_version,
                kind: owner.kind,
                name: owner.name,
                uid: owner.uid,
                ..OwnerReference::default()
            }]),
            ..ObjectMeta::default()
        })
        .await
}

/// Runs the command as an admin, and returns its output.
async fn adopt(fixture: &Fixture, yes: bool) -> Result<String, AdoptError> {
    let options = fixture.options("adopt", [0, 0]);
    let mut printed = Vec::new();
    adopt::run(fixture.client.clone(), &options, yes, &mut printed).await?;
    Ok(String::from_utf8(printed).unwrap())
}

/// Checks the output of the command without `--yes`: a partition on the controller with this
/// address is adopted, and one that the tracker does not name is not.
fn check_plan(plan: &str, address: &str) {
    let line =
        format!("{ID}: to be adopted: 4 IPUs with 1 GCDs on {address}, for Notebook default/mnist");
    assert!(plan.starts_with(&line), "{plan}");
    let untracked = "p-other-default-0: left alone: the tracker does not name it";
    assert!(plan.contains(untracked), "{plan}");
    assert!(plan.ends_with(
        "1 to be adopted, 1 left alone; nothing was changed: run it again with --yes\n"
    ));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_in_the_old_tracker_is_adopted_and_released_after_the_old_pods() {
    let mut fixture = Fixture::without_proxy(&[16, 16]).await;
    let maps = left(&fixture, ID).await;
    fixture.put(1, "p-other-default-0");
    let pods: Vec<_> = fixture.pods.iter().collect();
    fixture.cordon(&pods).await;
    fixture.start_proxy().await;
    let old = old_pod(&fixture, "mnist").await;
    let wanted = fixture.request("mnist", 4).await;
    let other = fixture.request("other", 4).await;
    let waiting = fixture.once_waiting(&wanted).await;
    fixture.once_waiting(&other).await;

    let plan = adopt(&fixture, false).await.unwrap();
    let address = fixture.pods[1].address.to_string();
    check_plan(&plan, &address);
    let now = fixture.partitions().get(&wanted.name_any()).await.unwrap();
    assert_eq!(now.status, waiting.status);

    let done = adopt(&fixture, true).await.unwrap();
    assert!(done.starts_with(&format!("{ID}: adopted: ")), "{done}");
    let ready = fixture.once_in(&wanted, PartitionPhase::Ready).await;
    assert_eq!((id(&ready).as_str(), controller(&ready)), (ID, address));
    let pods: Vec<_> = fixture.pods.iter().collect();
    fixture.uncordon(&pods).await;
    let other = fixture.once_in(&other, PartitionPhase::Ready).await;
    assert_ne!(id(&other), "p-other-default-0");
    let made = [0, 1].map(|pod| fixture.calls(pod, Method::CreatePartition));
    assert_eq!(made, [1, 0], "the adopted partition is not created again");
    eventually("the summary names both", async || {
        let data = maps.get(TRACKER).await.unwrap().data.unwrap_or_default();
        Seen::when(data, |data| {
            data.contains_key(ID) && data.contains_key(&id(&other))
        })
    })
    .await;
    let again = adopt(&fixture, true).await.unwrap();
    assert!(again.contains("has it already"), "{again}");
    assert!(again.ends_with("0 adopted, 2 left alone\n"), "{again}");
    let tracker = maps.get(TRACKER).await.unwrap();
    assert!(
        tracker.data.unwrap().contains_key("tracker"),
        "the old tracker remains"
    );

    fixture.kill_proxy().await;
    fixture.start_proxy().await;
    fixture.delete(&wanted).await;
    fixture
        .once(&wanted, "it names the Pod that uses it", |object| {
            let status = object.status.as_ref();
            let message = status.and_then(|status| status.message.as_deref());
            message.is_some_and(|message| message.contains("default/mnist-worker-0"))
        })
        .await;
    assert!(fixture.ids()[1].contains(&ID.to_owned()));
    let at_once = DeleteParams::default().grace_period(0);
    old.delete("mnist-worker-0", &at_once).await.unwrap();
    fixture.once_gone(&wanted).await;
    assert_eq!(fixture.ids()[1], ["p-other-default-0"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_skips_a_job_that_was_placed_meanwhile_and_the_operators_own_summary() {
    let mut fixture = Fixture::without_proxy(&[16, 16]).await;
    let maps = left(&fixture, ID).await;
    fixture.start_proxy().await;
    let placed = fixture.request("mnist", 4).await;
    let placed = fixture.once_in(&placed, PartitionPhase::Ready).await;
    assert_ne!(id(&placed), ID);
    let done = adopt(&fixture, true).await.unwrap();
    assert!(done.contains("already lists another partition"), "{done}");
    let now = fixture.partitions().get(&placed.name_any()).await.unwrap();
    assert_eq!(now.status, placed.status);

    fixture.kill_proxy().await;
    maps.delete(TRACKER, &DeleteParams::default())
        .await
        .unwrap();
    let label = (
        labels::MANAGED_BY_LABEL.to_owned(),
        labels::MANAGED_BY.to_owned(),
    );
    let copy = tracker(Some(BTreeMap::from([label])));
    maps.create(&PostParams::default(), &copy).await.unwrap();
    let refused = adopt(&fixture, true).await.unwrap_err().to_string();
    assert!(refused.contains("this operator's own summary"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_adopted_partition_that_was_released_by_force_is_left_to_the_admin() {
    let mut fixture = Fixture::without_proxy(&[16, 16]).await;
    left(&fixture, ID).await;
    let pods: Vec<_> = fixture.pods.iter().collect();
    fixture.cordon(&pods).await;
    fixture.start_proxy().await;
    let wanted = fixture.request("mnist", 4).await;
    fixture.once_waiting(&wanted).await;
    adopt(&fixture, true).await.unwrap();
    let ready = fixture.once_in(&wanted, PartitionPhase::Ready).await;
    assert_eq!(id(&ready), ID);
    let pods: Vec<_> = fixture.pods.iter().collect();
    fixture.uncordon(&pods).await;

    fixture.pods[1].server.order(Order {
        down: Some(Down::Refuse),
        ..Order::default()
    });
    fixture.delete(&wanted).await;
    let force = json!({"metadata": {"annotations": {labels::FORCE_ANNOTATION: "true"}}});
    fixture.patch(&wanted, force).await.unwrap();
    fixture.once_gone(&wanted).await;
    let note = fixture.once_event(&wanted.name_any(), "Abandoned").await;
    let address = fixture.pods[1].address;
    let expected = format!(
        "given up by force; the sweep does not recognise these partitions; remove them by hand when no Pod uses \
         them: {ID} on {address}"
    );
    assert_eq!(note, expected);

    fixture.pods[1].server.clear();
    // A sweep removes this one. It finds the adopted one too.
    fixture.orphan(1, &notebook("gone")).await;
    fixture
        .once_ids("only the adopted one is left", |ids| ids[1] == [ID])
        .await;
}
