//! Modules on a volume that outlives the Pods: without the registry a new Pod loads them, and
//! nothing else from there.

use std::fs;
use std::path::{Path, PathBuf};

use cluster::wait::{Seen, eventually};
use ipu_api::guest::digest::digest_of;
use ipu_api::ipupolicy::{IPUPolicyStatus, PolicyPhase};
use serde_json::json;
use tests::registry::Access;

use super::author::Author;
use super::of_replica;
use crate::policy::fixture::{Fixture, Folders, Other};

/// Starts a replica in a new Pod, with this volume.
async fn new_pod(fixture: &Fixture, name: &'static str, volume: &Path) -> Other {
    let folders = Folders {
        volume: Some(volume),
        ..Folders::default()
    };
    Other::start_with(fixture.client.clone(), name, folders).await
}

/// Waits until the replica calls the policy.
async fn once_called(fixture: &Fixture, replica: &str) {
    let calls = |status: &IPUPolicyStatus| of_replica(status, replica).0;
    let what = format!("called by {replica}");
    fixture.once("small", &what, calls).await;
}

/// Waits until the replica reports that it cannot load the module.
async fn once_lacking(fixture: &Fixture, replica: &str) {
    let lacks = |status: &IPUPolicyStatus| {
        let (_, problem) = of_replica(status, replica);
        problem.is_some_and(|problem| problem.contains("gave no answer to the request for"))
    };
    let what = format!("missing at {replica}");
    fixture.once("small", &what, lacks).await;
}

/// The file of a module on the volume.
fn module_on(volume: &Path) -> PathBuf {
    let entries = fs::read_dir(volume).unwrap();
    let mut paths = entries.map(|entry| entry.unwrap().path());
    let is_module = |path: &PathBuf| path.extension().is_some_and(|kind| kind == "wasm");
    paths.find(is_module).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_pod_loads_a_signed_module_from_the_volume_while_the_registry_is_down() {
    let fixture = Fixture::start().await;
    let mut author = Author::start(Access::Tls).await;
    let pushed = author.push("1").await;
    let mut spec = author.module(&pushed);
    let key = author.key("mine");
    author.sign(&pushed, "mine", true);
    spec["module"]["oci"]["signature"] = json!({"keys": [{"pem": key}]});
    let [volume, other] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let first = new_pod(&fixture, "controller-1", volume.path()).await;
    fixture.apply("small", spec).await.unwrap();
    fixture.once_in("small", PolicyPhase::Active).await;
    once_called(&fixture, "controller-1").await;

    author.registry.stop();
    first.stop().await;
    let second = new_pod(&fixture, "controller-2", volume.path()).await;
    once_called(&fixture, "controller-2").await;
    let elsewhere = new_pod(&fixture, "controller-3", other.path()).await;
    once_lacking(&fixture, "controller-3").await;

    // Another program writes to the volume: a new Pod loads none of that, and replaces it once the
    // registry answers.
    second.stop().await;
    let module = module_on(volume.path());
    fs::write(&module, b"another module").unwrap();
    let third = new_pod(&fixture, "controller-4", volume.path()).await;
    once_lacking(&fixture, "controller-4").await;
    author.registry.start_again().await.unwrap();
    for replica in ["controller-3", "controller-4"] {
        once_called(&fixture, replica).await;
    }
    for volume in [volume.path(), other.path()] {
        let stored = || digest_of(&fs::read(module_on(volume)).unwrap()).to_string();
        eventually("the module is on the volume", async || {
            Seen::when(stored(), |digest| *digest == pushed.component)
        })
        .await;
    }
    third.stop().await;
    elsewhere.stop().await;
}
