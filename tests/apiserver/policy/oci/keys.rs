//! What a removed key signed has no guest within a minute: keys of a policy, and keys of the
//! release.

use std::time::{Duration, Instant};

use ipu_api::ipupolicy::{IPUPolicyStatus, PolicyPhase};
use ipu_runtime::release::RequiredKeys;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::api::{Api, ObjectMeta, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tests::registry::Access;

use super::author::{Author, Pushed};
use crate::policy::fixture::{Fixture, built_in, of_map};

/// A removed key has no effect after this time.
const A_MINUTE: Duration = Duration::from_mins(1);

/// A rule against jobs of more than four IPUs, whose module needs a signature by one of these keys.
fn signed_by(author: &Author, pushed: &Pushed, keys: &Value) -> Value {
    let mut spec = author.module(pushed);
    spec["module"]["oci"]["signature"] = json!({ "keys": keys });
    spec
}

#[tokio::test(flavor = "multi_thread")]
async fn a_module_stops_within_a_minute_after_the_key_that_signed_it_left_its_policy() {
    let fixture = Fixture::start().await;
    let author = Author::start(Access::Tls).await;
    let (first, second) = (author.key("first"), author.key("second"));
    let pushed = author.push("1").await;
    author.sign(&pushed, "first", true);
    let keys = json!([{"pem": first}, {"pem": second}]);
    fixture
        .apply("rule", signed_by(&author, &pushed, &keys))
        .await
        .unwrap();
    fixture.once_in("rule", PolicyPhase::Active).await;
    fixture
        .once_answered(8, Some("spec.ipusPerJobInstance"))
        .await;

    let removed = Instant::now();
    let keys = json!([{"pem": second}]);
    fixture
        .apply("rule", signed_by(&author, &pushed, &keys))
        .await
        .unwrap();
    // By default a missing guest refuses every request.
    let words = "has no signature by a key in spec.module.oci.signature.keys";
    fixture.once_answered(2, Some(words)).await;
    assert!(removed.elapsed() < A_MINUTE, "{:?}", removed.elapsed());
    // The status follows the report of the replica with a short delay.
    let stopped = |status: &IPUPolicyStatus| status.message.contains("is refused too");
    let refused = fixture.once("rule", "stopped", stopped).await;
    for part in [
        "the previous version is refused too, so spec.onError decides",
        "has no signature by a key in spec.module.oci.signature.keys",
        "sign it with one of the keys that are given",
    ] {
        assert!(refused.message.contains(part), "{}", refused.message);
    }
    let asked = |status: &IPUPolicyStatus| {
        status
            .replicas
            .iter()
            .any(|replica| replica.digest.is_some())
    };
    assert!(!asked(&refused), "no replica calls it");

    // The operator finds the signature by the remaining key without another change.
    author.sign(&pushed, "second", false);
    fixture.once_in("rule", PolicyPhase::Active).await;
    fixture.once_answered(2, None).await;
    fixture
        .once_answered(8, Some("spec.ipusPerJobInstance"))
        .await;
}

/// Writes a text into a ConfigMap of the release's namespace.
async fn put(client: &Client, name: &str, key: &str, text: &str) {
    let api = Api::<ConfigMap>::default_namespaced(client.clone());
    let data = [(key.to_owned(), text.to_owned())].into();
    if api.get_opt(name).await.unwrap().is_none() {
        let map = ConfigMap {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                ..ObjectMeta::default()
            },
            data: Some(data),
            ..ConfigMap::default()
        };
        api.create(&PostParams::default(), &map).await.unwrap();
        return;
    }
    let patch = Patch::Merge(json!({"data": {key: text}}));
    api.patch(name, &PatchParams::default(), &patch)
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_with_required_keys_loads_no_other_modules_and_none_of_a_removed_key() {
    let key = json!([{"configMap": {"name": "release-keys", "key": "cosign.pub"}}]);
    let required: RequiredKeys = key.to_string().parse().unwrap();
    let fixture = Fixture::start_requiring(required).await;
    let author = Author::start(Access::Tls).await;
    let client = &fixture.client;
    put(client, "release-keys", "cosign.pub", &author.key("first")).await;
    let module = built_in("validation.wasm");
    let digests = fixture.modules(&[("rule.wasm", module.clone())]).await;
    let mut spec = of_map("Validation", "rule.wasm", &digests[0]);
    spec["settings"] = json!({"maxIpusPerJob": 4});
    spec["onError"] = json!("Ignore");
    fixture.apply("rule", spec).await.unwrap();
    let refused = fixture.once_in("rule", PolicyPhase::Refused).await;
    for part in [
        "has no signature by a key in policies.requiredKeys",
        "has no key \"rule.wasm.sig\"; sign the module with `cosign sign-blob --key`",
    ] {
        assert!(refused.message.contains(part), "{}", refused.message);
    }
    fixture.once_answered(8, None).await;
    let signature = author.sign_file(&module, "first");
    put(client, "modules", "rule.wasm.sig", &signature).await;
    fixture.once_in("rule", PolicyPhase::Active).await;
    fixture
        .once_answered(8, Some("spec.ipusPerJobInstance"))
        .await;

    let removed = Instant::now();
    put(client, "release-keys", "cosign.pub", &author.key("second")).await;
    fixture.once_answered(8, None).await;
    assert!(removed.elapsed() < A_MINUTE, "{:?}", removed.elapsed());
    let refused = fixture.once_in("rule", PolicyPhase::Refused).await;
    for part in [
        "refuses the module, and spec.onError decides",
        "it matches none of the keys",
        "policies.requiredKeys",
    ] {
        assert!(refused.message.contains(part), "{}", refused.message);
    }
    let signature = author.sign_file(&module, "second");
    put(client, "modules", "rule.wasm.sig", &signature).await;
    fixture.once_in("rule", PolicyPhase::Active).await;
    fixture
        .once_answered(8, Some("spec.ipusPerJobInstance"))
        .await;
}
