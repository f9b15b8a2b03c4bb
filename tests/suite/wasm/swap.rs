//! Guests are replaced while they are called: immediately, without a failed call, without a restart.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use cluster::wait::{Seen, eventually};
use ipu_admission::answer;
use ipu_admission::chain_run::ChainRun;
use ipu_api::ipupolicy::Hook;
use ipu_guest_host::ModuleConfig;
use ipu_guest_host::context::PlacementContext;
use ipu_guest_host::model::{ControllerView, Decision, PartitionRequest, built_in_file};
use ipu_policies::active_policies::{ActivePolicies, HookChain};
use ipu_policies::bound_policy::BoundPolicy;
use serde_json::{Value, json};
use tests::guests::hostile;
use tests::review;

use super::{create, guests, open, options};

/// The built-in guest with a custom section at its end: the same code, another digest.
fn version(name: u8) -> Vec<u8> {
    let mut bytes = std::fs::read(guests().join(built_in_file(Hook::Validation))).unwrap();
    bytes.extend([0, 2, 1, name]);
    bytes
}

/// The limit of the built-in rules.
fn spec() -> Value {
    json!({
        "jobInstances": 1,
        "ipusPerJobInstance": "2",
        "workers": {"template": {"spec": {"containers": [{"name": "worker", "image": "mnist:1"}]}}},
    })
}

/// Activates a version of a policy, and returns its digest.
async fn put(guests: &ActivePolicies, version: Vec<u8>) -> String {
    let config = ModuleConfig {
        settings: "{}".to_owned(),
        ..ModuleConfig::default()
    };
    let prepared = guests.host().prepare(Hook::Validation, version, config);
    let guest = prepared.await.unwrap();
    let digest = guest.digest().unwrap().to_string();
    let entry = BoundPolicy {
        name: "policy".into(),
        guest,
        ..BoundPolicy::built_in(Hook::Validation)
    };
    let (stages, shadows) = (vec![vec![entry]], Vec::new());
    guests.set_chain(Hook::Validation, HookChain { stages, shadows });
    digest
}

/// The results of callers that send requests without a pause.
#[derive(Default)]
struct Met {
    done: AtomicBool,
    calls: AtomicUsize,
    digests: Mutex<BTreeSet<String>>,
}

impl Met {
    async fn ask(&self, guests: &ActivePolicies) {
        let request = review::creating("small", 0, &spec()).unwrap();
        while !self.done.load(Ordering::Relaxed) {
            let answer = ChainRun::new(guests, &request, create())
                .run_validation()
                .await;
            assert_eq!(answer.decision, answer::Decision::Allowed);
            let digests = answer.called.iter().map(|(_, digest)| digest.to_string());
            self.digests.lock().unwrap().extend(digests);
            self.calls.fetch_add(1, Ordering::Relaxed);
        }
    }

    async fn once_served_by(&self, digest: &str) {
        eventually("the new version serves", async || {
            Seen::when(self.digests.lock().unwrap().clone(), |seen| {
                seen.contains(digest)
            })
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn swaps_under_load_fail_no_call() {
    let guests = ActivePolicies::new(open(options(&[Hook::Validation])).await);
    let first = put(&guests, version(b'0')).await;
    let met = Arc::new(Met::default());
    let callers: Vec<_> = (0..8)
        .map(|_| {
            let (met, guests) = (met.clone(), guests.clone());
            tokio::spawn(async move { met.ask(&guests).await })
        })
        .collect();
    met.once_served_by(&first).await;
    let mut swapped = BTreeSet::from([first]);
    for round in 0..6 {
        let digest = put(&guests, version(b'a' + round % 2)).await;
        met.once_served_by(&digest).await;
        swapped.insert(digest);
    }
    met.done.store(true, Ordering::Relaxed);
    for caller in callers {
        caller.await.expect("no call fails");
    }
    assert_eq!(swapped.len(), 3);
    assert_eq!(
        *met.digests.lock().unwrap(),
        swapped,
        "only these versions serve"
    );
    let calls = met.calls.load(Ordering::Relaxed);
    assert!(calls > 100, "only {calls} calls");
}

#[tokio::test]
async fn a_placement_policy_with_an_invalid_answer_is_overruled() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(built_in_file(Hook::Placement));
    std::fs::write(file, hostile::placement()).unwrap();
    let mut options = options(&[Hook::Placement]);
    options.guests_dir = folder.path().to_owned();
    let policies = open(options).await;
    let request = PartitionRequest {
        namespace: "default".to_owned(),
        owner: "mnist".to_owned(),
        slot: 0,
        ipus: 4,
        gcds: 1,
        node_selector: std::collections::BTreeMap::new(),
        context: PlacementContext::default(),
    };
    let controller = ControllerView {
        name: "pod1:8090".to_owned(),
        label_key: "vipu".to_owned(),
        label_value: "pod1".to_owned(),
        has_nodes: true,
        unschedulable: None,
        unreachable: None,
        total_ipus: 16,
        used_ipus: 0,
        largest_free: 16,
        free_blocks: Vec::new(),
        failures: 0,
    };
    let placed = ActivePolicies::new(policies)
        .place(&request, &[controller], &[])
        .await;
    assert_eq!(placed.decision, Decision::Try("pod1:8090".to_owned()));
    let overruled = placed.overruled.expect("the answer was invalid");
    assert!(
        overruled.contains("\"mars\", which is no known controller"),
        "{overruled}"
    );
}
