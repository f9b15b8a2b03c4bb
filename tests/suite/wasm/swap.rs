//! Policies change while they are in use: at once, without a failed call, without a restart.

use std::collections::BTreeSet;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ipu_operator::wasm::Policies;
use ipu_operator::wasm::model::{ControllerView, Decision, Operation, PlaceRequest, Slot};
use serde_json::json;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use super::{guests, hostile, open, options, until};

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
                let object = json!({"spec": {}});
                let (mut calls, mut digests) = (0, BTreeSet::new());
                while !done.load(Ordering::Relaxed) {
                    let served = policies.default_object(Operation::Create, &object, None);
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
        until("the file is in use", || {
            digest(&policies, Slot::Defaulting) != before
        })
        .await;
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
    until("the file is refused", || !policies.problems().is_empty()).await;
    let reason = &policies.problems()[0].reason;
    assert!(reason.contains("failed to compile"), "{reason}");
    assert_eq!(digest(&policies, Slot::Defaulting), built_in);
    put(folder.path(), FILE, &version(b'x'));
    until("the mended file is in use", || {
        digest(&policies, Slot::Defaulting) != built_in
    })
    .await;
    assert_eq!(policies.problems(), []);
}

#[tokio::test]
async fn a_removed_override_gives_way_to_the_built_in_one() {
    let (policies, folder, _guard) = followed(Slot::Defaulting).await;
    let built_in = digest(&policies, Slot::Defaulting);
    put(folder.path(), FILE, &version(b'x'));
    until("the override is in use", || {
        digest(&policies, Slot::Defaulting) != built_in
    })
    .await;
    std::fs::remove_file(folder.path().join(FILE)).unwrap();
    until("the built-in one is back", || {
        digest(&policies, Slot::Defaulting) == built_in
    })
    .await;
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
    until("the first version is in use", || {
        digest(&policies, Slot::Defaulting) != built_in
    })
    .await;
    let first = digest(&policies, Slot::Defaulting);
    publish("..2", &version(b'2'));
    std::fs::remove_dir_all(root.join("..1")).unwrap();
    until("the second version is in use", || {
        let now = digest(&policies, Slot::Defaulting);
        now != first && now != built_in
    })
    .await;
}

#[tokio::test]
async fn a_placement_policy_that_answers_nonsense_is_overruled() {
    let folder = tempfile::tempdir().unwrap();
    // Decision `try` (0) with the four bytes at address 64 as the name of a controller.
    let core = r#"(module
      (memory (export "memory") 2)
      (global $next (mut i32) (i32.const 1024))
      (data (i32.const 64) "mars")
      (data (i32.const 36) "\40\00\00\00\04\00\00\00")
      (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
        (local $at i32)
        (local.set $at (i32.and (i32.add (global.get $next) (i32.const 7)) (i32.const -8)))
        (global.set $next (i32.add (local.get $at) (local.get 3)))
        (local.get $at))
      (func (export "ipu:policy/placer@0.1.0#configure") (param i32 i32) (result i32)
        (i32.const 16))
      (func (export "ipu:policy/placer@0.1.0#place")
        (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)
        (i32.const 32)))"#;
    let core = hostile::component(core);
    let nonsense = ipu_operator::wasm::componentize(&core, Some(Slot::Placement)).unwrap();
    put(folder.path(), "serial-walk.wasm", &nonsense);
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
    };
    let controller = ControllerView {
        name: "pod1:8090".to_owned(),
        label_key: "vipu".to_owned(),
        label_value: "pod1".to_owned(),
        unreachable: None,
        total_ipus: 16,
        used_ipus: 0,
        largest_free: 16,
    };
    let placed = policies.place(&request, &[controller], &[]).await;
    assert_eq!(placed.decision, Decision::Try("pod1:8090".to_owned()));
    let overruled = placed.overruled.expect("the answer was nonsense");
    assert!(
        overruled.contains("\"mars\", which is no known controller"),
        "{overruled}"
    );
}
