//! Pure: the requests that a freshly loaded policy is tried on before it serves anybody.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::facts::{Admission, NamespaceFacts, Owner, PlaceFacts, Usage, User};
use super::model::{ControllerView, Operation, PlaceRequest, Slot};
use super::question::{Placing, Question, Review};

/// The request that a policy of this slot is tried on.
pub(super) fn question(slot: Slot) -> Question {
    let review = || Review::of(admission(), job(), None);
    match slot {
        Slot::Defaulting => Question::Defaulting(review()),
        Slot::Validation => Question::Validation(review()),
        Slot::Placement => Question::Placement(Placing {
            request: place_request(),
            controllers: controllers(),
            attempts: Vec::new(),
        }),
    }
}

/// A parallel job as a user writes it, with nothing defaulted.
pub(super) fn job() -> Value {
    json!({
        "apiVersion": "graphcore.ai/v1alpha1",
        "kind": "IPUJob",
        "metadata": { "name": "sample", "namespace": "default" },
        "spec": {
            "jobInstances": 1,
            "ipusPerJobInstance": "2",
            "workersPerJobInstance": "2",
            "launcher": { "command": ["mpirun", "true"] },
            "workers": {
                "template": {
                    "spec": { "containers": [{ "name": "worker", "image": "sample" }] }
                }
            }
        }
    })
}

/// Somebody who makes a job in a namespace of which everything is known.
pub(super) fn admission() -> Admission {
    Admission {
        user: User {
            name: "jane".to_owned(),
            groups: vec!["system:authenticated".to_owned()],
        },
        namespace: "default".to_owned(),
        facts: namespace(),
        ..Admission::of(Operation::Create)
    }
}

fn namespace() -> NamespaceFacts {
    let name = (
        "kubernetes.io/metadata.name".to_owned(),
        "default".to_owned(),
    );
    NamespaceFacts {
        labels: Some(BTreeMap::from([name])),
        usage: Some(Usage::default()),
    }
}

/// A partition that one job waits for.
pub(super) fn place_request() -> PlaceRequest {
    PlaceRequest {
        namespace: "default".to_owned(),
        owner: "sample".to_owned(),
        slot: 0,
        ipus: 4,
        gcds: 1,
        node_selector: BTreeMap::new(),
        facts: PlaceFacts {
            owner: Owner {
                api_version: "graphcore.ai/v1alpha1".to_owned(),
                kind: "IPUJob".to_owned(),
                ..Owner::default()
            },
            namespace: namespace(),
            ..PlaceFacts::default()
        },
    }
}

/// One controller that is full, one that does not answer, and one that has room.
pub(super) fn controllers() -> Vec<ControllerView> {
    let controller = |name: &str, used, unreachable| ControllerView {
        name: format!("{name}:8090"),
        label_key: "vipu".to_owned(),
        label_value: name.to_owned(),
        has_nodes: true,
        unreachable,
        total_ipus: 16,
        used_ipus: used,
        largest_free: 16 - used,
        failures: 0,
    };
    vec![
        controller("full", 16, None),
        controller("silent", 0, Some("connection refused".to_owned())),
        controller("empty", 0, None),
    ]
}
