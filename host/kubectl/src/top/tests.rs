//! The use of IPUs by controller, namespace and job, as tables.

use insta::assert_snapshot;
use ipu_api::ipupartition::IPUPartition;
use ipu_api::vipu_controller::VIPUController;
use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};

use super::{By, Capacities, Usage, usage};
use crate::table::table;

fn controller(name: &str) -> Value {
    json!({
        "name": format!("{name}:8090"), "host": name, "port": 8090, "labelKey": "ipunode",
        "labelValue": name,
    })
}

/// An IPUPartition of a kind of owner, its namespace and name.
fn partition([kind, namespace, name]: [&str; 3], ipus: u32, status: Value) -> IPUPartition {
    let object = json!({
        "apiVersion": "graphcore.ai/v1alpha1",
        "kind": "IPUPartition",
        "metadata": {"name": format!("{namespace}.{name}-0")},
        "spec": {
            "owner": {
                "apiVersion": "v1", "kind": kind, "namespace": namespace, "name": name, "uid": name,
            },
            "slot": 0, "ipus": ipus, "gcds": 1,
        },
        "status": status,
    });
    serde_json::from_value(object).unwrap()
}

/// A partition in use, one that is created, one that waits, and one that no controller can create.
fn partitions() -> Vec<IPUPartition> {
    let attempt = |name: &str, outcome: &str| json!({"controller": controller(name), "id": "p-1", "outcome": outcome});
    let ready = json!({
        "phase": "Ready", "controller": controller("pod1"), "partitionId": "p-1",
        "attempts": [attempt("pod1", "created")],
    });
    let creating = json!({
        "phase": "Creating",
        "attempts": [attempt("pod2", "refused"), attempt("pod1", "unknown")],
    });
    let waiting = json!({
        "phase": "Pending",
        "waiting": [
            {"controller": "pod1:8090", "reason": "full"},
            {"controller": "pod2:8090", "reason": "cordoned"},
        ],
    });
    vec![
        partition(["IPUJob", "team-a", "train"], 8, ready),
        partition(["Pod", "team-a", "notebook"], 4, creating),
        partition(["IPUJob", "team-b", "large"], 16, waiting),
        partition(
            ["IPUJob", "team-b", "huge"],
            512,
            json!({"phase": "Rejected"}),
        ),
    ]
}

/// Two nodes of pod1, one of pod2, one of a controller that no partition names, and one without
/// IPUs.
fn nodes() -> Vec<Node> {
    let node = |name: &str, value: &str, ipus: Value| -> Node {
        let node = json!({
            "metadata": {"name": name, "labels": {"ipunode": value}},
            "status": {"capacity": {"graphcore.ai/ipu": ipus}},
        });
        serde_json::from_value(node).unwrap()
    };
    let mut plain = node("node5", "none", json!("0"));
    plain.status = None;
    vec![
        node("node1", "pod1", json!("16")),
        node("node2", "pod1", json!("16")),
        node("node3", "pod2", json!("64")),
        node("node4", "pod3", json!("32")),
        plain,
    ]
}

fn count(nodes: Option<&[Node]>, by: By, namespace: Option<&str>) -> Usage {
    let nodes = nodes.map(|nodes| nodes.iter().collect::<Vec<_>>());
    let nodes = nodes.as_deref();
    let capacities = nodes.map_or(Capacities::Unknown, Capacities::Nodes);
    usage(partitions().iter(), capacities, by, namespace)
}

/// Objects of pod1 and of pod2, which is cordoned and has partitions of others.
fn objects() -> Vec<VIPUController> {
    let object = |name: &str, summary: &str, ipus: Value| {
        let object = json!({
            "apiVersion": "graphcore.ai/v1alpha1",
            "kind": "VIPUController",
            "metadata": {"name": format!("{name}-8090")},
            "spec": {},
            "status": {"address": format!("{name}:8090"), "summary": summary, "ipus": ipus},
        });
        serde_json::from_value(object).unwrap()
    };
    let pod1 = json!({"total": 16, "used": 8, "usedByOthers": 0, "largestFree": 4});
    let pod2 = json!({"total": 64, "used": 32, "usedByOthers": 32, "largestFree": 16});
    vec![
        object("pod1", "Ready", pod1),
        object("pod2", "Ready,Cordoned", pod2),
    ]
}

#[test]
fn controllers_with_their_capacity() {
    let counted = count(Some(&nodes()), By::Controllers, None);
    assert_snapshot!(table(&counted, false));
}

#[test]
fn controllers_without_the_right_to_list_nodes() {
    let counted = count(None, By::Controllers, None);
    assert_snapshot!(table(&counted, false));
}

#[test]
fn controllers_with_their_objects() {
    let objects = objects();
    let objects: Vec<_> = objects.iter().collect();
    let all = partitions();
    let capacities = Capacities::Controllers(&objects);
    let counted = usage(all.iter(), capacities, By::Controllers, None);
    assert_snapshot!(table(&counted, false));
    // Figures that do not concern V-IPU controllers have no columns of them.
    let counted = usage(all.iter(), capacities, By::Namespaces, None);
    assert_eq!(counted.total.capacity, None);
}

#[test]
fn namespaces_in_wide_form() {
    let counted = count(None, By::Namespaces, None);
    assert_snapshot!(table(&counted, true));
}

#[test]
fn jobs_of_one_namespace() {
    let counted = count(None, By::Jobs, Some("team-a"));
    assert_snapshot!(table(&counted, false));
}

#[test]
fn nodes_without_a_partition_anywhere_have_a_row_each() {
    let nodes = nodes();
    let all: Vec<&Node> = nodes.iter().collect();
    let counted = usage([].iter(), Capacities::Nodes(&all), By::Controllers, None);
    let names: Vec<_> = counted.rows.iter().map(|row| row.name.as_str()).collect();
    let expected = [
        "(node node1)",
        "(node node2)",
        "(node node3)",
        "(node node4)",
    ];
    assert_eq!(names, expected);
}

#[test]
fn controllers_with_one_label_share_the_sum_of_their_nodes() {
    let ready = |name: &str| {
        let mut controller = controller(name);
        controller["labelValue"] = json!("both");
        json!({"phase": "Ready", "controller": controller, "partitionId": "p-1"})
    };
    let all = [
        partition(["IPUJob", "team-a", "a"], 8, ready("pod1")),
        partition(["IPUJob", "team-a", "b"], 4, ready("pod2")),
    ];
    let node = json!({
        "metadata": {"name": "node1", "labels": {"ipunode": "both"}},
        "status": {"capacity": {"graphcore.ai/ipu": "80"}},
    });
    let node: Node = serde_json::from_value(node).unwrap();
    let counted = usage(
        all.iter(),
        Capacities::Nodes(&[&node]),
        By::Controllers,
        None,
    );
    let rows = counted.rows.iter();
    let rows: Vec<_> = rows
        .map(|row| (row.name.as_str(), row.capacity, row.used))
        .collect();
    let expected = [
        ("pod1:8090", None, 8),
        ("pod1:8090 + pod2:8090", Some(80), 0),
        ("pod2:8090", None, 4),
    ];
    assert_eq!(rows, expected);
    assert_eq!(
        (counted.total.capacity, counted.total.free),
        (Some(80), Some(68))
    );
}
