//! Edited IPUPartitions: the edits that are refused, and the effects of those that bypassed the
//! schema.

use cluster::wait::{Seen, eventually};
use ipu_api::crd;
use ipu_api::ipupartition::{IPUPartition, PartitionOwner, PartitionPhase};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::ApiResource;
use serde_json::json;

use super::fixture::{Fixture, id};
use crate::definitions::{define, loose};

#[tokio::test(flavor = "multi_thread")]
async fn the_spec_cannot_change_after_the_request() {
    let fixture = Fixture::start(&[16]).await;
    let wanted = fixture.request("wanted", 4).await;
    let ready = fixture.once_in(&wanted, PartitionPhase::Ready).await;
    let cases = [
        ("owner", json!({"name": "another"})),
        ("slot", json!(1)),
        ("ipus", json!(8)),
        ("gcds", json!(2)),
        ("options", json!({"reconfigurable": true})),
        ("options", json!({"nodeSelector": {"zone": "a"}})),
    ];
    for (field, value) in cases {
        let change = json!({"spec": {field: value}});
        let refused = fixture.patch(&ready, change).await.unwrap_err().to_string();
        for part in [
            &format!("spec.{field}"),
            "cannot change, because the partition was requested with it",
            "delete the IPUPartition and create it again",
        ] {
            assert!(refused.contains(part), "{part}: {refused}");
        }
    }
    for pinned in [true, false] {
        let moved = json!({"spec": {"options": {"pinned": pinned}}});
        fixture.patch(&ready, moved).await.unwrap();
    }
    let raised = json!({"spec": {"resetGeneration": 3}});
    fixture.patch(&ready, raised).await.unwrap();
    let lowered = json!({"spec": {"resetGeneration": 2}});
    let refused = fixture
        .patch(&ready, lowered)
        .await
        .unwrap_err()
        .to_string();
    for part in ["spec.resetGeneration", "cannot go down", "raise it by 1"] {
        assert!(refused.contains(part), "{part}: {refused}");
    }
    let labelled = json!({"metadata": {"labels": {"a": "b"}}});
    fixture.patch(&ready, labelled).await.unwrap();
    fixture.delete(&ready).await;
    fixture.once_gone(&ready).await;
    assert_eq!(fixture.ids(), [[""; 0]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_bypassed_the_schema_reports_it_delays_no_other_and_leaks_nothing() {
    let fixture = Fixture::start(&[64]).await;
    let kind = ApiResource::erase::<IPUPartition>(&());
    let partitions: Api<DynamicObject> = Api::all_with(fixture.client.clone(), &kind);
    let held = fixture.request("held", 4).await;
    let held = fixture.once_in(&held, PartitionPhase::Ready).await;
    define(&fixture.client, &loose(crd::ipupartition())).await;
    let broken = Patch::Merge(json!({"spec": {"owner": null}}));
    eventually("the loose CRD lets the edit pass", async || {
        let (name, params) = (held.name_any(), PatchParams::default());
        Seen::once_accepted(partitions.patch(&name, &params, &broken).await)
    })
    .await;
    let strange = serde_json::from_value(json!({
        "apiVersion": "graphcore.ai/v1alpha1",
        "kind": "IPUPartition",
        "metadata": {"name": "strange"},
        "spec": {"owner": held.spec.owner, "slot": 7, "ipus": "four", "gcds": 1},
    }));
    let strange = strange.unwrap();
    partitions
        .create(&PostParams::default(), &strange)
        .await
        .unwrap();
    define(&fixture.client, &crd::ipupartition()).await;

    let said = fixture.once_event(&held.name_any(), "Unreadable").await;
    assert!(said.contains("missing field `owner`"), "{said}");
    assert!(said.contains("Correct the field, or delete"), "{said}");
    let said = fixture.once_event("strange", "Unreadable").await;
    assert!(said.contains("spec.ipus cannot be read"), "{said}");

    let good = fixture.request("good", 4).await;
    let good = fixture.once_in(&good, PartitionPhase::Ready).await;
    let orphan = fixture.orphan(0, &nobody()).await;
    let mut kept = vec![id(&held), id(&good)];
    kept.sort();
    fixture
        .once_ids(
            "the sweep takes the orphan and leaves what is held",
            |ids| ids[0] == kept,
        )
        .await;
    assert_ne!(orphan, id(&held));

    // As the event advises: deleted, and its finalizer removed.
    for name in ["strange", &held.name_any()] {
        let gone = partitions.delete(name, &DeleteParams::default()).await;
        gone.unwrap();
    }
    let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    let (name, params) = (held.name_any(), PatchParams::default());
    let freed = partitions.patch(&name, &params, &free);
    freed.await.unwrap();
    fixture
        .once_ids("what it had is swept", |ids| ids[0] == [id(&good)])
        .await;
    fixture.delete(&good).await;
    fixture.once_gone(&good).await;
    assert_eq!(fixture.ids(), [[""; 0]]);
}

fn nobody() -> PartitionOwner {
    PartitionOwner {
        api_version: "example.com/v1".to_owned(),
        kind: "Notebook".to_owned(),
        namespace: "default".to_owned(),
        name: "gone".to_owned(),
        uid: "uid-of-nobody".to_owned(),
    }
}
