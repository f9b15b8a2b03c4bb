//! IPUPolicies with the guests of the previous release, which were created and active under its
//! CRD. The guests decide under this version.

use std::fs;

use cluster::wait::{Seen, eventually};
use ipu_api::crd;
use ipu_api::ipupartition::IPUPartition;
use ipu_api::ipupolicy::{IPUPolicy, PolicyPhase};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::api::{Api, DynamicObject, ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use release::guests::checkout;
use release::package::previous::Previous;
use serde_json::{Value, json};
use tests::guests::released::{MODULES, REFUSED, Released, guests};

use crate::definitions::define;
use crate::job::single;
use crate::planes;
use crate::processes::{Given, Installation, RELEASE};

/// The status with which the previous release leaves an active policy.
fn active(spec: &Value) -> Value {
    let (at, digest) = ("2026-11-24T12:00:00Z", &spec["module"]["digest"]);
    json!({"status": {
        "phase": "Active", "message": "every replica asks it", "observedGeneration": 1,
        "desiredDigest": digest, "activeDigest": digest, "since": at,
        "active": {"generation": 1, "digest": digest, "since": at, "spec": spec},
        "calls": {"answered": 0, "failed": 0},
    }})
}

/// The policies, as objects that no version of the CRD changes.
fn policies(client: &Client) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("graphcore.ai", "v1alpha1", "IPUPolicy");
    let resource = ApiResource::from_gvk_with_plural(&kind, "ipupolicies");
    Api::all_with(client.clone(), &resource)
}

/// Waits until the API server refuses a value that the previous release does not have.
async fn once_previous(client: &Client, placement: &Released) {
    let mut spec = placement.spec();
    spec["onError"] = json!("Wait");
    let dry_run = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let (policies, newer) = (policies(client), policy("newer", &spec));
    eventually("the API server serves the previous CRD", async || {
        let asked = policies.create(&dry_run, &newer).await;
        Seen::when(asked.err(), Option::is_some)
    })
    .await;
}

fn policy(name: &str, spec: &Value) -> DynamicObject {
    let policy = json!({
        "apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUPolicy",
        "metadata": {"name": name}, "spec": spec,
    });
    serde_json::from_value(policy).unwrap()
}

/// Creates the policies and their modules under the CRD of the previous release.
async fn created_before(client: &Client, guests: &[Released]) {
    let namespace = Namespace {
        metadata: named(RELEASE),
        ..Namespace::default()
    };
    let (namespaces, parameters) = (Api::all(client.clone()), PostParams::default());
    namespaces.create(&parameters, &namespace).await.unwrap();
    let modules = guests.iter();
    let modules = modules.map(|guest| (guest.key(), ByteString(fs::read(&guest.file).unwrap())));
    let map = ConfigMap {
        metadata: named(MODULES),
        binary_data: Some(modules.collect()),
        ..ConfigMap::default()
    };
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), RELEASE);
    maps.create(&parameters, &map).await.unwrap();
    let (policies, nobody) = (policies(client), PatchParams::default());
    for guest in guests {
        let spec = guest.spec();
        let policy = policy(guest.policy, &spec);
        policies.create(&parameters, &policy).await.unwrap();
        let status = Patch::Merge(active(&spec));
        let written = policies.patch_status(guest.policy, &nobody, &status);
        written.await.unwrap();
    }
}

fn named(name: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        ..ObjectMeta::default()
    }
}

/// Waits until the operator calls the guest of each policy, and each has decided.
async fn once_decided(client: &Client, guests: &[Released]) {
    let policies: Api<IPUPolicy> = Api::all(client.clone());
    for name in guests.iter().map(|guest| guest.policy) {
        eventually(&format!("the guest of {name} has decided"), async || {
            let status = policies.get(name).await.unwrap().status.unwrap_or_default();
            Seen::when(status, |status| {
                status.phase == PolicyPhase::Active && status.calls.answered > 0
            })
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn guests_of_the_previous_release_decide_under_this_version() {
    let plane = planes::with_definitions().await;
    let client = plane.client().await.unwrap();
    let texts = Previous::locked(checkout()).unwrap().texts(checkout());
    let guests = guests(checkout()).unwrap();
    let [.., placement] = &guests;
    let previous = fs::read_to_string(texts.join("crds/ipupolicies.graphcore.ai.yaml")).unwrap();
    let previous: CustomResourceDefinition = serde_saphyr::from_str(&previous).unwrap();
    define(&client, &previous).await;
    once_previous(&client, placement).await;
    created_before(&client, &guests).await;

    define(&client, &crd::ipupolicy()).await;
    let installation = Installation::of(plane, Given::default()).await;
    let _proxy = installation.proxy("proxy", Vec::new()).await;
    let _controller = installation.controller("controller", Vec::new()).await;
    installation.run_job("small").await;

    // The limit is only in the settings of the policy.
    let mut large = single("large");
    large["spec"]["ipusPerJobInstance"] = json!("16");
    let large = serde_json::from_value(large).unwrap();
    let parameters = PostParams::default();
    let refused = installation.jobs().create(&parameters, &large).await;
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains(REFUSED), "{refused}");

    // No other guest sets defaults.
    let small = installation.jobs().get("small").await.unwrap().spec;
    let small = serde_json::to_value(small).unwrap();
    assert_eq!(small["cleanPodPolicy"], json!("None"));
    let defaults = json!({"type": "Never", "backOffLimit": 3});
    assert_eq!(small["restartPolicy"], defaults);

    let partitions: Api<IPUPartition> = Api::all(client.clone());
    let found = partitions.list(&ListParams::default()).await.unwrap();
    let status = found.items[0].status.clone().unwrap();
    let by = status.attempts[0].decided_by.clone().unwrap();
    assert_eq!(by.policy, placement.policy);
    assert_eq!(by.digest.as_ref(), Some(&placement.digest));
    once_decided(&client, &guests).await;
}
