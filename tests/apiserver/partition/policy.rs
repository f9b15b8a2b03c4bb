//! An IPUPolicy places partitions, and their status names it: a real API server, a real module, a
//! vipu-proxy and the rollout leader.

use std::collections::BTreeMap;

use cluster::wait::{Seen, eventually};
use ipu_api::guest::digest::digest_of;
use ipu_api::ipupartition::{DecidedBy, IPUPartition, PartitionPhase};
use ipu_api::ipupolicy::{IPUPolicy, PolicyPhase};
use ipu_guest_host::GuestHost;
use ipu_policies::active_policies::ActivePolicies;
use ipu_runtime::lease::LeadershipStatus;
use ipu_runtime::release::{Process, ReleaseOptions};
use ipu_runtime::scope::Conflicts;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ObjectMeta, Patch, PatchParams};
use release::guests;
use serde_json::{Value, json};
use tests::guests::hostile;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::fixture::{Fixture, NAMESPACE, controller};
use super::install::apply;

/// The rollout leader of the controllers, until it is dropped.
pub(super) async fn rollout_leader(fixture: &Fixture) -> DropGuard {
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

/// Applies a policy that matches only owners whose names begin like this, and waits until it has
/// that phase. Returns its message.
pub(super) async fn once_for(
    fixture: &Fixture,
    (name, owners): (&str, &str),
    module: (&str, &str),
    phase: PolicyPhase,
) -> String {
    let spec = spec_for(owners, module);
    once_applied(fixture, name, &spec, phase).await
}

/// The spec of a policy that matches only owners whose names begin like this.
fn spec_for(owners: &str, module: (&str, &str)) -> Value {
    let expression = format!("request.owner.startsWith('{owners}')");
    json!({
        "hook": "Placement",
        "module": {"configMap": {"name": module.0, "key": module.0}, "digest": module.1},
        "match": {"matchConditions": [{"name": "of-this-test", "expression": expression}]},
    })
}

/// Applies a policy, and waits until it has that phase. Returns its message.
async fn once_applied(fixture: &Fixture, name: &str, spec: &Value, phase: PolicyPhase) -> String {
    let policies = Api::<IPUPolicy>::all(fixture.client.clone());
    let wanted = json!({
        "apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUPolicy", "metadata": {"name": name},
        "spec": spec,
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

/// The decision of the built-in serial walk, as a status names it.
fn by_serial_walk() -> DecidedBy {
    DecidedBy {
        policy: "built-in".to_owned(),
        digest: None,
    }
}

/// Requests a partition of 4 IPUs. Returns it once it is ready.
async fn placed(fixture: &Fixture, owner: &str) -> IPUPartition {
    let wanted = fixture.request(owner, 4).await;
    fixture.once_in(&wanted, PartitionPhase::Ready).await
}

/// Checks that this policy places a partition on this controller, and that an event names both.
async fn check_placed(fixture: &Fixture, by: &DecidedBy, address: &str) {
    let partition = placed(fixture, "fits-well").await;
    assert_eq!(controller(&partition), address, "the fullest one");
    assert_eq!(decided_by(&partition), *by);
    let note = fixture.once_event(&partition.name_any(), "Placed").await;
    let digest = by.digest.as_deref().unwrap();
    assert!(
        note.contains(&by.policy) && note.contains(digest) && note.contains(address),
        "{note}"
    );
}

/// Activates a module with an invalid decision. Checks that the serial walk decides instead, and
/// that an event says why.
async fn check_overruled(fixture: &Fixture, module: (&str, &str), owner: &str, why: &str) {
    once(fixture, "tight", module, PolicyPhase::Active).await;
    let partition = placed(fixture, owner).await;
    assert_eq!(decided_by(&partition), by_serial_walk(), "{owner}");
    let note = fixture
        .once_event(&partition.name_any(), "PolicyOverruled")
        .await;
    assert!(note.contains(why), "{note}");
}

/// Puts the module of an example into a ConfigMap of the release. Returns its digest.
async fn best_fit_module(fixture: &Fixture) -> String {
    let built = tokio::task::spawn_blocking(|| guests::build_examples().unwrap());
    let best_fit = std::fs::read(built.await.unwrap().join("best-fit.wasm")).unwrap();
    module(fixture, "best-fit.wasm", best_fit).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ipupolicy_places_partitions_and_what_it_placed_names_it() {
    let mut fixture = Fixture::start(&[64, 8]).await;
    let _leader = rollout_leader(&fixture).await;
    let digest = best_fit_module(&fixture).await;

    let first = placed(&fixture, "fits-before").await;
    let [large, small] = [0, 1].map(|pod| fixture.pods[pod].address.to_string());
    assert_eq!(controller(&first), large, "the serial walk");
    assert_eq!(decided_by(&first), by_serial_walk());

    let best = ("best-fit.wasm", digest.as_str());
    once(&fixture, "tight", best, PolicyPhase::Active).await;
    let by_policy = DecidedBy {
        policy: "tight".to_owned(),
        digest: Some(digest.clone()),
    };
    check_placed(&fixture, &by_policy, &small).await;

    fixture.kill_proxy().await;
    let early = fixture.request("fits-early", 4).await;
    fixture.start_proxy().await;
    let early = fixture.once_in(&early, PartitionPhase::Ready).await;
    assert_eq!(
        decided_by(&early),
        by_policy,
        "it is loaded before the first decision"
    );

    let other = placed(&fixture, "another").await;
    assert_eq!(controller(&other), large, "the policy matches other owners");

    let contradicted = once(&fixture, "tighter", best, PolicyPhase::Refused).await;
    assert!(contradicted.contains("tight"), "{contradicted}");

    // The controller that it names does not exist.
    let lies = module(&fixture, "mars.wasm", hostile::placement()).await;
    check_overruled(&fixture, ("mars.wasm", &lies), "fits-nowhere", "mars").await;

    // Its wait names no controller.
    let waits = module(&fixture, "waits.wasm", hostile::waiting(170_000)).await;
    let waits = ("waits.wasm", waits.as_str());
    check_overruled(&fixture, waits, "fits-still", "its wait names").await;

    let policies = Api::<IPUPolicy>::all(fixture.client.clone());
    for name in ["tight", "tighter"] {
        let deleted = policies.delete(name, &DeleteParams::default()).await;
        deleted.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_waits_for_a_guest_without_an_answer_if_the_policy_says_so() {
    let mut fixture = Fixture::start(&[64, 8]).await;
    let _leader = rollout_leader(&fixture).await;
    // It names a controller that does not exist.
    let lies = module(&fixture, "mars.wasm", hostile::placement()).await;
    let mut spec = spec_for("steered-", ("mars.wasm", lies.as_str()));
    spec["onError"] = json!("Wait");
    once_applied(&fixture, "steered", &spec, PolicyPhase::Active).await;
    let waiting = fixture.request("steered-away", 4).await;
    let waiting = fixture.once_waiting(&waiting).await;
    let status = waiting.status.as_ref().unwrap();
    for reason in &status.waiting {
        let why = "the guest of IPUPolicy steered gives no answer";
        assert!(reason.reason.contains(why), "{reason:?}");
    }
    placed(&fixture, "another").await;

    // The module is gone when another proxy starts: no request is placed beyond the rule.
    let maps = Api::<ConfigMap>::namespaced(fixture.client.clone(), NAMESPACE);
    maps.delete("mars.wasm", &DeleteParams::default())
        .await
        .unwrap();
    fixture.kill_proxy().await;
    let early = fixture.request("steered-early", 4).await;
    fixture.start_proxy().await;
    fixture.once_waiting(&early).await;

    let digest = best_fit_module(&fixture).await;
    let mut spec = spec_for("steered-", ("best-fit.wasm", digest.as_str()));
    spec["onError"] = json!("Wait");
    once_applied(&fixture, "steered", &spec, PolicyPhase::Active).await;
    for partition in [waiting, early] {
        let ready = fixture.once_in(&partition, PartitionPhase::Ready).await;
        assert_eq!(decided_by(&ready).policy, "steered");
    }
}
