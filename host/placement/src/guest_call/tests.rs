//! Tests of the controllers that a request sees when nodes cannot run its Pods.

use ipu_api::guest::placement::PassedOver;
use serde_json::json;

use super::*;
use crate::node_match::NodeFacts;
use crate::samples::{controller, view};

/// A controller of 16 IPUs and one of 64, each with one node, which is cordoned or not.
fn found(cordoned: [bool; 2]) -> Candidates {
    let views = vec![view("pod1", 16, 0), view("pod2", 64, 0)];
    let names = ["pod1", "pod2"].into_iter().zip(cordoned);
    let nodes = names.map(|(name, is_cordoned)| {
        Arc::new(NodeFacts {
            labels: [("ipunode".to_owned(), name.to_owned())].into(),
            is_cordoned,
            ..NodeFacts::default()
        })
    });
    let nodes = Arc::new(NodeSnapshot::of(nodes.collect()));
    Candidates::of(views, CordonStates::new()).on_nodes(Some(nodes))
}

fn prepared(ipus: u32, gang: Option<u32>, cordoned: [bool; 2]) -> Placement {
    let object = json!({
        "apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUPartition",
        "metadata": {"name": "a", "uid": "a", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {
            "owner": {
                "apiVersion": "v1", "kind": "K", "namespace": "default", "name": "a", "uid": "a",
            },
            "slot": 0, "ipus": ipus, "gcds": 1,
            "options": {"gangSize": gang, "scheduling": {}},
        },
    });
    let partition = serde_json::from_value(object).unwrap();
    let queue = QueueView {
        entries: &[],
        assigned: &[],
        held: 0,
        backfill_limit: Duration::from_mins(10),
    };
    prepare(&partition, found(cordoned), queue, Timestamp::UNIX_EPOCH)
}

fn asked(ipus: u32, cordoned: [bool; 2]) -> Box<Request> {
    match prepared(ipus, None, cordoned) {
        Placement::Ask(request) => request,
        Placement::Decided(answer) => panic!("{answer:?}"),
    }
}

fn concluded(request: Request, decision: Decision) -> PlacementDecision {
    let by = DecidedBy {
        policy: "a".to_owned(),
        digest: None,
    };
    request.conclude(decision, by, &[controller()])
}

/// The names of the controllers that a request waits for.
fn waits_for(answer: &PlacementDecision) -> Vec<&str> {
    let PlacementDecision::Wait(reasons) = answer else {
        panic!("{answer:?}");
    };
    reasons.iter().map(|one| one.controller.as_str()).collect()
}

#[test]
fn a_guest_sees_which_controller_has_no_schedulable_node() {
    let shown = |cordoned| {
        let request = asked(4, cordoned);
        let views = request.views().iter();
        views
            .map(|view| view.unschedulable.is_some())
            .collect::<Vec<_>>()
    };
    assert_eq!(shown([false, false]), [false, false]);
    assert_eq!(shown([true, false]), [true, false]);
    assert_eq!(shown([false, true]), [false, true]);
}

#[test]
fn without_a_schedulable_node_a_request_waits_and_no_guest_is_called() {
    for (ipus, gang) in [(4, None), (4, Some(2)), (128, None)] {
        let Placement::Decided(answer) = prepared(ipus, gang, [true, true]) else {
            panic!("{ipus} IPUs: a guest is called");
        };
        assert_eq!(waits_for(&answer), ["pod1", "pod2"], "{ipus} IPUs");
    }
}

#[test]
fn a_rejection_counts_only_if_no_unschedulable_controller_is_large_enough() {
    let reject = || Decision::Reject("too large".to_owned());
    let answer = concluded(*asked(32, [false, true]), reject());
    assert_eq!(waits_for(&answer), ["pod2"]);
    let answer = concluded(*asked(32, [true, false]), reject());
    assert!(matches!(answer, PlacementDecision::Reject(_)), "{answer:?}");
}

#[test]
fn a_wait_names_controllers_that_the_guest_has_not_seen() {
    let wait = |names: &[&str]| {
        let passed = names.iter().map(|name| PassedOver {
            controller: (*name).to_owned(),
            reason: "full".to_owned(),
        });
        let decision = Decision::Wait(passed.collect());
        let answer = concluded(*asked(4, [true, false]), decision);
        waits_for(&answer).join(" ")
    };
    assert_eq!(wait(&["pod2"]), "pod2 pod1");
    assert_eq!(wait(&["pod1", "pod2"]), "pod1 pod2");
}
