//! Policies change while they are in use: at once, without a failed call, without a restart.

use ipu_operator::policy::guests::Guests;
use ipu_operator::wasm::BUILT_IN;
use std::collections::BTreeSet;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ipu_operator::wasm::Policies;
use ipu_operator::wasm::facts::PlaceFacts;
use ipu_operator::wasm::model::{ControllerView, Decision, PlaceRequest, Slot};
use serde_json::json;
use tempfile::TempDir;
use tests::guests::hostile;
use tests::wait::{Seen, eventually};
use tokio_util::sync::CancellationToken;

use super::{create, guests, open, options};

const FILE: &str = "defaulting.wasm";

/// The built-in guest with a custom section at its end: the same code, another digest.
fn version(name: u8) -> Vec<u8> {
    let mut bytes = std::fs::read(guests().join(FILE)).unwrap();
    bytes.extend([0, 2, 1, name]);
    bytes
}

/// Puts a file into a folder in one step.
fn put(folder: &Path, file: &str, bytes: &[u8]) {
    let partial = folder.join(".partial");
    std::fs::write(&partial, bytes).unwrap();
    std::fs::rename(partial, folder.join(file)).unwrap();
}

fn digest(policies: &Policies, slot: Slot) -> String {
    let modules = policies.modules();
    let module = modules.iter().find(|module| module.slot == slot).unwrap();
    module.digest.to_string()
}

/// Waits until the digest of the defaulting policy in use is as wanted.
async fn once_digest(policies: &Policies, what: &str, is_wanted: impl Fn(&str) -> bool) {
    eventually(what, async || {
        let now = digest(policies, Slot::Defaulting);
        Seen::when(now, |now| is_wanted(now))
    })
    .await;
}

/// Policies of one slot with a folder for overrides, followed until the guard is dropped.
async fn followed(slot: Slot) -> (Policies, TempDir, impl Drop) {
    let folder = tempfile::tempdir().unwrap();
    let mut options = options(&[slot]);
    options.policies_dir = Some(folder.path().to_owned());
    let policies = open(options).await;
    let stop = CancellationToken::new();
    tokio::spawn({
        let (policies, stop) = (policies.clone(), stop.clone());
        async move { policies.follow(stop).await }
    });
    (policies, folder, stop.drop_guard())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn swaps_under_load_fail_no_call() {
    let (policies, folder, _guard) = followed(Slot::Defaulting).await;
    let done = Arc::new(AtomicBool::new(false));
    let callers: Vec<_> = (0..8)
        .map(|_| {
            let (policies, done) = (policies.clone(), Arc::clone(&done));
            tokio::spawn(async move {
                let (object, admission) = (json!({"spec": {}}), create());
                let (mut calls, mut digests) = (0, BTreeSet::new());
                while !done.load(Ordering::Relaxed) {
                    let served = policies.default_object(&BUILT_IN, &admission, &object, None);
                    let served = served.await.expect("no call fails");
                    assert_eq!(served.answer.object["spec"]["cleanPodPolicy"], "None");
                    digests.insert(served.digest.to_string());
                    calls += 1;
                }
                (calls, digests)
            })
        })
        .collect();
    let mut swapped = BTreeSet::from([digest(&policies, Slot::Defaulting)]);
    for round in 0..6 {
        let before = digest(&policies, Slot::Defaulting);
        put(folder.path(), FILE, &version(b'a' + round % 2));
        once_digest(&policies, "the file is in use", |now| now != before).await;
        swapped.insert(digest(&policies, Slot::Defaulting));
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    done.store(true, Ordering::Relaxed);
    let (mut calls, mut seen) = (0, BTreeSet::new());
    for caller in callers {
        let (count, digests) = caller.await.unwrap();
        calls += count;
        seen.extend(digests);
    }
    assert_eq!(swapped.len(), 3);
    assert_eq!(seen, swapped, "every version served");
    assert!(calls > 100, "only {calls} calls");
    assert_eq!(policies.problems(), []);
}

#[tokio::test]
async fn a_broken_file_is_refused_and_mended() {
    let (policies, folder, _guard) = followed(Slot::Defaulting).await;
    let built_in = digest(&policies, Slot::Defaulting);
    put(folder.path(), FILE, b"not WebAssembly");
    let problem = eventually("the file is refused", async || policies.problems().pop()).await;
    let reason = problem.reason;
    assert!(reason.contains("failed to compile"), "{reason}");
    assert_eq!(digest(&policies, Slot::Defaulting), built_in);
    put(folder.path(), FILE, &version(b'x'));
    once_digest(&policies, "the mended file is in use", |now| {
        now != built_in
    })
    .await;
    assert_eq!(policies.problems(), []);
}

#[tokio::test]
async fn a_removed_override_gives_way_to_the_built_in_one() {
    let (policies, folder, _guard) = followed(Slot::Defaulting).await;
    let built_in = digest(&policies, Slot::Defaulting);
    put(folder.path(), FILE, &version(b'x'));
    once_digest(&policies, "the override is in use", |now| now != built_in).await;
    std::fs::remove_file(folder.path().join(FILE)).unwrap();
    once_digest(&policies, "the built-in one is back", |now| now == built_in).await;
}

#[tokio::test]
async fn a_kubernetes_volume_is_followed() {
    let (policies, folder, _guard) = followed(Slot::Defaulting).await;
    let built_in = digest(&policies, Slot::Defaulting);
    let root = folder.path();
    let publish = |name: &str, bytes: &[u8]| {
        std::fs::create_dir(root.join(name)).unwrap();
        std::fs::write(root.join(name).join(FILE), bytes).unwrap();
        symlink(name, root.join("..data_tmp")).unwrap();
        std::fs::rename(root.join("..data_tmp"), root.join("..data")).unwrap();
    };
    publish("..1", &version(b'1'));
    symlink(Path::new("..data").join(FILE), root.join(FILE)).unwrap();
    once_digest(&policies, "the first version is in use", |now| {
        now != built_in
    })
    .await;
    let first = digest(&policies, Slot::Defaulting);
    publish("..2", &version(b'2'));
    std::fs::remove_dir_all(root.join("..1")).unwrap();
    once_digest(&policies, "the second version is in use", |now| {
        now != first && now != built_in
    })
    .await;
}

#[tokio::test]
async fn a_placement_policy_that_answers_nonsense_is_overruled() {
    let folder = tempfile::tempdir().unwrap();
    put(folder.path(), "serial-walk.wasm", &hostile::placement());
    let mut options = options(&[Slot::Placement]);
    options.policies_dir = Some(folder.path().to_owned());
    let policies = open(options).await;
    assert_eq!(policies.problems(), []);
    let request = PlaceRequest {
        namespace: "default".to_owned(),
        owner: "mnist".to_owned(),
        slot: 0,
        ipus: 4,
        gcds: 1,
        node_selector: std::collections::BTreeMap::new(),
        facts: PlaceFacts::default(),
    };
    let controller = ControllerView {
        name: "pod1:8090".to_owned(),
        label_key: "vipu".to_owned(),
        label_value: "pod1".to_owned(),
        has_nodes: true,
        unreachable: None,
        total_ipus: 16,
        used_ipus: 0,
        largest_free: 16,
        failures: 0,
    };
    let placed = Guests::new(policies)
        .place(&request, &[controller], &[])
        .await;
    assert_eq!(placed.decision, Decision::Try("pod1:8090".to_owned()));
    let overruled = placed.overruled.expect("the answer was nonsense");
    assert!(
        overruled.contains("\"mars\", which is no known controller"),
        "{overruled}"
    );
}
