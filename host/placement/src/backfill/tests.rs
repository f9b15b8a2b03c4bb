//! The order of the queue, and its reservations, as tables.

use ipu_api::ipupartition::IPUPartition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

use super::*;
use crate::queue::{entries, entry, in_order, own_entry};
use crate::samples::{self, view};

mod avoided;
mod evicted;
mod share;

const LIMIT: SignedDuration = SignedDuration::from_mins(10);

fn now() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().unwrap()
}

/// A request that was created so many minutes ago and has waited since.
fn one(name: &str, ipus: u32, minutes: i64) -> QueueEntry {
    let created = now() - SignedDuration::from_mins(minutes);
    samples::waiting(name, ipus, created)
}

/// The largest partition that `me` could get on each controller.
fn shown(me: &QueueEntry, others: &[QueueEntry], views: &[ControllerView]) -> Vec<u32> {
    let mut entries = others.to_vec();
    entries.push(me.clone());
    in_order(&mut entries);
    let capacity = capacity_for(me, &entries, &[], 0, views.to_vec(), LIMIT, now());
    capacity
        .views
        .iter()
        .map(|view| view.largest_free)
        .collect()
}

#[test]
fn backfill_ends_when_the_earlier_request_has_waited_for_the_limit() {
    let pods = [
        view("pod1", 16, 12),
        view("pod2", 16, 8),
        view("pod3", 8, 0),
    ];
    let me = one("small", 2, 0);
    let cases = [
        (one("big", 16, 9), [4, 8, 8]),
        // Only if the earlier request fits at all, and where most is free.
        (one("big", 16, 10), [4, 0, 8]),
        // Half of those that suit it are reserved. After four weeks, the halves take turns.
        (one("big", 16, 20), [4, 0, 8]),
        (one("big", 16, 27 * 1_440), [4, 0, 8]),
        (one("big", 16, 28 * 1_440), [0, 8, 8]),
        (one("big", 16, 56 * 1_440), [4, 0, 8]),
        (one("big", 16, 112 * 1_440), [0, 8, 8]),
        (one("impossible", 64, 500), [4, 8, 8]),
    ];
    for (earlier, expected) in cases {
        assert_eq!(
            shown(&me, std::slice::from_ref(&earlier), &pods),
            expected,
            "{earlier:?}"
        );
    }
}

#[test]
fn an_earlier_request_whose_decision_follows_gets_what_it_needs() {
    let pods = [view("pod1", 16, 12), view("pod2", 16, 8)];
    let me = one("me", 4, 1);
    let expected = |request| QueueEntry {
        is_expected: true,
        ..request
    };
    let cases = [
        (one("earlier", 4, 2), [0, 8]),
        (one("later", 4, 0), [4, 8]),
        (one("too-large", 16, 2), [4, 8]),
        (one("too-large-for-long", 16, 11), [4, 0]),
    ];
    for (other, views) in cases {
        assert_eq!(
            shown(&me, &[expected(other.clone())], &pods),
            views,
            "{other:?}"
        );
    }
}

#[test]
fn nothing_is_reserved_for_requests_that_capacity_would_not_help() {
    let pods = [view("pod1", 16, 8), view("pod2", 8, 0)];
    let me = one("me", 2, 0);
    let fits = one("fits-and-is-refused", 8, 60);
    assert_eq!(shown(&me, &[fits], &pods), [8, 8]);
    for (size, expected) in [(4, [8, 8]), (3, [0, 0])] {
        let gang = one("gang", 8, 60).with(|request| request.gang = size);
        assert_eq!(shown(&me, &[gang], &pods), expected);
    }
    let mut held_up = one("held-up", 16, 60);
    held_up.is_stalled = true;
    assert_eq!(shown(&me, &[held_up], &pods), [8, 8]);
}

#[test]
fn requests_of_the_same_second_have_an_order() {
    let pods = [view("pod1", 4, 1)];
    let [a, b] = ["a", "b"].map(|name| one(name, 4, 11));
    assert_eq!(shown(&a, std::slice::from_ref(&b), &pods), [2]);
    assert_eq!(shown(&b, std::slice::from_ref(&a), &pods), [0]);
}

#[test]
fn nothing_is_reserved_on_controllers_that_cannot_serve_the_earlier_request() {
    let mut pods = [
        view("pod1", 16, 8),
        view("pod2", 16, 8),
        view("pod3", 16, 8),
    ];
    pods[1].has_nodes = false;
    pods[2].unreachable = Some("it is down".to_owned());
    let me = one("me", 2, 0);
    let selector = BTreeMap::from([("ipunode".to_owned(), "pod2".to_owned())]);
    let earlier = one("earlier", 16, 60)
        .with(|request| request.requirements = Requirements::labels(selector).into());
    assert_eq!(shown(&me, &[earlier], &pods), [8, 8, 8]);
}

#[test]
fn members_of_a_gang_do_not_block_each_other() {
    let pods = [view("pod1", 16, 8)];
    let me = one("me", 4, 0);
    let earlier = one("earlier", 16, 60).with(|request| request.owner = me.owner);
    assert_eq!(shown(&me, &[earlier], &pods), [8]);
}

#[test]
fn a_gang_waits_until_all_missing_members_fit() {
    let me = one("me", 4, 0).with(|request| request.gang = 4);
    let pods = [view("pod1", 16, 8), view("pod2", 8, 6)];
    let ask = |held: u32| {
        capacity_for(
            &me,
            std::slice::from_ref(&me),
            &[],
            held,
            pods.to_vec(),
            LIMIT,
            now(),
        )
    };
    assert_eq!(
        ask(0).too_small.unwrap(),
        "4 partitions of 4 IPUs are useful only together, and there is free capacity for 2 of \
         them now"
    );
    assert!(ask(1).too_small.is_some());
    assert_eq!(ask(2).too_small, None);
    assert_eq!(ask(3).too_small, None);
    assert_eq!(ask(9).too_small, None);
}

#[test]
fn the_reason_names_the_request_with_the_reservation() {
    let me = one("small", 2, 0);
    let entries = [one("big", 16, 12), me.clone()];
    let capacity = capacity_for(
        &me,
        &entries,
        &[],
        0,
        vec![view("pod1", 16, 8)],
        LIMIT,
        now(),
    );
    let reasons = vec![WaitingReason {
        controller: "pod1".to_owned(),
        reason: "full".to_owned(),
    }];
    let explained = explained(reasons, &capacity);
    assert_eq!(
        explained[0].reason,
        "its free capacity is reserved for default/big (16 IPUs), which has waited since \
         2026-01-01T11:48:00Z"
    );
}

#[test]
fn the_reasons_are_the_same_after_an_earlier_request_was_served() {
    let pods = || {
        vec![
            view("pod1", 16, 8),
            view("pod2", 16, 16),
            view("pod3", 16, 12),
        ]
    };
    let me = one("me", 8, 0);
    // The first one has not waited for the limit, so nothing is reserved for it.
    let mut first = one("first", 16, 5);
    first.position.created = now() - SignedDuration::from_mins(60);
    let entries = [first, one("big", 16, 12), me.clone()];
    let reasons = |entries: &[QueueEntry]| {
        let capacity = capacity_for(&me, entries, &[], 0, pods(), LIMIT, now());
        let full = |controller: &String| WaitingReason {
            controller: controller.clone(),
            reason: "full".to_owned(),
        };
        explained(capacity.reserved.keys().map(full).collect(), &capacity)
    };
    let before = reasons(&entries);
    assert_eq!(before.len(), 1, "{before:?}");
    assert_eq!(before, reasons(&entries[1..]));
}

#[test]
fn only_requests_without_a_partition_wait() {
    let read = |change: serde_json::Value| {
        let mut object = json!({
            "apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUPartition",
            "metadata": {"name": "p", "creationTimestamp": "2026-01-01T11:00:00Z"},
            "spec": {
                "owner": {"apiVersion": "v1", "kind": "K", "namespace": "n", "name": "o", "uid": "u"},
                "slot": 0, "ipus": 4, "gcds": 1,
            },
        });
        json_patch::merge(&mut object, &change);
        let partition: IPUPartition = serde_json::from_value(object).unwrap();
        partition.is_waiting().then(|| entry(&partition, now()))
    };
    let fresh = read(json!({})).unwrap();
    assert_eq!(fresh.since, fresh.position.created);
    let condition = json!([{
        "type": "Ready", "status": "False", "reason": "Replacing", "message": "",
        "lastTransitionTime": "2026-01-01T11:30:00Z",
    }]);
    let replaced = read(json!({"status": {"conditions": condition}})).unwrap();
    assert!(replaced.since > replaced.position.created);
    assert_eq!(read(json!({"status": {"phase": "Creating"}})), None);
    assert_eq!(
        read(json!({"status": {"phase": "Ready", "partitionId": "p"}})),
        None
    );
    let deleted = json!({"metadata": {"deletionTimestamp": "2026-01-01T11:59:00Z"}});
    assert_eq!(read(deleted), None);
}

/// The capacity for a partition in this queue, on a controller with 4 free IPUs, whose owner has
/// one partition.
fn capacity_in(entries: &[QueueEntry], partition: &IPUPartition) -> Capacity {
    let me = own_entry(partition, entries, now());
    let pods = vec![view("pod1", 16, 12)];
    capacity_for(&me, entries, &[], 1, pods, LIMIT, now())
}

#[test]
fn a_gang_has_one_position_in_the_queue() {
    let object = |owner: &str, slot: u32, gang: Option<u32>, minutes: i64| -> IPUPartition {
        let created = now() - SignedDuration::from_mins(minutes);
        let object = json!({
            "apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUPartition",
            "metadata": {
                "name": format!("{owner}-{slot}"), "uid": format!("{owner}-{slot}"),
                "creationTimestamp": created,
            },
            "spec": {
                "owner": {
                    "apiVersion": "v1", "kind": "K", "namespace": "n", "name": owner, "uid": owner,
                },
                "slot": slot, "ipus": 2, "gcds": 1, "options": {"gangSize": gang},
            },
        });
        serde_json::from_value(object).unwrap()
    };
    let mut all = [
        object("gang", 0, Some(3), 60),
        object("gang", 1, Some(3), 50),
        object("large", 0, None, 40),
        object("gang", 2, Some(3), 30),
        object("apart", 0, None, 45),
        object("apart", 1, None, 20),
    ];
    all[2].spec.ipus = 16;
    all[0].status = serde_json::from_value(json!({"phase": "Ready", "partitionId": "p"})).unwrap();
    let entries = entries(all.iter(), now());
    let names: Vec<&str> = entries.iter().map(|entry| &*entry.name).collect();
    assert_eq!(names, ["gang-1", "gang-2", "apart-0", "large-0", "apart-1"]);
    let seen = |one: &IPUPartition| capacity_in(&entries, one);
    for slot in [1, 3] {
        assert_eq!(seen(&all[slot]).views[0].largest_free, 4, "{slot}");
        assert_eq!(seen(&all[slot]).too_small, None, "{slot}");
    }
    assert_eq!(seen(&all[5]).views[0].largest_free, 0);
    assert_eq!(
        own_entry(&all[3], &[], now()).position.name.as_ref(),
        "gang-2"
    );
    // A sibling is deleted: the released capacity is not taken again in vain, and nothing is
    // reserved.
    let was_placed = json!({"phase": "Pending", "generation": 1});
    all[1].status = Some(serde_json::from_value(was_placed).unwrap());
    all[3].metadata.deletion_timestamp = Some(Time(now()));
    let entries = crate::queue::entries(all.iter(), now());
    let seen = |one: &IPUPartition| capacity_in(&entries, one);
    assert_eq!(
        seen(&all[1]).too_small.unwrap(),
        "3 partitions are useful only together, and 1 of them are not requested"
    );
    assert_eq!(seen(&all[2]).reserved, BTreeMap::new());
}

#[test]
fn a_gang_that_is_larger_than_all_controllers_together_never_fits() {
    let gang = |size, ipus| one("gang", ipus, 1).with(|request| request.gang = size);
    // Whatever is used now, and whether a node is there.
    let mut pods = [view("pod1", 16, 16), view("pod2", 8, 0), view("pod3", 4, 4)];
    pods[1].has_nodes = false;
    let never = |me: &QueueEntry, pods: &[ControllerView]| never_fits(me, pods.iter());
    assert_eq!(never(&gang(3, 8), &pods), None);
    assert_eq!(
        never(&gang(4, 8), &pods).unwrap(),
        "no V-IPU controllers can ever serve 4 partitions of 8 IPUs, which are useful only together: \
         empty, all of them have capacity for 3 (pod1: 2 of 16 IPUs; pod2: 1 of 8 IPUs; pod3: 0 of \
         4 IPUs); request fewer or smaller ones, or ask an admin to add V-IPU controllers"
    );
    assert_eq!(never(&gang(1, 64), &pods), None, "the policy decides");
    assert_eq!(never(&gang(4, 8), &[]), None, "the list is empty for now");
    let mut here = gang(2, 8);
    let selector = BTreeMap::from([("ipunode".to_owned(), "pod2".to_owned())]);
    here = here.with(|request| request.requirements = Requirements::labels(selector).into());
    assert!(never(&here, &pods).is_some());
    let mut with_unreachable = pods.clone();
    with_unreachable[2].unreachable = Some("it is down".to_owned());
    assert_eq!(
        never(&gang(4, 8), &with_unreachable),
        None,
        "it may be a larger one"
    );
    assert!(
        never(&here, &with_unreachable).is_some(),
        "which would not matter"
    );
    let mut bare = pods.clone();
    bare[2].total_ipus = 0;
    assert_eq!(never(&gang(4, 8), &bare), None, "its agents may come");
}

#[test]
fn assigned_ipus_count_before_the_controller_reports_them() {
    let me = one("me", 8, 1);
    let pods = || vec![view("pod1", 8, 0), view("pod2", 16, 0)];
    let after = |assigned: &[Assigned]| -> Vec<u32> {
        let entries = std::slice::from_ref(&me);
        let capacity = capacity_for(&me, entries, assigned, 0, pods(), LIMIT, now());
        let views = capacity.views.iter();
        views.map(|view| view.largest_free).collect()
    };
    assert_eq!(after(&[]), [8, 16]);
    let on = |controller: &str, ipus| Assigned {
        controller: controller.to_owned(),
        ipus,
        count: 1,
    };
    let on_first = |ipus| on("pod1", ipus);
    let gone = on("gone", 8);
    assert_eq!(after(&[on_first(4), gone]), [4, 16]);
    assert_eq!(after(&[on_first(4), on_first(2)]), [4, 16], "it is full");
}
