//! Pure: the sample requests that test a newly loaded policy before it serves.

use std::collections::BTreeMap;

use ipu_api::guest::admission::{Admission, Operation, User};
use ipu_api::guest::namespace::{NamespaceContext, Usage};
use ipu_api::guest::placement::{
    ControllerView, Owner, PartitionRequest, PlacementContext, PlacementRequest,
};
use ipu_api::ipupolicy::Hook;
use serde_json::{Value, json};

use super::policy_request::{PolicyRequest, Review};

/// Returns the sample request of a hook.
pub fn request(hook: Hook) -> PolicyRequest {
    let review = || Review::of(admission(), job(), None);
    match hook {
        Hook::Defaulting => PolicyRequest::Defaulting(review()),
        Hook::Validation => PolicyRequest::Validation(review()),
        Hook::Placement => PolicyRequest::Placement(PlacementRequest {
            request: place_request(),
            controllers: controllers(),
            attempts: Vec::new(),
        }),
    }
}

/// A parallel job without defaults.
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

/// A user who creates a job in a namespace with a known context.
pub(super) fn admission() -> Admission {
    Admission {
        user: User {
            name: "jane".to_owned(),
            groups: vec!["system:authenticated".to_owned()],
        },
        namespace: "default".to_owned(),
        context: namespace(),
        ..Admission::of(Operation::Create)
    }
}

fn namespace() -> NamespaceContext {
    let name = (
        "kubernetes.io/metadata.name".to_owned(),
        "default".to_owned(),
    );
    NamespaceContext {
        labels: Some(BTreeMap::from([name])),
        usage: Some(Usage::default()),
    }
}

/// A partition request of one job.
pub(super) fn place_request() -> PartitionRequest {
    PartitionRequest {
        namespace: "default".to_owned(),
        owner: "sample".to_owned(),
        slot: 0,
        ipus: 4,
        gcds: 1,
        node_selector: BTreeMap::new(),
        context: PlacementContext {
            owner: Owner {
                api_version: "graphcore.ai/v1alpha1".to_owned(),
                kind: "IPUJob".to_owned(),
                ..Owner::default()
            },
            namespace: namespace(),
            ..PlacementContext::default()
        },
    }
}

/// One full, one unreachable and one empty controller.
pub(super) fn controllers() -> Vec<ControllerView> {
    let controller = |name: &str, used, unreachable| ControllerView {
        name: format!("{name}:8090"),
        label_key: "vipu".to_owned(),
        label_value: name.to_owned(),
        has_nodes: true,
        unschedulable: None,
        unreachable,
        total_ipus: 16,
        used_ipus: used,
        largest_free: 16 - used,
        free_blocks: Vec::new(),
        failures: 0,
    };
    vec![
        controller("full", 16, None),
        controller("unreachable", 0, Some("connection refused".to_owned())),
        controller("empty", 0, None),
    ]
}
