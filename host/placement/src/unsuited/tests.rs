//! Tests of the controllers without a node for the Pods: which ones, why, and what results share.

use serde_json::json;

use super::*;
use crate::node_match::NodeTaint;
use crate::samples::view;

type Change = fn(&mut NodeFacts);

const SAME: Change = |_| {};
const CORDONED: Change = |node| node.is_cordoned = true;
const SILENT: Change = |node| node.is_not_ready = true;
const FAILED: Change = |node| node.has_failed_check = true;
const TAINTED: Change = |node| {
    node.taints.push(NodeTaint {
        key: "repair".to_owned(),
        effect: "NoSchedule".to_owned(),
        ..NodeTaint::default()
    });
};
const IN_POOL: Change = |node| {
    node.labels.insert("pool".to_owned(), "a".to_owned());
};

/// The reasons for controllers that have such nodes each, by the name of the controller.
fn reasons(nodes: &[(&str, Change)], selector: &[(&str, &str)]) -> Vec<(String, String)> {
    let nodes = nodes.iter().map(|(controller, change)| {
        let mut node = NodeFacts::default();
        let label = ("ipunode".to_owned(), (*controller).to_owned());
        node.labels.extend([label]);
        change(&mut node);
        Arc::new(node)
    });
    let views = [view("pod1", 16, 0), view("pod2", 16, 0)];
    let requirements = Requirements {
        node_selector: selector
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect(),
        scheduling: serde_json::from_value(json!({})).unwrap(),
    };
    let (snapshot, requirements) = (NodeSnapshot::of(nodes.collect()), requirements.into());
    let found = snapshot.unsuited(views.iter(), &requirements);
    assert_eq!(snapshot.unsuited(views.iter(), &requirements), found);
    found.iter().map(|(a, b)| (a.clone(), b.clone())).collect()
}

fn unsuited(nodes: &[(&str, Change)], selector: &[(&str, &str)]) -> Vec<String> {
    let reasons = reasons(nodes, selector).into_iter();
    reasons.map(|(name, _)| name).collect()
}

#[test]
fn a_controller_without_a_schedulable_node_is_unsuited() {
    let none: [&str; 0] = [];
    assert_eq!(unsuited(&[("pod1", SAME), ("pod2", SAME)], &[]), none);
    for blocked in [CORDONED, SILENT, FAILED, TAINTED] {
        let nodes = [("pod1", blocked), ("pod2", SAME)];
        assert_eq!(unsuited(&nodes, &[]), ["pod1"]);
        let both = [("pod1", blocked), ("pod2", blocked)];
        assert_eq!(unsuited(&both, &[]), ["pod1", "pod2"]);
        let one_of_two = [("pod1", blocked), ("pod1", SAME), ("pod2", SAME)];
        assert_eq!(unsuited(&one_of_two, &[]), none);
    }
}

#[test]
fn labels_decide_only_while_a_node_has_them() {
    let none: [&str; 0] = [];
    let pool = [("pool", "a")];
    let nodes = [("pod1", SAME), ("pod2", IN_POOL)];
    assert_eq!(unsuited(&nodes, &pool), ["pod1"]);
    let nowhere = [("pod1", SAME), ("pod2", SAME)];
    assert_eq!(unsuited(&nowhere, &pool), none);
    let cordoned: Change = |node| {
        IN_POOL(node);
        node.is_cordoned = true;
    };
    let waits = [("pod1", SAME), ("pod2", cordoned)];
    assert_eq!(unsuited(&waits, &pool), ["pod1", "pod2"]);
    assert_eq!(unsuited(&[("pod1", SAME)], &[]), none, "pod2 has no node");
    assert_eq!(unsuited(&[], &[]), none);
}

#[test]
fn the_reason_counts_the_nodes() {
    let nodes = [
        ("pod1", CORDONED),
        ("pod1", CORDONED),
        ("pod1", SILENT),
        ("pod1", FAILED),
        ("pod1", TAINTED),
        ("pod2", IN_POOL),
    ];
    let expected = "no node is schedulable for the Pods, of 5 with the required labels: 2 are \
                    cordoned, 1 is not Ready, 1 failed the check of ipu-node, 1 has the taint \
                    repair:NoSchedule, which the Pods do not tolerate";
    assert_eq!(
        reasons(&nodes, &[]),
        [("pod1".to_owned(), expected.to_owned())]
    );
    let reasons = reasons(&nodes, &[("pool", "a")]);
    assert!(reasons[0].1.starts_with("none of its nodes has the labels"));
}

#[test]
fn large_requirements_are_kept_within_a_bound() {
    let snapshot = NodeSnapshot::of(Vec::new());
    let views = [view("pod1", 16, 0)];
    for number in 0..40 {
        let large = (number.to_string(), "x".repeat(1 << 20));
        let requirements = Requirements {
            node_selector: BTreeMap::from([large]),
            ..Requirements::default()
        };
        snapshot.unsuited(views.iter(), &requirements.into());
        let results = snapshot.results.lock();
        assert!(results.kept_bytes <= KEPT_BYTES_MAX);
        let kept = results.by_requirements.keys();
        let kept = kept.map(|requirements| requirements.bytes());
        assert_eq!(kept.sum::<usize>(), results.kept_bytes);
    }
}

/// The only node, of the controller `pod1`.
fn one_cordoned_node() -> NodeSnapshot {
    let mut node = NodeFacts::default();
    node.labels.insert("ipunode".to_owned(), "pod1".to_owned());
    node.is_cordoned = true;
    NodeSnapshot::of(vec![Arc::new(node)])
}

#[test]
fn requirements_with_equal_reasons_share_them() {
    let snapshot = one_cordoned_node();
    let unsuited = |pool: &str| {
        let terms = json!({"tolerations": [{"key": pool, "operator": "Exists"}]});
        let requirements = Requirements {
            node_selector: BTreeMap::new(),
            scheduling: Some(serde_json::from_value(terms).unwrap()),
        };
        snapshot.unsuited([view("pod1", 16, 0)].iter(), &requirements.into())
    };
    let (one, other) = (unsuited("a"), unsuited("b"));
    assert_eq!(one.len(), 1);
    assert!(one.is_shared_with(&other));
}

#[test]
fn another_list_of_controllers_has_other_results() {
    let snapshot = one_cordoned_node();
    let unsuited = |views: &[ControllerView]| {
        let found = snapshot.unsuited(views.iter(), &Hashed::default());
        found.len()
    };
    assert_eq!(unsuited(&[view("pod2", 16, 0)]), 0);
    assert_eq!(unsuited(&[view("pod1", 16, 0), view("pod2", 16, 0)]), 1);
    assert_eq!(unsuited(&[view("pod2", 16, 0)]), 0);
}
