//! Pure: the requests that a freshly loaded policy is tried on before it serves anybody.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::model::{ControllerView, Operation, PlaceRequest, Slot};
use super::question::{Admission, Placing, Question};

/// The request that a policy of this slot is tried on.
pub(super) fn question(slot: Slot) -> Question {
    let admission = || Admission {
        operation: Operation::Create,
        object: job(),
        old_object: None,
    };
    match slot {
        Slot::Defaulting => Question::Defaulting(admission()),
        Slot::Validation => Question::Validation(admission()),
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

/// A partition that one job waits for.
pub(super) fn place_request() -> PlaceRequest {
    PlaceRequest {
        namespace: "default".to_owned(),
        owner: "sample".to_owned(),
        slot: 0,
        ipus: 4,
        gcds: 1,
        node_selector: BTreeMap::new(),
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
    };
    vec![
        controller("full", 16, None),
        controller("silent", 0, Some("connection refused".to_owned())),
        controller("empty", 0, None),
    ]
}
