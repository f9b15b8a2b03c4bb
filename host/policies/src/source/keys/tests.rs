//! Modules of ConfigMaps that must be signed: signed, unsigned, from the cache, and after their key was removed.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{Request, Response, StatusCode};
use ipu_guest_host::digest_of;
use k8s_openapi::ByteString;
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use rcgen::{KeyPair, SigningKey};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tower::{BoxError, service_fn};

use super::*;
use crate::source::Fetched;
use crate::source::cache_dir::CacheDir;
use crate::source::stored_signature::StoredSignature;

const MODULE: &[u8] = b"\0asm, a module";

/// An API server with ConfigMaps, and the folder of a process.
struct World {
    maps: Arc<Mutex<BTreeMap<String, Value>>>,
    is_down: Arc<Mutex<bool>>,
    folder: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        Self {
            maps: Arc::default(),
            is_down: Arc::default(),
            folder: tempfile::tempdir().unwrap(),
        }
    }

    fn put(&self, name: &str, data: &Value) {
        let mut map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
        json_patch::merge(&mut map, data);
        self.maps.lock().insert(name.to_owned(), map);
    }

    /// Writes the module, and its signature in this form.
    fn put_signed(&self, data: &Value) {
        self.put(
            "modules",
            &json!({"binaryData": {"x.wasm": STANDARD.encode(MODULE)}}),
        );
        let mut maps = self.maps.lock();
        json_patch::merge(maps.get_mut("modules").unwrap(), data);
    }

    fn sources(&self, required: Value) -> Sources {
        let (maps, is_down) = (self.maps.clone(), self.is_down.clone());
        let service = service_fn(move |request: Request<Body>| {
            let name = request.uri().path().rsplit('/').next().map(str::to_owned);
            let found = name.and_then(|name| maps.lock().get(&name).cloned());
            let (status, body) = match found {
                _ if *is_down.lock() => (StatusCode::INTERNAL_SERVER_ERROR, failure(500)),
                Some(map) => (StatusCode::OK, map),
                None => (StatusCode::NOT_FOUND, failure(404)),
            };
            let response = Response::builder().status(status);
            let response = response.body(Body::from(body.to_string().into_bytes()));
            async { Ok::<_, BoxError>(response.unwrap()) }
        });
        let folder = self.folder.path().to_owned();
        Sources {
            client: Client::new(service, "default"),
            namespace: "default".to_owned(),
            guests_dir: folder.clone(),
            cache: Some(Arc::new(CacheDir::new(folder, 1 << 20))),
            shared: None,
            required_keys: serde_json::from_value(required).unwrap(),
            registries: Arc::new(Semaphore::new(1)),
        }
    }

    fn forget_cached(&self) {
        std::fs::remove_dir_all(self.folder.path().join("modules")).unwrap();
    }
}

fn failure(code: u16) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code})
}

fn module() -> ModuleSource {
    let module = json!({
        "digest": digest_of(MODULE).as_str(),
        "configMap": {"name": "modules", "key": "x.wasm"},
    });
    serde_json::from_value(module).unwrap()
}

fn key() -> KeyPair {
    KeyPair::generate().unwrap()
}

fn pem(key: &KeyPair) -> Value {
    json!({"pem": key.public_key_pem()})
}

fn signature(key: &KeyPair) -> String {
    STANDARD.encode(key.sign(MODULE).unwrap())
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
    assert_eq!(sources.trust(&module(), &signers).await, Trust::Kept);

    *world.is_down.lock() = true;
    let Trust::Unknown(reason) = sources.trust(&module(), &signers).await else {
        panic!("the keys cannot be read");
    };
    assert!(reason.contains("the ConfigMap keys"), "{reason}");
    *world.is_down.lock() = false;
    let withdrawn = Trust::Withdrawn("policies.requiredKeys");
    put(&key());
    assert_eq!(sources.trust(&module(), &signers).await, withdrawn);
    world.put("keys", &json!({"data": null}));
    assert_eq!(sources.trust(&module(), &signers).await, withdrawn);
    world.maps.lock().remove("keys");
    assert_eq!(sources.trust(&module(), &signers).await, withdrawn);
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
    assert_eq!(sources.trust(&module(), &signers).await, Trust::Kept);
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
