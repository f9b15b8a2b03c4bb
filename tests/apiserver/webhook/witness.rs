//! A policy receives the labels and the usage of the request's namespace: a real API server, a real
//! component.

use cluster::wait::{Seen, eventually};
use ipu_api::ipupartition::IPUPartition;
use ipu_api::ipupolicy::Hook;
use ipu_api::labels;
use ipu_guest_host::componentize;
use ipu_guest_host::model::built_in_file;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, Patch, PatchParams, PostParams};
use release::guests;
use serde_json::json;
use tests::guests::hostile::{MEMORY, component};

use super::fixture::Webhooks;
use super::job;

/// A validation policy that shows its input. It refuses everything in the namespace `default`
/// (seven letters, from byte 36 of the request), which shows that it is called. Elsewhere it warns
/// with its input: one sign for each IPU of the namespace, then keys and values of the namespace's
/// labels. In the request the labels begin at byte 48, their number is at byte 52, and the IPUs are
/// at byte 60. A list of pairs of texts is in memory a list of twice as many texts.
fn witness() -> Vec<u8> {
    let text = format!(
        r#"(module
          {MEMORY}
          (data (i32.const 512) "{signs}")
          (func (export "ipu:policy/validator@0.1.0#validate-settings") (param i32 i32) (result i32)
            (i32.const 16))
          (func (export "ipu:policy/validator@0.1.0#validate") (param i32) (result i32)
            (if (i32.eq (i32.load offset=40 (local.get 0)) (i32.const 7)) (then
              (i32.store (i32.const 36) (i32.const 99000))
              (i32.store (i32.const 40) (i32.const 1))
              (return (i32.const 32))))
            (i32.store (i32.const 100000) (i32.const 512))
            (i32.store (i32.const 100004) (i32.load offset=60 (local.get 0)))
            (memory.copy (i32.const 100008) (i32.load offset=48 (local.get 0))
              (i32.mul (i32.load offset=52 (local.get 0)) (i32.const 16)))
            (i32.store (i32.const 44) (i32.const 100000))
            (i32.store (i32.const 48)
              (i32.add (i32.const 1) (i32.mul (i32.load offset=52 (local.get 0)) (i32.const 2))))
            (i32.const 32)))"#,
        signs = "=".repeat(64),
    );
    componentize(&component(&text), Some(Hook::Validation)).unwrap()
}

#[tokio::test]
async fn a_policy_sees_the_labels_and_the_usage_of_its_namespace() {
    let folder = tempfile::tempdir().unwrap();
    let built = tokio::task::spawn_blocking(|| guests::build().unwrap());
    let defaulting = built_in_file(Hook::Defaulting);
    let built = built.await.unwrap().join(defaulting);
    std::fs::copy(built, folder.path().join(defaulting)).unwrap();
    let file = folder.path().join(built_in_file(Hook::Validation));
    std::fs::write(&file, witness()).unwrap();
    let webhooks = Webhooks::start_with(folder.path().to_owned()).await;
    let team: Namespace = serde_json::from_value(json!({
        "metadata": {"name": "vision", "labels": {"tier": "gold"}},
    }))
    .unwrap();
    let namespaces: Api<Namespace> = Api::all(webhooks.client());
    let params = PostParams::default();
    namespaces.create(&params, &team).await.unwrap();
    for (name, namespace, ipus) in [("a", "vision", 4), ("b", "vision", 2), ("c", "other", 16)] {
        hold(webhooks.client(), name, namespace, ipus).await;
    }
    let view = webhooks.in_namespace("vision");
    let mut probe = job("probe", |_| {});
    if let Some(metadata) = probe["metadata"].as_object_mut() {
        metadata.remove("namespace");
    }
    let expected = [
        "======",
        "kubernetes.io/metadata.name",
        "vision",
        "tier",
        "gold",
    ];
    let mut round = 0;
    eventually("the policy receives the namespace", async || {
        round += 1;
        probe["metadata"]["name"] = json!(format!("probe-{round}"));
        let made = view.create(&probe).await.unwrap();
        Seen::when(made.warnings, |warnings| {
            let texts: Vec<_> = warnings.iter().map(|one| text(one)).collect();
            texts == expected
        })
    })
    .await;
}

/// Returns the text within a line such as `299 - "text"`.
fn text(warning: &str) -> &str {
    warning.trim_start_matches("299 - ").trim_matches('"')
}

/// Creates an IPUPartition that has its IPUs.
async fn hold(client: kube::Client, name: &str, namespace: &str, ipus: u32) {
    let partitions: Api<IPUPartition> = Api::all(client);
    let partition: IPUPartition = serde_json::from_value(json!({
        "apiVersion": "graphcore.ai/v1alpha1",
        "kind": "IPUPartition",
        "metadata": {"name": name, "finalizers": [labels::PARTITION_FINALIZER]},
        "spec": {
            "owner": {
                "apiVersion": "example.com/v1", "kind": "Notebook", "namespace": namespace,
                "name": name, "uid": name,
            },
            "slot": 0, "ipus": ipus, "gcds": 1,
        },
    }))
    .unwrap();
    let params = PostParams::default();
    partitions.create(&params, &partition).await.unwrap();
    let status = json!({"status": {"phase": "Ready", "generation": 1, "partitionId": name}});
    let (params, patch) = (PatchParams::default(), Patch::Merge(status));
    let patched = partitions.patch_status(name, &params, &patch);
    patched.await.unwrap();
}
