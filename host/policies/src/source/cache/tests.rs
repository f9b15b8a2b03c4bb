//! Modules from folders: of the Pod, and of the volume that others write to as well.

use std::fs;
use std::sync::Arc;

use ipu_api::guest::digest::digest_of;
use ipu_oci::cosign::public_keys;
use k8s_openapi::ByteString;
use kube::{Client, Config};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use rcgen::{KeyPair, SigningKey};
use serde_json::json;
use tokio::sync::Semaphore;

use super::*;
use crate::source::shared_dir::SharedDir;
use crate::source::stored_signature::StoredSignature;

const MODULE: &[u8] = b"a module";

/// A Pod with a folder of its own, and perhaps a volume.
struct Pod {
    sources: Sources,
    _folder: tempfile::TempDir,
}

impl Pod {
    fn new(volume: Option<&Path>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let unreachable = Config::new("http://127.0.0.1:1".parse().unwrap());
        let shared = volume.map(|root| Arc::new(SharedDir::new(root.to_owned(), 1 << 20)));
        let cache = CacheDir::new(folder.path().to_owned(), 1 << 20);
        Self {
            sources: Sources {
                client: Client::try_from(unreachable).unwrap(),
                namespace: "default".to_owned(),
                guests_dir: folder.path().to_owned(),
                cache: Some(Arc::new(cache)),
                shared,
                required_keys: Vec::new(),
                registries: Arc::new(Semaphore::new(1)),
            },
            _folder: folder,
        }
    }

    /// The folder of modules of the Pod itself.
    fn own(&self) -> std::path::PathBuf {
        self.sources.cache.as_ref().unwrap().modules()
    }

    async fn cached(&self, source: &ModuleSource) -> Option<Vec<u8>> {
        let lists = self.sources.key_lists(source).await;
        let cached = self.sources.cached(source, &lists).await;
        cached.map(|cached| cached.component)
    }

    /// Stores the module as if it was fetched, with a signature by each key.
    async fn store(&self, module: &[u8], keys: &[&KeyPair]) {
        let signatures = keys.iter().map(|key| {
            let signature = ByteString(key.sign(module).unwrap());
            (fingerprint(key), StoredSignature::File(signature))
        });
        let fetched = Fetched {
            component: module.to_owned(),
            signatures: signatures.collect(),
        };
        self.sources.store(&source(module, &[]), &fetched).await;
    }
}

fn key() -> KeyPair {
    KeyPair::generate().unwrap()
}

fn fingerprint(key: &KeyPair) -> String {
    let keys = public_keys(key.public_key_pem().as_bytes()).unwrap();
    keys[0].fingerprint().to_owned()
}

/// A module of a registry that one of the keys must have signed, if there are any.
fn source(module: &[u8], keys: &[&KeyPair]) -> ModuleSource {
    let mut source = json!({
        "digest": digest_of(module).as_str(),
        "oci": {"reference": "r.io/a:1"},
    });
    if !keys.is_empty() {
        let keys: String = keys.iter().map(|key| key.public_key_pem()).collect();
        source["oci"]["signature"] = json!({"keys": [{"pem": keys}]});
    }
    serde_json::from_value(source).unwrap()
}

/// The file of the module in a folder, or of its signature by a key.
fn file(folder: &Path, signer: Option<&KeyPair>) -> std::path::PathBuf {
    let digest = digest_of(MODULE).to_string();
    let digest = digest.trim_start_matches("sha256:");
    let kind = match signer {
        Some(key) => format!("signature-{}", &fingerprint(key)["sha256:".len()..]),
        None => "wasm".to_owned(),
    };
    folder.join(format!("{digest}.{kind}"))
}

#[tokio::test]
async fn a_cached_module_that_must_be_signed_needs_a_signature_beside_it() {
    let (pod, signer, other) = (Pod::new(None), key(), key());
    pod.store(MODULE, &[]).await;
    assert!(pod.cached(&source(MODULE, &[])).await.is_some());
    assert_eq!(pod.cached(&source(MODULE, &[&signer])).await, None);
    pod.store(MODULE, &[&signer]).await;
    assert_eq!(pod.cached(&source(MODULE, &[&other])).await, None);
    let both = source(MODULE, &[&other, &signer]);
    assert_eq!(pod.cached(&both).await.as_deref(), Some(MODULE));
    // The signature of another key stays where it is, under the name of that key.
    pod.store(MODULE, &[&other]).await;
    assert!(pod.cached(&source(MODULE, &[&signer])).await.is_some());
    fs::write(file(&pod.own(), None), b"another module").unwrap();
    assert_eq!(pod.cached(&both).await, None);
}

#[tokio::test]
async fn an_unreferenced_module_is_deleted_with_its_signatures() {
    let (pod, signer) = (Pod::new(None), key());
    for module in [MODULE, b"other"] {
        pod.store(module, &[&signer]).await;
    }
    let kept = source(MODULE, &[&signer]);
    pod.sources.prune(std::slice::from_ref(&kept), &[]).await;
    assert_eq!(pod.cached(&source(b"other", &[])).await, None);
    assert!(pod.cached(&kept).await.is_some());
    let files = fs::read_dir(pod.own()).unwrap();
    assert_eq!(files.count(), 2, "the module and its signature");
}

#[tokio::test]
async fn a_new_pod_loads_a_module_from_the_volume_and_stores_it_itself() {
    let (volume, signer) = (tempfile::tempdir().unwrap(), key());
    let signed = source(MODULE, &[&signer]);
    let first = Pod::new(Some(volume.path()));
    first.store(MODULE, &[&signer]).await;
    drop(first);
    let other = tempfile::tempdir().unwrap();
    assert_eq!(
        Pod::new(Some(other.path())).cached(&signed).await,
        None,
        "another volume"
    );
    let second = Pod::new(Some(volume.path()));
    assert_eq!(second.cached(&signed).await.as_deref(), Some(MODULE));
    fs::remove_dir_all(volume.path()).unwrap();
    assert_eq!(second.cached(&signed).await.as_deref(), Some(MODULE));
}

#[tokio::test]
async fn files_of_others_on_the_volume_are_refused_and_replaced() {
    type Change = fn(&Path, &KeyPair);
    let changes: [(&str, Change); 8] = [
        ("another module", |volume, _| {
            fs::write(file(volume, None), b"another module").unwrap();
        }),
        ("a partial module", |volume, _| {
            fs::write(file(volume, None), &MODULE[..3]).unwrap();
        }),
        ("a link to the module", |volume, _| {
            let moved = volume.join("moved");
            fs::rename(file(volume, None), &moved).unwrap();
            std::os::unix::fs::symlink(moved, file(volume, None)).unwrap();
        }),
        ("a pipe that nobody writes to", |volume, _| {
            fs::remove_file(file(volume, None)).unwrap();
            mkfifo(&file(volume, None), Mode::S_IRWXU).unwrap();
        }),
        ("no signature", |volume, signer| {
            fs::remove_file(file(volume, Some(signer))).unwrap();
        }),
        ("an empty marker", |volume, signer| {
            fs::write(file(volume, Some(signer)), []).unwrap();
        }),
        ("the marker of an earlier version", |volume, signer| {
            fs::remove_file(file(volume, Some(signer))).unwrap();
            let key = &fingerprint(signer)["sha256:".len()..];
            let marker = file(volume, None).with_extension(format!("signed-by-{key}"));
            fs::write(marker, []).unwrap();
        }),
        ("a signature by another key", |volume, signer| {
            let forged = StoredSignature::File(ByteString(key().sign(MODULE).unwrap()));
            fs::write(file(volume, Some(signer)), forged.to_file()).unwrap();
        }),
    ];
    for (what, change) in changes {
        let (volume, signer) = (tempfile::tempdir().unwrap(), key());
        let signed = source(MODULE, &[&signer]);
        Pod::new(Some(volume.path()))
            .store(MODULE, &[&signer])
            .await;
        change(volume.path(), &signer);
        let pod = Pod::new(Some(volume.path()));
        assert_eq!(pod.cached(&signed).await, None, "{what}");
        pod.store(MODULE, &[&signer]).await;
        let next = Pod::new(Some(volume.path()));
        assert!(next.cached(&signed).await.is_some(), "{what} is replaced");
    }
}

#[tokio::test]
async fn a_volume_that_cannot_be_written_leaves_the_folder_of_the_pod() {
    let folder = tempfile::tempdir().unwrap();
    let blocked = folder.path().join("file");
    fs::write(&blocked, []).unwrap();
    let pod = Pod::new(Some(&blocked));
    pod.store(MODULE, &[]).await;
    assert!(pod.cached(&source(MODULE, &[])).await.is_some());
    assert_eq!(pod.cached(&source(b"other", &[])).await, None);
    pod.sources.prune_shared(Some(Vec::new())).await;
}

#[tokio::test]
async fn a_volume_that_lacks_a_module_gets_it_from_the_folder_of_a_pod() {
    let (volume, signer) = (tempfile::tempdir().unwrap(), key());
    let pod = Pod::new(Some(volume.path()));
    pod.store(MODULE, &[&signer]).await;
    for lost in [
        file(volume.path(), None),
        file(volume.path(), Some(&signer)),
    ] {
        fs::remove_file(&lost).unwrap();
        assert!(pod.cached(&source(MODULE, &[&signer])).await.is_some());
        assert!(lost.exists(), "{}", lost.display());
        fs::remove_file(&lost).unwrap();
        mkfifo(&lost, Mode::S_IRWXU).unwrap();
        assert!(pod.cached(&source(MODULE, &[&signer])).await.is_some());
        assert!(lost.is_file(), "a pipe is replaced: {}", lost.display());
    }
}
