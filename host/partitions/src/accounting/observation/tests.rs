//! The states of partitions, and what remains for others and for requests that wait.

use ipu_api::ipupartition::{ControllerRef, IPUPartition};
use kube::runtime::watcher::Event;
use serde_json::{Value, json};
use vipu_client::model::{Inventory, ListedPartition, ReadyState};

use super::*;
use crate::store::Cache;

const NOW: &str = "2026-01-01T12:00:00Z";

fn now() -> Timestamp {
    NOW.parse().unwrap()
}

fn controller() -> Value {
    json!({
        "name": "pod1:8090", "host": "pod1", "port": 8090, "labelKey": "a", "labelValue": "b",
    })
}

/// An IPUPartition with one attempt, which is its current partition if it was created, and more or
/// other fields.
fn partition(phase: &str, outcome: &str, other: &Value) -> Value {
    let mut object = json!({
        "apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUPartition",
        "metadata": {"name": "a", "uid": "u", "creationTimestamp": "2026-01-01T11:00:00Z"},
        "spec": {
            "owner": {
                "apiVersion": "v1", "kind": "K", "namespace": "team", "name": "o", "uid": "o",
            },
            "slot": 0, "ipus": 4, "gcds": 1,
        },
        "status": {
            "phase": phase,
            "attempts": [{"controller": controller(), "id": "p-1", "outcome": outcome}],
        },
    });
    if outcome == "created" {
        object["status"]["partitionId"] = json!("p-1");
    }
    json_patch::merge(&mut object, other);
    object
}

/// A condition `Ready` that has been true since then.
fn ready_since(time: &str) -> Value {
    json!({"status": {"conditions": [{
        "type": "Ready", "status": "True", "reason": "Active", "message": "",
        "lastTransitionTime": time,
    }]}})
}

fn cache(objects: impl IntoIterator<Item = Value>) -> Cache {
    let mut cache = Cache::default();
    for object in objects {
        let object = serde_json::from_value(object).unwrap();
        cache.apply_event(Event::Apply(object), now());
    }
    cache
}

fn ledger(cache: &Cache, pods: Option<PodCounts>, used: &mut UsedPartitions) -> LedgerUse {
    let briefs = cache.briefs().map(|(brief, _)| brief);
    LedgerUse::of(briefs, cache.smallest_waiting(), |_, _| pods, used, now())
}

fn states(object: Value, pods: Option<PodCounts>, used: &mut UsedPartitions) -> Vec<IpuState> {
    let ledger = ledger(&cache([object]), pods, used);
    let groups = ledger.controllers.values().flatten();
    groups.map(|one| one.state).collect()
}

#[expect(
    clippy::unnecessary_wraps,
    reason = "the ledger may know of no Pods, and each row says what it knows"
)]
fn pods(ready: u32, started: u32, waiting: u32) -> Option<PodCounts> {
    Some(PodCounts {
        ready,
        started,
        waiting,
    })
}

#[test]
fn the_ledger_and_the_pods_determine_the_state_of_a_partition() {
    use IpuState::{
        Forming, IdleAllocated, Releasing, Resetting, Running, Unhealthy, Unknown, WaitingPods,
    };
    let none = json!({});
    let deleted = json!({"metadata": {"deletionTimestamp": NOW}});
    let other = json!({"status": {"partitionId": "p-2"}});
    let lost = json!({"status": {"partitionId": null}});
    let recent = ready_since("2026-01-01T11:55:00Z");
    let long_ago = ready_since("2026-01-01T11:45:00Z");
    for (phase, outcome, fields, pods, expected) in [
        ("Creating", "unknown", &none, pods(0, 0, 0), Forming),
        ("Creating", "created", &none, pods(0, 0, 0), Forming),
        ("Creating", "created", &deleted, pods(0, 0, 0), Releasing),
        ("Ready", "created", &recent, None, Unknown),
        ("Ready", "created", &recent, pods(0, 0, 0), WaitingPods),
        ("Ready", "created", &long_ago, pods(0, 0, 2), WaitingPods),
        ("Ready", "created", &long_ago, pods(0, 0, 0), IdleAllocated),
        ("Ready", "created", &recent, pods(0, 1, 1), IdleAllocated),
        ("Ready", "created", &recent, pods(1, 1, 0), Running),
        ("Ready", "created", &deleted, pods(1, 0, 0), Running),
        ("Ready", "created", &deleted, pods(0, 1, 0), Releasing),
        ("Ready", "created", &other, pods(1, 0, 0), Releasing),
        ("Resetting", "created", &none, pods(0, 0, 0), Resetting),
        ("Error", "created", &none, pods(1, 0, 0), Unhealthy),
        ("Error", "created", &lost, pods(1, 0, 0), Unhealthy),
    ] {
        let object = partition(phase, outcome, fields);
        let found = states(object, pods, &mut UsedPartitions::default());
        assert_eq!(found, [expected], "{phase} {outcome} {fields} {pods:?}");
    }
    let gone = partition("Pending", "removed", &none);
    let found = states(gone, pods(0, 0, 0), &mut UsedPartitions::default());
    assert_eq!(found, Vec::<IpuState>::new());
}

#[test]
fn a_partition_that_was_used_is_idle_until_it_is_reset() {
    let object = |time| partition("Ready", "created", &ready_since(time));
    let (first, second) = ("2026-01-01T11:58:00Z", "2026-01-01T11:59:00Z");
    let mut used = UsedPartitions::default();
    assert_eq!(
        states(object(first), pods(1, 0, 0), &mut used),
        [IpuState::Running]
    );
    assert_eq!(
        states(object(first), pods(0, 0, 0), &mut used),
        [IpuState::IdleAllocated]
    );
    assert_eq!(
        states(object(second), pods(0, 0, 0), &mut used),
        [IpuState::WaitingPods]
    );
    let none = ledger(&cache([]), pods(0, 0, 0), &mut used);
    assert_eq!(none, LedgerUse::default());
    assert_eq!(used, UsedPartitions::default());
}

#[test]
fn pods_of_an_adopted_partition_are_unknown() {
    let object = partition("Ready", "created", &ready_since(NOW));
    let mut object: IPUPartition = serde_json::from_value(object).unwrap();
    let id = ipu_api::naming::adoptable_partition(&object.spec.owner, object.spec.slot);
    let status = object.status.as_mut().unwrap();
    status.partition_id = Some(id.clone());
    status.attempts[0].id = id;
    let object = serde_json::to_value(object).unwrap();
    let mut used = UsedPartitions::default();
    assert_eq!(
        states(object, pods(0, 0, 0), &mut used),
        [IpuState::Unknown]
    );
}

fn listed(id: &str, ipus: u32) -> ListedPartition {
    ListedPartition {
        id: id.to_owned(),
        ipus,
        gcds: 1,
        first_ipu: None,
        ready_state: ReadyState::Active,
    }
}

fn report(partitions: Vec<ListedPartition>) -> Report {
    let controller: ControllerRef = serde_json::from_value(controller()).unwrap();
    Report {
        controller,
        inventory: Ok(Inventory::new(16, partitions).without(Uid::of("p-0"))),
        version: None,
    }
}

#[test]
fn what_others_have_is_not_free_and_free_blocks_may_be_too_small() {
    let waiting = |ipus: u32| {
        json!({
            "apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUPartition",
            "metadata": {"name": "waiting", "uid": "w"},
            "spec": {
                "owner": {
                    "apiVersion": "v1", "kind": "K", "namespace": "n", "name": "w", "uid": "w",
                },
                "slot": 0, "ipus": ipus, "gcds": 1,
            },
        })
    };
    let mine = || partition("Ready", "created", &json!({}));
    // The operator has just removed p-0, and the controller still lists it.
    let partitions = vec![listed("p-1", 4), listed("p-0", 1), listed("theirs", 2)];
    let report = report(partitions);
    for (objects, is_stranded) in [
        (vec![mine()], false),
        (vec![mine(), waiting(8)], false),
        (vec![mine(), waiting(16)], true),
    ] {
        let mut used = UsedPartitions::default();
        let ledger = ledger(&cache(objects), pods(1, 0, 0), &mut used);
        assert!(ledger.has_controller("pod1:8090"));
        let observed = ledger.observed(&[ledger.report(&report)]);
        let observed = &observed["pod1:8090"];
        assert_eq!((observed.total, observed.others), (Some(16), 2));
        assert_eq!(observed.partitions[0].ipus, 4);
        assert_eq!(observed.is_stranded, is_stranded);
    }
}
