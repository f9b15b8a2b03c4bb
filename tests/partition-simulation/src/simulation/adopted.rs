//! Adoption of a partition of Graphcore's operator that its controller does not list.

use std::collections::BTreeMap;

use ipu_api::ipupartition::{AttemptOutcome, IPUPartition};
use ipu_api::{labels, naming};
use ipu_ledger::observations::{Observation, RemoteState};
use ipu_ledger::step::Step;
use ipu_placement::allocations;
use jiff::Timestamp;
use serde_json::json;

use super::sim_adapter;
use crate::sim_reconcile::Reconcile;

/// An IPUPartition that adopts partition `id`, or has requested it.
fn taking_over(id: &str) -> IPUPartition {
    let controller = json!({
        "name": "pod1:8090", "host": "pod1", "port": 8090, "labelKey": "a", "labelValue": "b",
    });
    serde_json::from_value(json!({
        "apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUPartition",
        "metadata": {"name": "n.mnist-0", "uid": "u", "finalizers": [labels::PARTITION_FINALIZER]},
        "spec": {
            "owner": {
                "apiVersion": "v1", "kind": "K", "namespace": "n", "name": "mnist", "uid": "owner",
            },
            "slot": 0, "ipus": 4, "gcds": 1,
        },
        "status": {
            "phase": "Creating", "generation": 1,
            "attempts": [{"controller": controller, "id": id, "outcome": "unknown"}],
        },
    }))
    .unwrap()
}

fn absent(id: &str) -> Observation {
    Observation::RemoteState {
        id: id.to_owned(),
        remote_state: RemoteState::Absent,
    }
}

fn used_by(id: &str, pods: &[&str]) -> Observation {
    Observation::Users {
        id: id.to_owned(),
        pods: pods.iter().map(ToString::to_string).collect(),
    }
}

fn adoptable() -> String {
    let spec = taking_over("").spec;
    naming::adoptable_partition(&spec.owner, spec.slot)
}

/// Its Pods use it, whether or not this is recorded, and its controller may have lost it.
#[test]
fn what_is_taken_over_and_missing_is_held_until_no_pod_uses_it() {
    let (id, now) = (adoptable(), Timestamp::UNIX_EPOCH);
    let object = taking_over(&id);
    let next = |observations: Vec<Observation>| {
        let mut reconcile = Reconcile::begin(0, object.clone().into());
        for observation in observations {
            reconcile.assume(observation);
        }
        reconcile.decide(&sim_adapter::settings(), &BTreeMap::new(), now)
    };
    assert_eq!(next(vec![absent(&id)]), Step::CountUsers(id.clone()));
    let used = vec![absent(&id), used_by(&id, &["n/mnist-worker-0"])];
    let Step::Write(status) = next(used) else {
        panic!("it says who uses it");
    };
    assert_eq!(status.attempts[0].outcome, AttemptOutcome::Unknown);
    let message = status.message.unwrap_or_default();
    assert!(message.contains("n/mnist-worker-0"), "{message}");
    let unused = vec![absent(&id), used_by(&id, &[])];
    let Step::Write(status) = next(unused) else {
        panic!("nothing is left of it");
    };
    assert_eq!(status.attempts[0].outcome, AttemptOutcome::Removed);
}

#[test]
fn what_is_taken_over_counts_before_it_was_seen() {
    let own = "p-mnist-abcd-0123456789";
    for (id, ipus) in [(adoptable().as_str(), vec![4]), (own, vec![])] {
        let held = allocations::allocations(&taking_over(id), |word| word.into());
        let held: Vec<u32> = held.iter().map(|one| one.ipus).collect();
        assert_eq!(held, ipus, "{id}");
    }
}
