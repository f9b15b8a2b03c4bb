//! Objects for the tests of the views.

use jiff::Timestamp;
use kube::core::DynamicObject;
use kube::runtime::watcher::Event;
use serde_json::{Value, json};

use crate::cluster::{Cluster, Collection};
use crate::projection::{Accounted, Controller, Job, Node, Partition, Policy};

/// The time of all tests.
pub(crate) fn now() -> Timestamp {
    "2026-01-02T12:30:00Z".parse().unwrap()
}

fn reference(name: &str) -> Value {
    json!({
        "name": format!("{name}:8090"), "host": name, "port": 8090, "labelKey": "ipunode",
        "labelValue": name,
    })
}

/// An attempt on a V-IPU controller.
pub(crate) fn attempt(controller: &str, outcome: &str) -> Value {
    json!({"controller": reference(controller), "id": "p-1", "outcome": outcome})
}

/// The status of a partition on a V-IPU controller.
pub(crate) fn placed(controller: &str, phase: &str) -> Value {
    json!({
        "phase": phase, "controller": reference(controller), "partitionId": "p-1",
        "attempts": [attempt(controller, "created")],
    })
}

/// An IPUPartition of the IPUJob `namespace/name`, as the API server gives it.
pub(crate) fn partition_object(owner: &str, ipus: u32, status: &Value) -> Value {
    let (namespace, name) = owner.split_once('/').unwrap();
    json!({
        "apiVersion": "graphcore.ai/v1alpha1",
        "kind": "IPUPartition",
        "metadata": {
            "name": format!("{namespace}.{name}-0"), "creationTimestamp": "2026-01-02T12:00:00Z",
        },
        "spec": {
            "owner": {
                "apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUJob", "namespace": namespace,
                "name": name, "uid": owner,
            },
            "slot": 0, "ipus": ipus, "gcds": 1,
        },
        "status": status,
    })
}

fn object(value: Value) -> DynamicObject {
    serde_json::from_value(value).unwrap()
}

/// Stored part of an IPUPartition.
#[expect(
    clippy::needless_pass_by_value,
    reason = "objects of tests read best as literals where they are used"
)]
pub(crate) fn partition(owner: &str, ipus: u32, status: Value) -> Partition {
    Partition::of(object(partition_object(owner, ipus, &status))).unwrap()
}

/// A VIPUController that answers.
pub(crate) fn controller(name: &str, total: u32, used: u32, largest_free: u32) -> Value {
    json!({
        "apiVersion": "graphcore.ai/v1alpha1",
        "kind": "VIPUController",
        "metadata": {"name": format!("{name}-8090")},
        "spec": {},
        "status": {
            "address": format!("{name}:8090"), "summary": "Ready", "labelKey": "ipunode",
            "labelValue": name, "nodes": 1,
            "ipus": {"total": total, "used": used, "usedByOthers": 0, "largestFree": largest_free},
            "conditions": [{
                "type": "Ready", "status": "True", "reason": "Answers", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }],
        },
    })
}

/// An IPUJob, `namespace/name`, in a state.
pub(crate) fn job(owner: &str, state: &str) -> Value {
    let (namespace, name) = owner.split_once('/').unwrap();
    json!({
        "apiVersion": "graphcore.ai/v1alpha1",
        "kind": "IPUJob",
        "metadata": {"namespace": namespace, "name": name, "uid": owner},
        "status": {"launcherStatus": state},
    })
}

fn list<V: PartialEq>(
    of: &mut Collection<V>,
    values: Vec<Value>,
    keep: fn(DynamicObject) -> Option<V>,
) {
    of.apply(Event::Init, keep);
    for value in values {
        of.apply(Event::InitApply(object(value)), keep);
    }
    of.apply(Event::InitDone, keep);
}

/// A cluster with these VIPUControllers, IPUPartitions and IPUJobs, and no other objects.
pub(crate) fn cluster(
    controllers: Vec<Value>,
    partitions: Vec<Value>,
    jobs: Vec<Value>,
) -> Cluster {
    let mut cluster = Cluster::default();
    list(&mut cluster.controllers, controllers, Controller::of);
    list(&mut cluster.accountings, Vec::new(), Accounted::of);
    list(&mut cluster.partitions, partitions, Partition::of);
    list(&mut cluster.jobs, jobs, Job::of);
    list(&mut cluster.policies, Vec::new(), Policy::of);
    list(&mut cluster.nodes, Vec::new(), Node::of);
    cluster
}

/// A node that reaches a V-IPU controller.
pub(crate) fn node(name: &str, controller: &str, is_ready: bool, is_cordoned: bool) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"ipunode": controller}},
        "spec": {"unschedulable": is_cordoned},
        "status": {"conditions": [
            {"type": "Ready", "status": if is_ready { "True" } else { "Unknown" }},
        ]},
    })
}

/// Lists these IPUAccountings.
pub(crate) fn with_accountings(cluster: &mut Cluster, records: Vec<Value>) {
    list(&mut cluster.accountings, records, Accounted::of);
}

/// Lists these nodes.
pub(crate) fn with_nodes(cluster: &mut Cluster, nodes: Vec<Value>) {
    list(&mut cluster.nodes, nodes, Node::of);
}
