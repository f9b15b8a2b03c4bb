//! An IPUPolicy places partitions, and their status names it: a real API server, a real module, a vipu-proxy and the
//! rollout leader.

use std::collections::BTreeMap;

use cluster::wait::{Seen, eventually};
use ipu_api::ipupartition::{DecidedBy, IPUPartition, PartitionPhase};
use ipu_api::ipupolicy::{IPUPolicy, PolicyPhase};
use ipu_guest_host::{GuestHost, digest_of};
use ipu_policies::active_policies::ActivePolicies;
use ipu_runtime::lease::LeadershipStatus;
use ipu_runtime::release::Process;
use ipu_runtime::release::ReleaseOptions;
use ipu_runtime::scope::Conflicts;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ObjectMeta, Patch, PatchParams};
use release::guests;
use serde_json::json;
use tests::guests::hostile;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::fixture::{Fixture, NAMESPACE, controller};
use super::install::apply;

/// The rollout leader of the controllers, until it is dropped.
pub(super) async fn coordinator(fixture: &Fixture) -> DropGuard {
    let release = ReleaseOptions {
        pod_name: Some("controller-0".to_owned()),
        namespace: NAMESPACE.to_owned(),
        fullname: "ipu-operator".to_owned(),
        guests_dir: "/nonexistent".into(),
        ..ReleaseOptions::default()
    };
    let policies = GuestHost::open(ipu_policies::host_options(&release, &[], json!({}))).await;
    let guests = ActivePolicies::new(policies.unwrap());
    let stop = CancellationToken::new();
    let (client, stopping) = (fixture.client.clone(), stop.clone());
    tokio::spawn(async move {
        let asked = (guests, LeadershipStatus::default(), Conflicts::default());
        ipu_policies::follow(client, &release, Process::Controller, asked, stopping).await;
    });
    stop.drop_guard()
}

/// Puts a module into a ConfigMap of the release. Returns its digest.
pub(super) async fn module(fixture: &Fixture, key: &str, bytes: Vec<u8>) -> String {
    let digest = digest_of(&bytes).to_string();
    let map = ConfigMap {
        metadata: ObjectMeta {
            name: Some(key.to_owned()),
            ..ObjectMeta::default()
        },
        binary_data: Some(BTreeMap::from([(key.to_owned(), ByteString(bytes))])),
        ..ConfigMap::default()
    };
    apply(Api::namespaced(fixture.client.clone(), NAMESPACE), &map).await;
    digest
}

/// Applies a policy that matches only the owners of this file, and waits until it has that phase.
async fn once(fixture: &Fixture, name: &str, module: (&str, &str), phase: PolicyPhase) -> String {
    once_for(fixture, (name, "fits-"), module, phase).await
}

/// Applies a policy that matches only owners whose names begin like this, and waits until it has that phase. Returns
/// its message.
pub(super) async fn once_for(
    fixture: &Fixture,
    (name, owners): (&str, &str),
    module: (&str, &str),
    phase: PolicyPhase,
) -> String {
    let expression = format!("request.owner.startsWith('{owners}')");
    let policies = Api::<IPUPolicy>::all(fixture.client.clone());
    let wanted = json!({
        "apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUPolicy", "metadata": {"name": name},
        "spec": {
            "hook": "Placement",
            "module": {"configMap": {"name": module.0, "key": module.0}, "digest": module.1},
            "match": {"matchConditions": [
                {"name": "of-this-test", "expression": expression},
            ]},
        },
    });
    let force = PatchParams::apply("an-admin").force();
    let wanted = Patch::Apply(&wanted);
    let applied = policies.patch(name, &force, &wanted).await;
    let generation = applied.unwrap().metadata.generation;
    let what = format!("the IPUPolicy {name} is {phase:?}");
    let status = eventually(&what, async || {
        let policy = policies.get(name).await.unwrap();
        Seen::when(policy.status.unwrap_or_default(), |status| {
            status.phase == phase && Some(status.observed_generation) == generation
        })
    });
    status.await.message
}

fn decided_by(partition: &IPUPartition) -> DecidedBy {
    let status = partition.status.as_ref().unwrap();
    let attempt = status.attempts.last().unwrap();
    attempt.decided_by.clone().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ipupolicy_places_partitions_and_what_it_placed_names_it() {
    let mut fixture = Fixture::start(&[64, 8]).await;
    let _coordinator = coordinator(&fixture).await;
    let built = tokio::task::spawn_blocking(|| guests::build_examples().unwrap());
    let best_fit = std::fs::read(built.await.unwrap().join("best-fit.wasm")).unwrap();
    let digest = module(&fixture, "best-fit.wasm", best_fit).await;

    let first = fixture.want("fits-before", 4).await;
    let first = fixture.once_in(&first, PartitionPhase::Ready).await;
    let (large, small) = (fixture.pods[0].address, fixture.pods[1].address);
    assert_eq!(controller(&first), large.to_string(), "the serial walk");
    let of_walk = DecidedBy {
        policy: "built-in".to_owned(),
        digest: None,
    };
    assert_eq!(decided_by(&first), of_walk);

    let best = ("best-fit.wasm", digest.as_str());
    once(&fixture, "tight", best, PolicyPhase::Active).await;
    let second = fixture.want("fits-well", 4).await;
    let second = fixture.once_in(&second, PartitionPhase::Ready).await;
    assert_eq!(controller(&second), small.to_string(), "the fullest one");
    let of_policy = DecidedBy {
        policy: "tight".to_owned(),
        digest: Some(digest.clone()),
    };
    assert_eq!(decided_by(&second), of_policy);
    let told = fixture.once_event(&second.name_any(), "Placed").await;
    assert!(
        told.contains("tight") && told.contains(&digest) && told.contains(&small.to_string()),
        "{told}"
    );

    fixture.kill_proxy().await;
    let early = fixture.want("fits-early", 4).await;
    fixture.start_proxy().await;
    let early = fixture.once_in(&early, PartitionPhase::Ready).await;
    assert_eq!(
        decided_by(&early),
        of_policy,
        "it is loaded before the first decision"
    );

    let other = fixture.want("another", 4).await;
    let other = fixture.once_in(&other, PartitionPhase::Ready).await;
    assert_eq!(
        controller(&other),
        large.to_string(),
        "the policy matches other owners"
    );

    let contradicted = once(&fixture, "tighter", best, PolicyPhase::Refused).await;
    assert!(contradicted.contains("tight"), "{contradicted}");

    let lies = module(&fixture, "mars.wasm", hostile::placement()).await;
    once(&fixture, "tight", ("mars.wasm", &lies), PolicyPhase::Active).await;
    let third = fixture.want("fits-nowhere", 4).await;
    let third = fixture.once_in(&third, PartitionPhase::Ready).await;
    assert_eq!(
        decided_by(&third),
        of_walk,
        "the controller that it names does not exist"
    );
    let told = fixture
        .once_event(&third.name_any(), "PolicyOverruled")
        .await;
    assert!(told.contains("mars"), "{told}");

    let waits = module(&fixture, "waits.wasm", hostile::waiting(170_000)).await;
    let waits = ("waits.wasm", waits.as_str());
    once(&fixture, "tight", waits, PolicyPhase::Active).await;
    let fourth = fixture.want("fits-still", 4).await;
    let fourth = fixture.once_in(&fourth, PartitionPhase::Ready).await;
    assert_eq!(decided_by(&fourth), of_walk, "its wait names no controller");
    let told = fixture
        .once_event(&fourth.name_any(), "PolicyOverruled")
        .await;
    assert!(told.contains("its wait names"), "{told}");

    let policies = Api::<IPUPolicy>::all(fixture.client.clone());
    for name in ["tight", "tighter"] {
        let deleted = policies.delete(name, &DeleteParams::default()).await;
        deleted.unwrap();
    }
}
