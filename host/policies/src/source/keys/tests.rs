//! Modules of ConfigMaps that must be signed: signed, unsigned, from the cache, and after their key
//! was removed.

use ipu_text::explain;
use k8s_openapi::ByteString;
use rcgen::{KeyPair, SigningKey};
use serde_json::json;

use super::fixture::{MODULE, World, key, module, pem, signature};
use super::*;
use crate::source::stored_signature::StoredSignature;
use crate::source::{Fetched, SignatureFault};

/// Checks the keys of one module alone.
async fn trust(sources: &Sources, signers: &Signers) -> Trust {
    let release = ReleaseKeys::default();
    sources.trust(&module(), signers, &release).await
}

async fn refused(sources: &Sources) -> String {
    let error = sources.fetch(&module()).await.unwrap_err();
    let reason = explain(&error);
    assert!(error.is_refusal(), "{reason}");
    reason
}

#[tokio::test]
async fn a_module_in_a_config_map_is_loaded_with_a_signature_of_a_required_key() {
    let (world, signer) = (World::new(), key());
    let sources = world.sources(json!([pem(&key()), pem(&signer)]));
    world.put_signed(&json!({}));
    let reason = refused(&sources).await;
    for part in [
        "the key \"x.wasm\" of the ConfigMap modules has no signature by a key in policies.requiredKeys",
        "has no key \"x.wasm.sig\"; sign the module with `cosign sign-blob --key`",
    ] {
        assert!(reason.contains(part), "{reason}");
    }
    let text = signature(&signer);
    let bundle = json!({"messageSignature": {"signature": text}}).to_string();
    for data in [
        json!({"data": {"x.wasm.sig": format!("{text}\n")}}),
        json!({"binaryData": {"x.wasm.sig": text}}),
        json!({"data": {"x.wasm.sig": bundle}}),
    ] {
        world.put_signed(&data);
        let fetched = sources.fetch(&module()).await.unwrap();
        assert_eq!(fetched.component, MODULE);
        assert_eq!(fetched.signers().len(), 1);
        world.forget_cached();
    }
    for (text, part) in [
        (
            signature(&key()),
            "does not count: it matches none of the keys",
        ),
        ("{}".to_owned(), "its bundle holds no signature of a file"),
    ] {
        world.put_signed(&json!({"data": {"x.wasm.sig": text}}));
        let reason = refused(&sources).await;
        assert!(reason.contains(part), "{reason}");
    }
}

#[tokio::test]
async fn a_module_of_the_image_needs_no_signature() {
    let world = World::new();
    let sources = world.sources(json!([pem(&key())]));
    std::fs::write(world.folder.path().join("x.wasm"), MODULE).unwrap();
    let source: ModuleSource =
        serde_json::from_value(json!({"image": {"file": "x.wasm"}})).unwrap();
    assert_eq!(sources.fetch(&source).await.unwrap().component, MODULE);
    assert!(!sources.must_be_signed(&source) && sources.must_be_signed(&module()));
}

#[tokio::test]
async fn what_a_removed_key_signed_comes_from_no_cache() {
    let (world, removed, kept) = (World::new(), key(), key());
    world.put_signed(&json!({"data": {"x.wasm.sig": signature(&removed)}}));
    let before = world.sources(json!([pem(&removed), pem(&kept)]));
    before.fetch(&module()).await.unwrap();
    world.maps.lock().clear();
    assert!(before.fetch(&module()).await.is_ok(), "it is cached");
    world.put_signed(&json!({"data": {"x.wasm.sig": signature(&removed)}}));
    let after = world.sources(json!([pem(&kept)]));
    let reason = refused(&after).await;
    assert!(reason.contains("it matches none of the keys"), "{reason}");
    world.put_signed(&json!({"data": {"x.wasm.sig": signature(&kept)}}));
    assert!(after.fetch(&module()).await.is_ok());
}

#[tokio::test]
async fn a_key_that_its_config_map_no_longer_holds_does_not_count() {
    let (world, signer, other) = (World::new(), key(), key());
    let keys = json!([{"configMap": {"name": "keys", "key": "pub"}}, pem(&other)]);
    let sources = world.sources(keys);
    let put = |key: &KeyPair| world.put("keys", &json!({"data": {"pub": key.public_key_pem()}}));
    put(&signer);
    world.put_signed(&json!({"data": {"x.wasm.sig": signature(&signer)}}));
    let signers = sources.fetch(&module()).await.unwrap().signers();
    assert_eq!(trust(&sources, &signers).await, Trust::Kept);

    *world.is_down.lock() = true;
    let Trust::Unknown(reason) = trust(&sources, &signers).await else {
        panic!("the keys cannot be read");
    };
    assert!(reason.contains("the ConfigMap keys"), "{reason}");
    *world.is_down.lock() = false;
    let withdrawn = Trust::Withdrawn("policies.requiredKeys");
    put(&key());
    assert_eq!(trust(&sources, &signers).await, withdrawn);
    world.put("keys", &json!({"data": null}));
    assert_eq!(trust(&sources, &signers).await, withdrawn);
    world.maps.lock().remove("keys");
    let Trust::Absent("policies.requiredKeys", reason) = trust(&sources, &signers).await else {
        panic!("the ConfigMap does not exist");
    };
    assert!(reason.contains("the ConfigMap keys"), "{reason}");
    let error = sources.fetch(&module()).await.unwrap_err();
    assert_eq!(error.signature_fault(), Some(SignatureFault::KeysAbsent));
    let reason = refused(&sources).await;
    for part in [
        "policies.requiredKeys[0] cannot be used",
        "the ConfigMap keys",
    ] {
        assert!(reason.contains(part), "{reason}");
    }
    // The other key of the list is enough.
    world.put_signed(&json!({"data": {"x.wasm.sig": signature(&other)}}));
    let signers = sources.fetch(&module()).await.unwrap().signers();
    assert_eq!(trust(&sources, &signers).await, Trust::Kept);
}

#[tokio::test]
async fn a_key_that_can_appear_again_decides_about_the_refusal() {
    let (world, signer) = (World::new(), key());
    let named = |name: &str| json!({"configMap": {"name": name, "key": "pub"}});
    let sources = world.sources(json!([named("without"), named("absent"), named("without")]));
    world.put("without", &json!({"data": {}}));
    world.put_signed(&json!({"data": {"x.wasm.sig": signature(&signer)}}));
    let fault = async || {
        let error = sources.fetch(&module()).await.unwrap_err();
        error.signature_fault()
    };
    assert_eq!(fault().await, Some(SignatureFault::KeysAbsent));
    world.put("absent", &json!({"data": {}}));
    assert_eq!(fault().await, Some(SignatureFault::Unsigned));
}

#[tokio::test]
async fn the_keys_of_the_release_are_read_once_for_checks_that_begin_together() {
    let (world, signer) = (World::new(), key());
    let sources = world.sources(json!([{"configMap": {"name": "keys", "key": "pub"}}]));
    let data = json!({"data": {"pub": signer.public_key_pem()}});
    world.put("keys", &data);
    world.put_signed(&json!({"data": {"x.wasm.sig": signature(&signer)}}));
    let signers = sources.fetch(&module()).await.unwrap().signers();
    let release = ReleaseKeys::default();
    for _ in 0..2 {
        let trust = sources.trust(&module(), &signers, &release).await;
        assert_eq!(trust, Trust::Kept);
        world.maps.lock().remove("keys");
    }
    assert_ne!(trust(&sources, &signers).await, Trust::Kept);
}

#[tokio::test]
async fn a_key_of_each_list_must_have_signed_a_cached_module() {
    let (world, of_policy, of_release) = (World::new(), key(), key());
    let sources = world.sources(json!([pem(&of_release)]));
    let mut source = module();
    source.config_map = None;
    let oci = json!({"reference": "r.io/a:1", "signature": {"keys": [pem(&of_policy)]}});
    source.oci = serde_json::from_value(oci).unwrap();
    let fingerprint = |key: &KeyPair| {
        let keys = public_keys(key.public_key_pem().as_bytes()).unwrap();
        keys[0].fingerprint().to_owned()
    };
    let lists = sources.key_lists(&source).await;
    let store = async |signers: &[&KeyPair]| {
        let signatures = signers.iter().map(|key| {
            let signature = ByteString(key.sign(MODULE).unwrap());
            (fingerprint(key), StoredSignature::File(signature))
        });
        let fetched = Fetched {
            component: MODULE.to_owned(),
            signatures: signatures.collect(),
        };
        sources.store(&source, &fetched).await;
    };
    store(&[&of_policy]).await;
    assert_eq!(sources.cached(&source, &lists).await, None);
    store(&[&of_release]).await;
    let cached = sources.cached(&source, &lists).await.unwrap();
    assert_eq!(cached.signers().len(), 2);
}
