//! Tests of the requests for a controller: order, changes, assignments, and what a reconcile that
//! needs none leaves.

use ipu_api::ipupartition::{DecidedBy, WaitingReason};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::*;
use crate::{queue, samples};

/// An IPUPartition with this name, which is also its UID, created at this second.
pub(super) fn partition(name: &str, second: i64, status: &Value) -> IPUPartition {
    let created = Timestamp::from_second(second).unwrap();
    let object = json!({
        "apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUPartition",
        "metadata": {"name": name, "uid": name, "creationTimestamp": created.to_string()},
        "spec": {
            "owner": {
                "apiVersion": "v1", "kind": "K", "namespace": "default", "name": name,
                "uid": format!("owner-of-{name}"),
            },
            "slot": 0, "ipus": 4, "gcds": 1,
        },
        "status": status,
    });
    serde_json::from_value(object).unwrap()
}

pub(super) fn ask(
    requests: &mut PlacementQueue,
    partition: &IPUPartition,
) -> Option<PlacementDecision> {
    let me = queue::entry(partition, Timestamp::UNIX_EPOCH);
    requests.ask(partition, None, &me, |_| true).answer
}

pub(super) fn wait(reason: &str) -> PlacementDecision {
    PlacementDecision::Wait(vec![WaitingReason {
        controller: "pod1:8090".to_owned(),
        reason: reason.to_owned(),
    }])
}

fn chosen() -> PlacementDecision {
    let by = DecidedBy {
        policy: "built-in".to_owned(),
        digest: None,
    };
    PlacementDecision::Try(samples::controller(), by)
}

/// Decides on the next request. Returns its name, and whether the decision is new.
fn decide(requests: &mut PlacementQueue, answer: PlacementDecision) -> (String, Option<bool>) {
    let turn = requests.next_turn().unwrap();
    let is_new = requests.decided(&turn, answer, false);
    (turn.name().to_owned(), is_new)
}

fn is_stalled(requests: &PlacementQueue, partition: &IPUPartition) -> bool {
    requests.is_blocked(Uid::of(partition.metadata.uid.as_deref().unwrap()))
}

fn assigned(requests: &PlacementQueue) -> u32 {
    requests.assignments().map(|one| one.ipus).sum()
}

#[test]
fn requests_are_decided_in_the_order_of_their_creation() {
    let mut requests = PlacementQueue::default();
    for (name, second) in [("c", 2), ("b", 1), ("a", 2)] {
        assert_eq!(
            ask(&mut requests, &partition(name, second, &Value::Null)),
            None
        );
    }
    let mut order = || decide(&mut requests, wait("full")).0;
    assert_eq!([order(), order(), order()], ["b", "a", "c"]);
    assert!(!requests.has_undecided() && requests.has_waiting());
}

#[test]
fn a_decision_triggers_a_reconcile_that_waits_for_it_or_if_it_is_new() {
    let mut requests = PlacementQueue::default();
    let one = partition("a", 1, &Value::Null);
    assert_eq!(ask(&mut requests, &one), None);
    let full = |requests: &mut PlacementQueue| decide(requests, wait("full")).1;
    assert_eq!(full(&mut requests), Some(true));
    // A new pass comes before the reconcile, which waits for its decision.
    requests.decide_again(true, |_| true);
    assert_eq!(full(&mut requests), Some(true));
    assert_eq!(ask(&mut requests, &one), Some(wait("full")));
    requests.decide_again(true, |_| true);
    assert_eq!(full(&mut requests), Some(false));
    // Another reconcile gets the same one, until it is stale.
    assert_eq!(ask(&mut requests, &one), Some(wait("full")));
    requests.expire();
    assert_eq!(ask(&mut requests, &one), None);
    assert_eq!(full(&mut requests), Some(true));
    assert_eq!(ask(&mut requests, &one), Some(wait("full")));
    requests.decide_again(true, |_| true);
    assert_eq!(decide(&mut requests, wait("down")).1, Some(true));
    requests.decide_again(true, |_| true);
    assert_eq!(decide(&mut requests, chosen()).1, Some(true));
    requests.decide_again(true, |_| true);
    assert!(!requests.has_undecided(), "a controller is chosen");
}

#[test]
fn a_controller_is_assigned_from_the_decision_until_the_request() {
    let mut requests = PlacementQueue::default();
    let one = partition("a", 1, &Value::Null);
    ask(&mut requests, &one);
    assert_eq!(assigned(&requests), 0);
    decide(&mut requests, chosen());
    assert_eq!(assigned(&requests), 4);
    let (uid, owner) = (Uid::of("a"), Uid::of("owner-of-a"));
    requests.begin_reconcile(uid);
    assert_eq!(ask(&mut requests, &one), Some(chosen()));
    assert_eq!(assigned(&requests), 4);
    requests.requested(uid);
    assert_eq!(assigned(&requests), 0);
    assert_eq!(requests.placed_slots(owner), BTreeSet::from([0]));
    // The controller has refused: the same reconcile asks again.
    let refused = json!({"phase": "Pending", "attempts": [
        {"controller": samples::controller(), "id": "p-1", "outcome": "refused"},
    ]});
    assert_eq!(ask(&mut requests, &partition("a", 1, &refused)), None);
    assert_eq!(requests.next_turn().unwrap().name(), "a");
}

#[test]
fn a_controller_is_returned_once() {
    let mut requests = PlacementQueue::default();
    let one = partition("a", 1, &Value::Null);
    ask(&mut requests, &one);
    decide(&mut requests, chosen());
    assert_eq!(ask(&mut requests, &one), Some(chosen()));
    assert_eq!(ask(&mut requests, &one), None);
    assert_eq!(assigned(&requests), 0);
}

#[test]
fn a_reconcile_that_needs_no_controller_withdraws_its_request() {
    let (uid, one) = (Uid::of("a"), partition("a", 1, &Value::Null));
    let mut requests = PlacementQueue::default();
    ask(&mut requests, &one);
    assert!(!requests.end_reconcile(uid, Ended::Well) && !is_stalled(&requests, &one));
    decide(&mut requests, chosen());
    requests.begin_reconcile(uid);
    assert!(
        requests.end_reconcile(uid, Ended::Well),
        "the IPUs are free again"
    );
    assert!(is_stalled(&requests, &one) && requests.knows(uid));
    ask(&mut requests, &one);
    assert!(!is_stalled(&requests, &one));
    // A reconcile that took a controller, and did not request the partition.
    decide(&mut requests, chosen());
    ask(&mut requests, &one);
    assert!(requests.end_reconcile(uid, Ended::Well));
    assert!(!requests.has_undecided());
}

#[test]
fn a_failed_reconcile_gets_the_same_controller_again_for_some_times() {
    let (uid, one) = (Uid::of("a"), partition("a", 1, &Value::Null));
    let mut requests = PlacementQueue::default();
    ask(&mut requests, &one);
    decide(&mut requests, chosen());
    for _ in 1..request::FAILURES_MAX {
        requests.begin_reconcile(uid);
        assert_eq!(ask(&mut requests, &one), Some(chosen()));
        assert!(!requests.end_reconcile(uid, Ended::Failed));
        assert!(assigned(&requests) == 4 && !is_stalled(&requests, &one));
    }
    requests.begin_reconcile(uid);
    assert!(
        requests.end_reconcile(uid, Ended::Failed),
        "others get the IPUs"
    );
    assert!(assigned(&requests) == 0 && is_stalled(&requests, &one));
}

#[test]
fn a_controller_that_is_not_open_any_more_is_chosen_anew() {
    let one = partition("a", 1, &Value::Null);
    let mut requests = PlacementQueue::default();
    ask(&mut requests, &one);
    decide(&mut requests, chosen());
    let me = queue::entry(&one, Timestamp::UNIX_EPOCH);
    let reply = requests.ask(&one, None, &me, |_| false);
    let expected = PlacementReply {
        answer: None,
        is_freed: true,
    };
    assert_eq!(reply, expected);
    assert!(assigned(&requests) == 0 && requests.has_undecided());
}

#[test]
fn later_requests_are_decided_before_earlier_ones_ask_again() {
    let [early, late] = [("a", 1), ("b", 2)].map(|(name, at)| partition(name, at, &Value::Null));
    let mut requests = PlacementQueue::default();
    ask(&mut requests, &early);
    ask(&mut requests, &late);
    let first = requests.next_turn().unwrap();
    assert_eq!(requests.decided(&first, wait("full"), false), Some(true));
    ask(&mut requests, &early);
    ask(&mut requests, &early);
    let refused = json!({"phase": "Pending", "attempts": [
        {"controller": samples::controller(), "id": "p-1", "outcome": "refused"},
    ]});
    ask(&mut requests, &partition("a", 1, &refused));
    let second = requests.next_turn().unwrap();
    assert_eq!((second.name(), second.round), ("b", first.round));
    requests.decided(&second, wait("full"), false);
    let third = requests.next_turn().unwrap();
    assert_eq!((third.name(), third.round), ("a", first.round + 1));
}

#[test]
fn requests_of_the_next_round_and_those_that_have_not_asked_are_expected() {
    let names = ["again", "decided", "new", "old", "blocked", "first"];
    let partitions = names.map(|name| partition(name, 1, &Value::Null));
    let entries = partitions
        .each_ref()
        .map(|one| queue::entry(one, Timestamp::UNIX_EPOCH));
    let now = entries[0].since;
    let entries = entries.map(|entry| {
        let is_old = &*entry.name == "old";
        let minutes = jiff::SignedDuration::from_mins(i64::from(is_old));
        entry.with(|request| request.since = now - minutes)
    });
    let mut requests = PlacementQueue::default();
    let [again, decided, .., first] = &partitions;
    ask(&mut requests, again);
    decide(&mut requests, wait("full"));
    // A reconcile takes the decision, and a later one asks again. Then capacity grows.
    ask(&mut requests, again);
    requests.expire();
    ask(&mut requests, again);
    requests.decide_again(true, |_| true);
    ask(&mut requests, decided);
    assert_eq!(decide(&mut requests, wait("full")).0, "decided");
    requests.end_reconcile(Uid::of("blocked"), Ended::Well);
    ask(&mut requests, first);
    let mut entries = entries.to_vec();
    requests.complete(&mut entries, now);
    let expected = entries.iter().filter(|one| one.is_expected);
    let expected: Vec<&str> = expected.map(|entry| &*entry.name).collect();
    assert_eq!(expected, ["again", "new"]);
}

#[test]
fn a_conflict_is_no_failure() {
    let (uid, one) = (Uid::of("a"), partition("a", 1, &Value::Null));
    let mut requests = PlacementQueue::default();
    ask(&mut requests, &one);
    decide(&mut requests, chosen());
    for _ in 0..10 {
        assert_eq!(ask(&mut requests, &one), Some(chosen()));
        assert!(!requests.end_reconcile(uid, Ended::Conflict));
    }
}

#[test]
fn a_request_that_was_refused_stays_in_the_queue_and_one_that_is_requested_leaves_it() {
    let one = partition("a", 1, &Value::Null);
    let (uid, waiting) = (Uid::of("a"), queue::entry(&one, Timestamp::UNIX_EPOCH));
    let mut requests = PlacementQueue::default();
    let names = |requests: &PlacementQueue, entries: &[&QueueEntry]| {
        let mut entries: Vec<QueueEntry> = entries.iter().copied().cloned().collect();
        requests.complete(&mut entries, Timestamp::UNIX_EPOCH);
        let names = entries.iter().map(|entry| entry.name.to_string());
        names.collect::<Vec<_>>()
    };
    ask(&mut requests, &one);
    decide(&mut requests, chosen());
    ask(&mut requests, &one);
    requests.requested(uid);
    assert!(names(&requests, &[&waiting]).is_empty());
    // The object still shows the request.
    ask(&mut requests, &one);
    assert_eq!(names(&requests, &[]), ["a"]);
    assert_eq!(names(&requests, &[&waiting]), ["a"]);
}

#[test]
fn an_old_entry_of_a_partition_that_was_created_is_not_expected_to_ask() {
    let one = partition("a", 1, &Value::Null);
    let (uid, waiting) = (Uid::of("a"), queue::entry(&one, Timestamp::UNIX_EPOCH));
    let mut requests = PlacementQueue::default();
    ask(&mut requests, &one);
    decide(&mut requests, chosen());
    ask(&mut requests, &one);
    requests.requested(uid);
    requests.end_reconcile(uid, Ended::Well);
    let mut entries = vec![waiting.clone()];
    requests.complete(&mut entries, waiting.since);
    assert!(!entries[0].is_expected && requests.is_blocked(uid));
}

#[test]
fn a_new_request_and_one_that_is_decided_again_share_a_round() {
    let [early, late] = [("a", 1), ("b", 2)].map(|(name, at)| partition(name, at, &Value::Null));
    let mut requests = PlacementQueue::default();
    ask(&mut requests, &early);
    decide(&mut requests, wait("full"));
    assert!(requests.next_turn().is_none(), "the pass ends");
    requests.decide_again(true, |_| true);
    ask(&mut requests, &late);
    assert_eq!(requests.next_turn().unwrap().name(), "a");
    let turn = requests.next_turn().unwrap();
    requests.postpone(&turn);
    assert_eq!(requests.next_turn().unwrap().name(), "b");
}

#[test]
fn a_request_is_expected_until_its_decision_and_again_when_capacity_grows() {
    let mut requests = PlacementQueue::default();
    let one = partition("a", 1, &Value::Null);
    ask(&mut requests, &one);
    let turn = requests.next_turn().unwrap();
    assert!(turn.is_expected);
    requests.postpone(&turn);
    let turn = requests.next_turn().unwrap();
    assert!(turn.is_expected, "it was postponed without a decision");
    requests.decided(&turn, wait("full"), false);
    ask(&mut requests, &one);
    requests.expire();
    ask(&mut requests, &one);
    assert!(!requests.next_turn().unwrap().is_expected, "it asks again");
    requests.decide_again(true, |_| true);
    assert!(
        requests.next_turn().unwrap().is_expected,
        "capacity grew since it asked again"
    );
    decide(&mut requests, wait("full"));
    requests.decide_again(true, |_| true);
    assert!(requests.next_turn().unwrap().is_expected);
}

#[test]
fn nothing_is_left_to_a_request_that_the_policy_denied_free_capacity() {
    let mut requests = PlacementQueue::default();
    let one = partition("a", 1, &Value::Null);
    ask(&mut requests, &one);
    let turn = requests.next_turn().unwrap();
    requests.decided(&turn, wait("over the quota"), true);
    requests.decide_again(true, |_| true);
    let turn = requests.next_turn().unwrap();
    assert!(!turn.is_expected);
    requests.postpone(&turn);
    let mut queue = vec![queue::entry(&one, Timestamp::UNIX_EPOCH)];
    let since = queue[0].since;
    requests.complete(&mut queue, since);
    assert!(!queue[0].is_expected);
    // It is decided like any other, and expected again once it waits for capacity.
    let turn = requests.next_turn().unwrap();
    requests.decided(&turn, wait("full"), false);
    requests.decide_again(true, |_| true);
    assert!(requests.next_turn().unwrap().is_expected);
}

#[test]
fn a_decision_on_a_changed_partition_is_dropped() {
    let mut requests = PlacementQueue::default();
    let before = partition("a", 1, &Value::Null);
    ask(&mut requests, &before);
    let turn = requests.next_turn().unwrap();
    let mut changed = before;
    changed.spec.ipus = 8;
    assert_eq!(ask(&mut requests, &changed), None);
    assert_eq!(requests.decided(&turn, chosen(), false), None);
    let again = requests.next_turn().unwrap();
    requests.withdraw(again.uid);
    assert_eq!(requests.decided(&again, chosen(), false), None);
    assert!(requests.next_turn().is_none());
}

#[test]
fn nothing_is_kept_of_partitions_that_are_gone() {
    let mut requests = PlacementQueue::default();
    for name in ["a", "b"] {
        ask(&mut requests, &partition(name, 1, &Value::Null));
        decide(&mut requests, chosen());
        requests.end_reconcile(Uid::of("blocked"), Ended::Well);
    }
    assert!(requests.retain(|uid| uid == Uid::of("b"), |_| false));
    assert!(!requests.retain(|uid| uid == Uid::of("b"), |_| false));
    assert_eq!(assigned(&requests), 4);
    assert!(!requests.knows(Uid::of("blocked")));
    assert!(requests.forget(Uid::of("b")));
    assert_eq!(assigned(&requests), 0);
}
