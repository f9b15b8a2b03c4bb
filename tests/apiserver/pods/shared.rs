//! Native Pods that name an existing partition and share it.

use std::collections::BTreeMap;

use ipu_api::ipupartition::{IPUPartition, IPUPartitionSpec, PartitionOptions, PartitionPhase};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;
use vipu_simulator::faults::Method;

use super::environment;
use super::fixture::{Native, delete, is_bound, once_reported, pod};
use crate::partition::fixture::{id, notebook};

/// Creates a Pod that uses a GCD of a partition.
async fn create(pods: &Api<Pod>, name: &str, partition: &IPUPartition, gcd: &str) {
    let annotations = json!({
        "graphcore.ai/partition": partition.name_any(), "graphcore.ai/gcd": gcd,
    });
    let pod = pod(name, &annotations);
    pods.create(&PostParams::default(), &pod).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_existing_partition_is_shared_in_its_namespace_and_in_no_other() {
    let native = Native::start(&[16]).await;
    let partition = native.fixture.request_for(notebook("shared"), 4).await;
    let ready = native
        .fixture
        .once_in(&partition, PartitionPhase::Ready)
        .await;
    create(&native.pods(), "mine", &partition, "0").await;
    let bound = native.once_bound("mine").await;
    assert_eq!(bound.labels()["graphcore.ai/partition-id"], id(&ready));
    for (key, value) in [
        ("graphcore.ai/partition", json!("of-another")),
        ("graphcore.ai/partition", json!(null)),
        ("graphcore.ai/gcd", json!("1")),
        ("graphcore.ai/gcd", json!(null)),
    ] {
        let change = json!({"metadata": {"annotations": {key: value}}});
        native.once_kept("mine", &change).await;
    }
    create(&native.pods(), "beyond", &partition, "1").await;
    let message = once_reported(&native.pods(), "beyond", "InvalidRequest").await;
    assert!(
        message.contains("metadata.annotations[graphcore.ai/gcd]"),
        "{message}"
    );

    let elsewhere: Api<Pod> = native.namespace("elsewhere").await;
    create(&elsewhere, "theirs", &partition, "0").await;
    once_reported(&elsewhere, "theirs", "PartitionNotFound").await;
    assert!(!is_bound(&elsewhere.get("theirs").await.unwrap()));
    delete(&elsewhere, "theirs").await;
    for name in ["mine", "beyond"] {
        delete(&native.pods(), name).await;
    }
    native
        .fixture
        .once_in(&partition, PartitionPhase::Ready)
        .await;
    native.fixture.delete(&partition).await;
    native.once_nothing_is_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_share_a_partition_with_a_gcd_each_and_it_stays_when_one_ends() {
    let native = Native::start(&[16]).await;
    let spec = IPUPartitionSpec {
        owner: notebook("shared"),
        slot: 0,
        ipus: 4,
        gcds: 2,
        options: PartitionOptions::default(),
        owner_metadata: Default::default(),
        reset_generation: 0,
    };
    let partition = native.fixture.request_spec(spec).await;
    let ready = native
        .fixture
        .once_in(&partition, PartitionPhase::Ready)
        .await;
    for (name, gcd) in [("first", "0"), ("second", "1")] {
        create(&native.pods(), name, &partition, gcd).await;
        let bound = native.once_bound(name).await;
        let variables: BTreeMap<_, _> = environment(&bound).into_iter().collect();
        assert_eq!(variables["IPUOF_VIPU_API_PARTITION_ID"], id(&ready));
        assert_eq!(variables["IPUOF_VIPU_API_GCD_ID"], gcd);
    }

    let ended = Patch::Merge(json!({"status": {"phase": "Succeeded"}}));
    let params = PatchParams::default();
    let patched = native.pods().patch_status("first", &params, &ended).await;
    patched.unwrap();
    // Another Pod uses the GCD of the first one, in the same partition.
    create(&native.pods(), "third", &partition, "0").await;
    let bound = native.once_bound("third").await;
    assert_eq!(bound.labels()["graphcore.ai/partition-id"], id(&ready));
    once_reported(&native.pods(), "second", "PartitionReady").await;
    assert_eq!(native.fixture.ids()[0], [id(&ready)]);
    assert_eq!(native.fixture.calls(0, Method::RemovePartition), 0);

    for name in ["first", "second", "third"] {
        delete(&native.pods(), name).await;
    }
    native.fixture.delete(&partition).await;
    native.once_nothing_is_left().await;
}
