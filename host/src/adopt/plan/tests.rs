//! Adopted partitions, case by case.

use serde_json::{Value, json};
use vipu_client::model::ReadyState;

use super::*;

const ID: &str = "p-mnist-default-0";

/// The V-IPU controller that the tracker names.
fn pod1() -> ControllerRef {
    ControllerRef {
        name: "pod1:8090".to_owned(),
        host: "pod1".to_owned(),
        port: 8090,
        label_key: "ipunode".to_owned(),
        label_value: "pod1".to_owned(),
    }
}

/// An IPUPartition of 4 IPUs and 2 GCDs that waits to be placed.
fn partition(namespace: &str, name: &str, status: &Value) -> IPUPartition {
    serde_json::from_value(json!({
        "apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUPartition",
        "metadata": {
            "name": format!("{namespace}.{name}-0"),
            "finalizers": [labels::PARTITION_FINALIZER],
        },
        "spec": {
            "owner": {"apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUJob",
                "namespace": namespace, "name": name, "uid": format!("uid-of-{name}")},
            "slot": 0, "ipus": 4, "gcds": 2,
        },
        "status": status,
    }))
    .unwrap()
}

fn job(namespace: &str, name: &str) -> ObjectRef {
    ObjectRef {
        namespace: namespace.into(),
        name: name.into(),
        uid: format!("uid-of-{name}").into(),
    }
}

fn controller(name: &str, ids: &[(&str, u32, u32)]) -> Controller {
    let listed = ids.iter().map(|(id, ipus, gcds)| ListedPartition {
        id: (*id).to_owned(),
        ipus: *ipus,
        gcds: *gcds,
        first_ipu: None,
        ready_state: ReadyState::Active,
    });
    Controller {
        reference: ControllerRef {
            name: name.to_owned(),
            ..pod1()
        },
        listed: Ok(listed.collect()),
        account: None,
    }
}

/// A world in which `ID` can be adopted, to be changed by each case.
struct World {
    tracked: Vec<&'static str>,
    jobs: Vec<ObjectRef>,
    partitions: Vec<IPUPartition>,
    controllers: Vec<Controller>,
    scope: Scope,
}

impl World {
    fn new() -> Self {
        Self {
            tracked: vec![ID],
            jobs: vec![job("default", "mnist")],
            partitions: vec![partition("default", "mnist", &Value::Null)],
            controllers: vec![controller("pod1:8090", &[("handmade", 4, 2), (ID, 4, 2)])],
            scope: Scope::Cluster,
        }
    }

    /// Each id with the controller that it is adopted from, or why it is not.
    fn plan(&self) -> Vec<(String, Result<String, Refusal>)> {
        let tracked = self.tracked.iter().map(|id| (*id).to_owned()).collect();
        let entries = plan(&Findings {
            tracked: &tracked,
            jobs: &self.jobs,
            partitions: &self.partitions,
            controllers: &self.controllers,
            scope: &self.scope,
        });
        let outcome = |entry: Entry| {
            let verdict = entry.verdict.map(|adoption| adoption.controller.name);
            (entry.id, verdict)
        };
        entries.into_iter().map(outcome).collect()
    }

    /// Returns why `ID` is not adopted.
    fn refusal(&self) -> Refusal {
        let mut entries = self.plan().into_iter();
        let entry = entries.find(|(id, _)| id == ID);
        entry.unwrap().1.unwrap_err()
    }
}

#[test]
fn what_is_tracked_and_there_for_a_job_that_waits_is_adopted() {
    let mut world = World::new();
    let adopted = vec![(ID.to_owned(), Ok("pod1:8090".to_owned()))];
    assert_eq!(world.plan(), adopted);
    let waiting = json!({"phase": "Pending", "waiting": [
        {"controller": "pod1:8090", "reason": "it is cordoned"},
    ]});
    world.partitions = vec![partition("default", "mnist", &waiting)];
    assert_eq!(world.plan(), adopted);
    // The IPUPartitions name their owners of other kinds.
    world.jobs.clear();
    assert_eq!(world.plan(), adopted);
}

#[test]
fn two_that_could_be_meant_are_both_named() {
    let names = || Refusal::Ambiguous(vec!["IPUJob b-c/a".to_owned(), "IPUJob c/a-b".to_owned()]);
    let id = "p-a-b-c-0";
    let mut world = World::new();
    world.tracked = vec![id];
    world.controllers = vec![controller("pod1:8090", &[(id, 4, 2)])];
    world.partitions = vec![partition("b-c", "a", &Value::Null)];
    world.jobs = vec![job("b-c", "a"), job("c", "a-b")];
    assert_eq!(world.plan(), [(id.to_owned(), Err(names()))]);
    world.jobs = vec![job("c", "a-b")];
    assert_eq!(world.plan(), [(id.to_owned(), Err(names()))]);
    world.jobs = Vec::new();
    world.partitions.push(partition("c", "a-b", &Value::Null));
    assert_eq!(world.plan(), [(id.to_owned(), Err(names()))]);
    world.partitions.pop();
    assert_eq!(world.plan(), [(id.to_owned(), Ok("pod1:8090".to_owned()))]);
}

#[test]
fn a_job_that_is_called_like_a_partition_is_not_meant() {
    let mut world = World::new();
    world.jobs.push(job("default", ID));
    assert_eq!(world.plan().len(), 1);
    assert!(world.plan()[0].1.is_ok());
    for odd in [
        "p-mnist-default-",
        "p-mnist-default-00",
        "p-mnist-default-x",
    ] {
        assert!(!could_have(&job("default", "mnist"), odd), "{odd}");
    }
}

#[test]
fn what_nobody_can_vouch_for_is_left_alone() {
    let mut world = World::new();
    world.tracked.clear();
    assert_eq!(world.refusal(), Refusal::NotTracked);

    let mut world = World::new();
    world.jobs.clear();
    world.partitions.clear();
    assert_eq!(world.refusal(), Refusal::Nobody);

    let mut world = World::new();
    world.scope = "other".parse().unwrap();
    assert_eq!(world.refusal(), Refusal::NotServed("default".to_owned()));
}

#[test]
fn the_job_must_want_it_and_have_nothing_else() {
    let name = || "default.mnist-0".to_owned();
    let mut world = World::new();
    world.partitions.clear();
    let job = "IPUJob default/mnist".to_owned();
    assert_eq!(world.refusal(), Refusal::NotWanted(job));

    let mut world = World::new();
    world.partitions[0].metadata.finalizers = None;
    assert_eq!(world.refusal(), Refusal::NotSeen(name()));

    let mut deleted = serde_json::to_value(&World::new().partitions[0]).unwrap();
    deleted["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    world.partitions = vec![serde_json::from_value(deleted).unwrap()];
    assert_eq!(world.refusal(), Refusal::Deleted(name()));

    let tried = json!({"phase": "Pending", "generation": 1});
    world.partitions = vec![partition("default", "mnist", &tried)];
    assert_eq!(world.refusal(), Refusal::AlreadyAttempted(name()));

    let attempt = json!({
        "controller": pod1(), "id": ID, "outcome": "unknown",
    });
    let adopted = json!({"phase": "Creating", "generation": 1, "attempts": [attempt]});
    world.partitions = vec![partition("default", "mnist", &adopted)];
    assert_eq!(world.refusal(), Refusal::Adopted(name()));
}

#[test]
fn one_controller_must_have_it_in_the_size_that_is_wanted() {
    let mut world = World::new();
    world.controllers = vec![controller("pod1:8090", &[])];
    assert_eq!(world.refusal(), Refusal::NotFound);

    let names = ["pod1:8090", "pod2:8090"];
    world.controllers = names.map(|name| controller(name, &[(ID, 4, 2)])).into();
    let names = names.map(str::to_owned).into();
    assert_eq!(world.refusal(), Refusal::Twice(names));

    world.controllers[1].listed = Err("connection refused".to_owned());
    let unreachable = Refusal::Unreachable("pod2:8090".to_owned(), "connection refused".to_owned());
    assert_eq!(world.refusal(), unreachable);

    for (ipus, gcds) in [(8, 2), (4, 1)] {
        world.controllers = vec![controller("pod1:8090", &[(ID, ipus, gcds)])];
        let refusal = Refusal::OtherSize {
            partition: "default.mnist-0".to_owned(),
            found: size(ipus, gcds),
            wanted: size(4, 2),
        };
        assert_eq!(world.refusal(), refusal);
    }
}
