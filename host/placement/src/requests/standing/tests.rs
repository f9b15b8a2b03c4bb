//! Tests of decisions to wait: when a guest decides again, and when the decision before stands.

use ipu_api::uid::Uid;
use serde_json::{Value, json};

use super::*;
use crate::decision::PlacementDecision;
use crate::requests::Ended;
use crate::requests::tests::{ask, partition, wait};

/// Decides on all undecided requests with this answer. Returns the name of each, and whether a
/// reconcile follows.
fn decide(requests: &mut PlacementQueue, answer: &PlacementDecision) -> Vec<(String, bool)> {
    let mut decided = Vec::new();
    while let Some(turn) = requests.next_turn() {
        let is_new = requests.decided(&turn, answer.clone(), false).unwrap();
        decided.push((turn.name().to_owned(), is_new));
    }
    decided
}

/// Requests of these names that wait, each with its decision.
fn waiting(names: &[&str]) -> PlacementQueue {
    let mut requests = PlacementQueue::default();
    for name in names {
        ask(&mut requests, &partition(name, 1, &Value::Null));
    }
    decide(&mut requests, &wait("4 of its 4 IPUs are used"));
    for name in names {
        assert!(ask(&mut requests, &partition(name, 1, &Value::Null)).is_some());
    }
    requests
}

#[test]
fn after_a_release_the_guest_decides_on_the_requests_that_fit() {
    let mut requests = waiting(&["a", "b", "c"]);
    assert!(requests.decide_again(true, |entry| &*entry.name == "b"));
    let again = decide(&mut requests, &wait("4 of its 4 IPUs are used"));
    assert_eq!(again, [("b".to_owned(), false)]);
    // The others are refreshed later, those with the oldest decisions first.
    assert!(requests.has_stale());
    requests.refresh(1);
    let refreshed = decide(&mut requests, &wait("3 of its 4 IPUs are used"));
    assert_eq!(
        refreshed,
        [("a".to_owned(), false)],
        "only a figure differs"
    );
    requests.refresh(2);
    let refreshed = decide(&mut requests, &wait("it is cordoned"));
    assert_eq!(refreshed, [("c".to_owned(), true)]);
    assert!(!requests.has_stale());
}

#[test]
fn capacity_that_grows_without_a_release_is_noticed_once() {
    let mut requests = waiting(&["a"]);
    assert!(
        requests.decide_again(false, |_| true),
        "a reservation ended"
    );
    decide(&mut requests, &wait("the quota is used up"));
    assert!(
        !requests.decide_again(false, |_| true),
        "the guest has denied it"
    );
    assert!(requests.decide_again(true, |_| true));
    decide(&mut requests, &wait("the quota is used up"));
    assert!(!requests.decide_again(false, |_| false));
    assert!(requests.decide_again(false, |_| true));
}

#[test]
fn a_request_that_does_not_fit_any_more_keeps_its_decision() {
    let mut requests = waiting(&["a", "b"]);
    requests.decide_again(true, |_| true);
    let first = requests.next_turn().unwrap();
    assert!(!requests.keep(&first, |_| true) && requests.keep(&first, |_| false));
    let second = requests.next_turn().unwrap();
    assert_eq!((first.name(), second.name()), ("a", "b"));
    // A reconcile asks meanwhile, because its object has changed.
    let status = json!({"phase": "Pending", "attempts": [{
        "controller": crate::samples::controller(), "id": "p", "outcome": "refused",
    }]});
    assert_eq!(ask(&mut requests, &partition("b", 1, &status)), None);
    assert!(!requests.keep(&second, |_| false));
    let awaited = requests.next_turn().unwrap();
    assert!(!requests.keep(&awaited, |_| false));
    assert_eq!(
        decide(&mut requests, &wait("full")),
        [("b".to_owned(), true)]
    );
    assert!(requests.has_stale(), "the first one is refreshed later");
    requests.refresh(9);
    let refreshed = requests.next_turn().unwrap();
    assert!(!requests.keep(&refreshed, |_| false), "it is its turn");
}

#[test]
fn a_decision_to_wait_is_repeated_until_it_is_stale_or_the_attempts_are_others() {
    let mut requests = waiting(&["a"]);
    let known = Some(wait("4 of its 4 IPUs are used"));
    let plain = partition("a", 1, &Value::Null);
    for _ in 0..3 {
        assert_eq!(ask(&mut requests, &plain), known);
        assert!(!requests.end_reconcile(Uid::of("a"), Ended::Well));
    }
    assert!(!requests.has_undecided());
    requests.expire();
    assert_eq!(ask(&mut requests, &plain), None);
    decide(&mut requests, &wait("full"));
    assert_eq!(ask(&mut requests, &plain), Some(wait("full")));
    let status = json!({"phase": "Pending", "attempts": [{
        "controller": crate::samples::controller(), "id": "p", "outcome": "refused",
    }]});
    assert_eq!(ask(&mut requests, &partition("a", 1, &status)), None);
}
