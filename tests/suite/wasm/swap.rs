//! Guests are replaced while they are called: immediately, without a failed call, without a
//! restart.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use cluster::wait::{Seen, eventually};
use ipu_admission::answer;
use ipu_admission::chain_run::ChainRun;
use ipu_api::guest::placement::{ControllerView, Decision, PartitionRequest, Placed};
use ipu_api::ipupolicy::{Hook, OnError};
use ipu_guest_host::model::built_in_file;
use ipu_guest_host::{Guest, ModuleConfig};
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
    let stages = vec![vec![entry]];
    guests.set_chain(
        Hook::Validation,
        HookChain {
            stages,
            ..HookChain::default()
        },
    );
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

/// Active policies whose built-in placement guest names a controller that does not exist.
async fn lying() -> ActivePolicies {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(built_in_file(Hook::Placement));
    std::fs::write(file, hostile::placement()).unwrap();
    let mut options = options(&[Hook::Placement]);
    options.guests_dir = folder.path().to_owned();
    ActivePolicies::new(open(options).await)
}

/// Requests a partition of 4 IPUs beside one empty controller.
async fn place(active: &ActivePolicies) -> Placed {
    let request = PartitionRequest {
        namespace: "default".to_owned(),
        owner: "mnist".to_owned(),
        ipus: 4,
        gcds: 1,
        ..PartitionRequest::default()
    };
    let controller = ControllerView {
        name: "pod1:8090".to_owned(),
        label_key: "vipu".to_owned(),
        label_value: "pod1".to_owned(),
        has_nodes: true,
        total_ipus: 16,
        largest_free: 16,
        ..ControllerView::default()
    };
    active.place(&request, &[controller], &[]).await
}

#[tokio::test]
async fn a_placement_policy_with_an_invalid_answer_is_overruled() {
    let placed = place(&lying().await).await;
    assert_eq!(placed.decision, Decision::Try("pod1:8090".to_owned()));
    let overruled = placed.overruled.expect("the answer was invalid");
    assert!(
        overruled.contains("\"mars\", which is no known controller"),
        "{overruled}"
    );
}

#[tokio::test]
async fn a_request_waits_for_a_guest_without_an_answer_if_on_error_says_so() {
    let active = lying().await;
    let invalid = BoundPolicy {
        name: "steered".into(),
        on_error: OnError::Wait,
        ..BoundPolicy::built_in(Hook::Placement)
    };
    let missing = BoundPolicy {
        guest: Guest::missing("its module is being loaded"),
        ..invalid.clone()
    };
    for policy in [invalid, missing] {
        let chain = HookChain {
            stages: vec![vec![policy, BoundPolicy::built_in(Hook::Placement)]],
            ..HookChain::default()
        };
        active.set_chain(Hook::Placement, chain);
        let placed = place(&active).await;
        let Decision::Wait(reasons) = &placed.decision else {
            panic!("{placed:?}");
        };
        assert_eq!((&*placed.policy, &placed.overruled), ("steered", &None));
        let reason = &reasons[0].reason;
        assert!(
            reason.contains("IPUPolicy steered gives no answer"),
            "{reason}"
        );
    }
}
