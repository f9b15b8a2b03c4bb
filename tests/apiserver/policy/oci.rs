//! Modules from a real OCI registry, pushed with `policy push` and signed with the real cosign.

mod author;
mod documents;
mod keys;
mod volume;

use std::fs;
use std::path::Path;

use ipu_api::guest::digest::digest_of;
use ipu_api::ipupolicy::{IPUPolicyStatus, PolicyPhase};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use kube::api::{Api, ObjectMeta, PostParams};
use serde_json::{Value, json};
use tests::registry::Access;

use super::fixture::{Fixture, Folders, Other};
use author::Author;

/// Writes a Secret in the namespace of the release.
async fn secret(client: &Client, name: &str, kind: &str, data: &[(&str, Vec<u8>)]) {
    let of = |(key, bytes): &(&str, Vec<u8>)| ((*key).to_owned(), ByteString(bytes.clone()));
    let secret = Secret {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        },
        type_: Some(kind.to_owned()),
        data: Some(data.iter().map(of).collect()),
        ..Secret::default()
    };
    let api = Api::<Secret>::default_namespaced(client.clone());
    api.create(&PostParams::default(), &secret).await.unwrap();
}

fn without(object: &mut Value, field: &str) {
    object.as_object_mut().unwrap().remove(field);
}

/// Returns whether a replica calls the policy, and the reason if it does not.
fn of_replica(status: &IPUPolicyStatus, name: &str) -> (bool, Option<String>) {
    let mut replicas = status.replicas.iter();
    let replica = replicas.find(|replica| replica.name == name);
    let asks = replica.is_some_and(|replica| replica.digest.is_some());
    (asks, replica.and_then(|replica| replica.problem.clone()))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_module_of_a_registry_stays_active_while_the_registry_is_down_also_after_a_restart() {
    let fixture = Fixture::start().await;
    let mut author = Author::start(Access::Tls).await;
    let pushed = author.push("1").await;
    let printed = &pushed.printed;
    for part in [
        "  hook: Validation\n",
        "    digest: sha256:",
        "certificateAuthorities:",
    ] {
        assert!(printed.contains(part), "{part}: {printed}");
    }
    let kept = tempfile::tempdir().unwrap();
    let client = fixture.client.clone();
    let folders = Folders {
        pod: Some(kept.path()),
        ..Folders::default()
    };
    let with_kept = || Other::start_with(client.clone(), "controller-1", folders);
    let other = with_kept().await;
    fixture
        .apply("small", author.module(&pushed))
        .await
        .unwrap();
    let active = fixture.once_in("small", PolicyPhase::Active).await;
    assert_eq!(active.active_digest.as_ref(), Some(&pushed.component));
    fixture.once_answered(8, Some("8")).await;
    let by_both = |status: &IPUPolicyStatus| of_replica(status, "controller-1").0;
    fixture.once("small", "asked by both", by_both).await;

    author.registry.stop();
    other.stop().await;
    let alone = |status: &IPUPolicyStatus| status.replicas.len() == 1;
    fixture.once("small", "asked by one", alone).await;
    let other = with_kept().await;
    fixture.once("small", "asked by both again", by_both).await;
    // A replica without the module reports that it lacks it, and all others continue.
    let third = Other::start(client.clone(), "controller-2").await;
    let lacks = |status: &IPUPolicyStatus| {
        let (_, problem) = of_replica(status, "controller-2");
        problem.is_some_and(|problem| {
            problem.contains("gave no answer to the request for the manifest 1")
        })
    };
    let status = fixture.once("small", "not to be had", lacks).await;
    assert_eq!(status.active_digest, Some(pushed.component));
    fixture.once_answered(8, Some("8")).await;
    author.registry.start_again().await.unwrap();
    let all = |status: &IPUPolicyStatus| of_replica(status, "controller-2") == (true, None);
    fixture.once("small", "asked by all three", all).await;
    third.stop().await;
    other.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_module_is_loaded_where_one_of_the_keys_signed_it_and_refused_otherwise() {
    let fixture = Fixture::start().await;
    let author = Author::start(Access::TlsWithUser).await;
    let (right, wrong) = (author.key("right"), author.key("wrong"));
    let signed = author.push("1").await;
    let config = fs::read(author.path("config.json")).unwrap();
    let kind = "kubernetes.io/dockerconfigjson";
    secret(
        &fixture.client,
        "registry",
        kind,
        &[(".dockerconfigjson", config)],
    )
    .await;
    let keys = [("cosign.pub", right.clone().into_bytes())];
    secret(&fixture.client, "keys", "Opaque", &keys).await;

    let mut spec = author.module(&signed);
    let kept = json!({"secret": {"name": "keys", "key": "cosign.pub"}});
    spec["module"]["oci"]["signature"] = json!({"keys": [kept]});
    fixture.apply("signed", spec.clone()).await.unwrap();
    let refused = fixture.once_in("signed", PolicyPhase::Refused).await;
    let words = "the registry has no signature for it; sign it with `cosign sign --key`";
    assert!(refused.message.contains(words), "{}", refused.message);

    // Signed with a wrong key, and then with the right one: the operator finds the signature
    // without another change.
    author.sign(&signed, "wrong", true);
    let by_other =
        |status: &IPUPolicyStatus| status.message.contains("it matches none of the keys");
    fixture
        .once("signed", "signed with another key", by_other)
        .await;
    author.sign(&signed, "right", true);
    fixture.once_in("signed", PolicyPhase::Active).await;
    fixture.once_answered(8, Some("8")).await;

    // With another key the module is refused, also the earlier version.
    spec["module"]["oci"]["signature"] = json!({"keys": [{"pem": author.key("third")}]});
    fixture.apply("signed", spec.clone()).await.unwrap();
    let refused = fixture.once_in("signed", PolicyPhase::Refused).await;
    assert_eq!(refused.active_digest, Some(signed.component.clone()));
    let stopped = |status: &IPUPolicyStatus| {
        let message = &status.message;
        message.contains("the previous version is refused too, so spec.onError decides")
    };
    fixture.once("signed", "stopped", stopped).await;

    // The older format of cosign, and one of two keys in one text.
    author.sign(&signed, "third", false);
    fixture.once_in("signed", PolicyPhase::Active).await;
    spec["module"]["oci"]["signature"] = json!({"keys": [{"pem": format!("{wrong}{right}")}]});
    fixture.apply("signed", spec).await.unwrap();
    fixture.once_in("signed", PolicyPhase::Active).await;
}

fn set_malformed_ca(oci: &mut Value) {
    oci["certificateAuthorities"] = json!({"pem": "x"});
}

/// Returns the spec with a change of its registry.
fn with(spec: &Value, change: fn(&mut Value)) -> Value {
    let mut spec = spec.clone();
    change(&mut spec["module"]["oci"]);
    spec
}

/// Specs whose credentials are missing or do not fit, each with a part of its status.
fn without_credentials(module: &Value) -> [(Value, &'static str); 6] {
    [
        (
            with(module, |oci| without(oci, "pullSecret")),
            "denies clients without credentials access to",
        ),
        (
            module.clone(),
            "failed to read the Secret registry in namespace default",
        ),
        (
            with(module, |oci| oci["pullSecret"]["name"] = json!("wrong")),
            "it has no entry for 127.0.0.1",
        ),
        (
            with(module, |oci| oci["pullSecret"]["name"] = json!("opaque")),
            "has the type \"Opaque\"",
        ),
        (
            with(module, |oci| without(oci, "certificateAuthorities")),
            "failed to read the Secret registry",
        ),
        (
            with(module, set_malformed_ca),
            "failed to read the Secret registry",
        ),
    ]
}

/// Specs with the right credentials and a wrong CA or digest, each with a part of its status.
fn with_wrong_contents(module: &Value) -> [(Value, &'static str); 3] {
    let mut other = module.clone();
    other["module"]["digest"] = json!(format!("sha256:{}", "0".repeat(64)));
    [
        (
            with(module, |oci| without(oci, "certificateAuthorities")),
            "UnknownIssuer",
        ),
        (with(module, set_malformed_ca), "it holds no certificate"),
        (other, "set spec.module.digest"),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_module_that_a_registry_does_not_serve_is_awaited_and_named() {
    let fixture = Fixture::start().await;
    let example = include_str!("../../../examples/policies/registry.yaml");
    let example: Value = serde_saphyr::from_str(example).unwrap();
    fixture
        .apply("best-fit", example["spec"].clone())
        .await
        .unwrap();
    let author = Author::start(Access::TlsWithUser).await;
    let pushed = author.push("1").await;
    let module = author.module(&pushed);
    let wrong = json!({"auths": {"other.example.com": {"username": "a", "password": "b"}}});
    let kind = "kubernetes.io/dockerconfigjson";
    let data = [(".dockerconfigjson", wrong.to_string().into_bytes())];
    secret(&fixture.client, "wrong", kind, &data).await;
    secret(&fixture.client, "opaque", "Opaque", &data).await;
    for (spec, words) in without_credentials(&module) {
        fixture.apply("waits", spec).await.unwrap();
        let waits = |status: &IPUPolicyStatus| {
            status.phase == PolicyPhase::Loading && status.message.contains(words)
        };
        fixture.once("waits", words, waits).await;
    }
    let config = fs::read(author.path("config.json")).unwrap();
    let data = [(".dockerconfigjson", config)];
    secret(&fixture.client, "registry", kind, &data).await;
    for (spec, words) in with_wrong_contents(&module) {
        fixture.apply("waits", spec).await.unwrap();
        let waits = |status: &IPUPolicyStatus| status.message.contains(words);
        fixture.once("waits", words, waits).await;
    }
    fixture.apply("waits", module).await.unwrap();
    fixture.once_in("waits", PolicyPhase::Active).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pushed_module_is_pulled_again() {
    for access in [Access::Plain, Access::Tls, Access::TlsWithUser] {
        let author = Author::start(access).await;
        let pushed = author.push("1").await;
        assert_eq!(
            author.push("1").await.manifest,
            pushed.manifest,
            "the same each time"
        );
        let by_digest = format!("{}@{}", pushed.reference, pushed.manifest);
        for reference in [&pushed.reference, &by_digest] {
            let file = author.text("pulled.wasm");
            let pull = ["pull", reference, "--output", &file];
            let printed = author.policy(&pull).await.unwrap();
            assert!(
                printed.contains(&format!("manifest   {}", pushed.manifest)),
                "{printed}"
            );
            assert!(printed.contains("signed by  not looked at"), "{printed}");
            let pulled = fs::read(Path::new(&file)).unwrap();
            assert_eq!(digest_of(&pulled).to_string(), pushed.component);
        }
        let missing = format!("{}/team/other:1", author.registry.host());
        let error = author.policy(&["pull", &missing]).await.unwrap_err();
        assert!(error.contains("does not have the manifest 1"), "{error}");
        if access != Access::TlsWithUser {
            continue;
        }
        author.key("mine");
        let (file, key) = (author.text("signed.wasm"), author.text("mine.pub"));
        let pull = ["pull", &pushed.reference, "--output", &file, "--key", &key];
        let error = author.policy(&pull).await.unwrap_err();
        assert!(error.contains("has no signature for it"), "{error}");
        assert!(!Path::new(&file).exists());
        author.sign(&pushed, "mine", true);
        let printed = author.policy(&pull).await.unwrap();
        assert!(printed.contains("signed by  sha256:"), "{printed}");
        fs::write(author.path("config.json"), "{}").unwrap();
        let error = author.policy(&pull).await.unwrap_err();
        assert!(error.contains("clients without credentials"), "{error}");
    }
}
